"""Making what a provider caches small: of an object whatever it never looks at goes, and equal texts are one."""

from __future__ import annotations

from airunway.kube import share_status_parts, strip_managed_fields
from airunway.resource import Resource
from airunway.selection import is_denied

__all__ = ["Compaction"]


_DENIED: Resource = {"candidates": []}


class Compaction:
    """The projection for caches of deployments and upstream objects; `manager` is our field manager.

    ``status.selection`` goes: it is the core's account of how it chose. All that is read of it here is whether the
    policy denies this provider: then an empty list stays, which says just that (`is_denied`).
    """

    def __init__(self, manager: str, provider: str) -> None:
        self._provider = provider
        self._strip = strip_managed_fields(manager)
        self._share = share_status_parts()

    def __call__(self, obj: Resource) -> Resource:
        obj = self._strip(obj)
        status = obj.get("status")
        if isinstance(status, dict):
            if is_denied(obj, self._provider):
                status["selection"] = _DENIED
            else:
                status.pop("selection", None)
        return self._share(obj)
