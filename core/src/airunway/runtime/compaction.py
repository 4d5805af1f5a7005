"""What a provider's process keeps of a ModelDeployment: `process.deployment_cache`, and of the selection one answer."""

from __future__ import annotations

from airunway.process.deployment_cache import DeploymentProjection
from airunway.resource import Resource
from airunway.selection import is_denied

__all__ = ["Compaction"]

_DENIED: Resource = {"candidates": []}


class Compaction:
    """The projection for a provider's cache of deployments; `manager` is our field manager.

    ``status.selection`` goes: it is the core's account of how it chose. All that is read of it here is whether the
    policy denies this provider: then an empty list stays, which says just that (`is_denied`).
    """

    def __init__(self, manager: str, provider: str) -> None:
        self._provider = provider
        self._project = DeploymentProjection(manager, without=("selection",))

    def __call__(self, obj: Resource) -> Resource:
        denied = is_denied(obj, self._provider)
        obj = self._project(obj)
        if denied and isinstance(obj.get("status"), dict):
            obj["status"]["selection"] = _DENIED
        return obj
