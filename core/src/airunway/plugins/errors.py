"""Exceptions for faults of provider plugins.

PluginError
├── PluginNotFound       no installed distribution registers that name
├── PluginBroken         its module cannot be imported, or what it registers breaks a rule of the contract
├── ContractMismatch     it was built for a contract version that this core does not support
├── PluginFault          one of its hooks raised, took too long or returned something that breaks the contract
└── SettingsError        its own configuration is wrong: an unknown name, a value of the wrong type
"""

from __future__ import annotations


class PluginError(Exception):
    """Base of all exceptions about a provider plugin. `rule` is the id of the broken rule of the contract, if any."""

    def __init__(self, message: str = "", *, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class PluginNotFound(PluginError):
    pass


class PluginBroken(PluginError):
    pass


class ContractMismatch(PluginError):
    pass


class PluginFault(PluginError):
    pass


class SettingsError(PluginError):
    """A provider's own configuration is wrong: an unknown name, a value of the wrong type. It ends the process."""
