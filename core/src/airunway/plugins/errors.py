"""What can be wrong with a plugin: one tree.

PluginError
├── PluginNotFound       no installed distribution registers that name
├── PluginBroken         its module cannot be imported, or it does not implement the contract's hooks
├── ContractMismatch     it was built for a contract version that this core does not speak
└── PluginFault          one of its hooks raised or returned something of the wrong type
"""

from __future__ import annotations

__all__ = ["ContractMismatch", "PluginBroken", "PluginError", "PluginFault", "PluginNotFound"]


class PluginError(Exception):
    """Base of everything that is wrong with a provider plugin."""


class PluginNotFound(PluginError):
    pass


class PluginBroken(PluginError):
    pass


class ContractMismatch(PluginError):
    pass


class PluginFault(PluginError):
    pass
