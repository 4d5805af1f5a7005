"""A provider's own configuration is a frozen dataclass; this is how fields of it are described.

The runtime reads it at the start, from ``--set name=value`` or a chart's values, with names in camelCase: a wrong one
ends the process with a sentence. ``context.settings`` has the instance.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from airunway.plugins.contract import NoSettings
from airunway.plugins.errors import SettingsError

__all__ = ["NoSettings", "SettingsError", "setting"]


def setting(default: Any, doc: str, *, kept: bool = False) -> Any:
    """A field of a settings dataclass with its default and its meaning, which charts and pages show.

    A default that can be changed (a dict) is copied for each instance. One that is `kept` reaches pods that serve, as
    an image does: what runs goes on with the value that it was made with until its deployment's spec changes in more
    than replica counts, or adopts what is new.
    """
    metadata = {"doc": doc, "kept": kept}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)
