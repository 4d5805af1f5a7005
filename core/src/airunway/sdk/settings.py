"""Describes the fields of a provider's settings, a frozen dataclass.

The runtime reads the settings at startup, from ``--set name=value`` or a chart's values, with names in camelCase. A
wrong value ends the process with an error message. ``context.settings`` has the instance.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from airunway.plugins.contract import NoSettings
from airunway.plugins.errors import SettingsError

__all__ = ["NoSettings", "SettingsError", "setting"]


def setting(default: Any, doc: str, *, kept: bool = False) -> Any:
    """A field of a settings dataclass, with its default and its meaning for charts and reference pages.

    A mutable default (a dict) is copied for each instance. Mark a setting as `kept` if it changes serving pods, as an
    image does: running deployments keep the value they were created with. They take the new value when their spec
    changes in more than replica counts, or when they adopt the new version.
    """
    metadata = {"doc": doc, "kept": kept}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)
