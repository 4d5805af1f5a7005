"""Making what a provider caches small: of an object whatever it never looks at goes, and equal texts are one."""

from __future__ import annotations

from airunway.kube import share_status_parts, strip_managed_fields
from airunway.resource import Resource

__all__ = ["Compaction"]


class Compaction:
    """The projection for caches of deployments and upstream objects; `manager` is our field manager.

    ``status.selection`` goes: it is the core's account of how it chose, and nothing here reads it.
    """

    def __init__(self, manager: str) -> None:
        self._strip = strip_managed_fields(manager)
        self._share = share_status_parts()

    def __call__(self, obj: Resource) -> Resource:
        obj = self._strip(obj)
        status = obj.get("status")
        if isinstance(status, dict):
            status.pop("selection", None)
        return self._share(obj)
