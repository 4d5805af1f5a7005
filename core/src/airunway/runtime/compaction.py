"""Making what a provider caches small: of an object whatever it never looks at goes, and equal texts are one."""

from __future__ import annotations

import sys

from airunway.kube import strip_managed_fields
from airunway.resource import Resource, dig

__all__ = ["Compaction"]

_LONGEST = 256
"""Longer texts are hardly ever equal."""


class Compaction:
    """The projection for caches of deployments and upstream objects; `manager` is our field manager.

    Conditions are a third of such an object, and the same few texts in every one. ``status.selection`` is the core's
    account of how it chose; nothing here reads it.
    """

    def __init__(self, manager: str) -> None:
        self._strip = strip_managed_fields(manager)

    def __call__(self, obj: Resource) -> Resource:
        obj = self._strip(obj)
        status = obj.get("status")
        if isinstance(status, dict):
            status.pop("selection", None)
            conditions = dig(status, "conditions")
            for condition in conditions if isinstance(conditions, list) else ():
                if isinstance(condition, dict):
                    condition.update((key, _interned(value)) for key, value in list(condition.items()))
        return obj


def _interned(value: object) -> object:
    return sys.intern(value) if type(value) is str and len(value) <= _LONGEST else value
