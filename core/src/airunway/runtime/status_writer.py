"""The one place where a provider's status is written: compare, apply, remember the answer."""

from __future__ import annotations

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, NotFound, Overlay, needs_apply
from airunway.resource import Resource

__all__ = ["StatusWriter"]


class StatusWriter:
    """Applies a provider's status; forced, because taking `phase` and ``Ready`` over from the core is meant."""

    def __init__(self, *, client: Client, deployments: Overlay, manager: str) -> None:
        self._client = client
        self._deployments = deployments
        self._manager = manager

    async def write(self, deployment: Resource, status: Resource) -> bool:
        """Make `status` all that we own of the deployment's status; False if that is so already or it is gone.

        The uid goes along as precondition: an object of the same name that was made meanwhile is not touched.
        """
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {field: deployment["metadata"][field] for field in ("name", "namespace", "uid")},
            "status": status,
        }
        if not needs_apply(body, deployment, manager=self._manager, subresource="status"):
            return False
        try:
            answer = await self._client.apply(
                MODEL_DEPLOYMENT, body, manager=self._manager, force=True, subresource="status"
            )
        except NotFound:
            return False
        self._deployments.note(answer)
        return True
