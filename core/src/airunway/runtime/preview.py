"""Dry run: what would be written, checked by the API server and published, with nothing upstream changed.

Asked for by the annotation ``airunway.ai/dry-run: "true"`` (spec/core.md). The would-be objects stand in the ConfigMap
``<name>-airunway-plan``, which belongs to the deployment and goes with it, or with the annotation.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from airunway.api import names
from airunway.kube import CONFIG_MAP, ApiError, Client, NotFound, needs_apply
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, owner_reference
from airunway.runtime.apply import is_refusal
from airunway.runtime.report import Done
from airunway.runtime.surroundings import Surroundings

__all__ = ["Previewer", "is_asked_for", "plan_name"]


def is_asked_for(deployment: Resource) -> bool:
    """Whether the deployment carries the annotation; only the exact word counts."""
    return annotations_of(deployment).get(names.DRY_RUN) == "true"


def plan_name(deployment: Resource) -> str:
    return f"{deployment['metadata']['name']}-airunway-plan"


class Previewer:
    """Publishes plans and takes them back."""

    def __init__(self, *, client: Client, around: Surroundings, manager: str) -> None:
        self._client = client
        self._around = around
        self._manager = manager

    async def publish(self, deployment: Resource, desired: Sequence[Resource]) -> Done:
        """Check the objects by server-side dry-run and publish them; says whether the API server would take them."""
        refusals = [text for obj in desired if (text := await self._refusal(obj)) is not None]
        await self._write(deployment, desired, refusals)
        where = f"ConfigMap {plan_name(deployment)} holds the {len(desired)} objects that would be applied"
        if refusals:
            return Done(ok=True, reason="WouldBeRefused", message=f"{where}; the API server refuses: {refusals[0]}")
        return Done(ok=True, reason="Planned", message=f"{where}; the API server accepts them")

    async def withdraw(self, deployment: Resource) -> None:
        """Delete the plan of a deployment that is no longer a dry run. Only one that says it is one has a plan."""
        if condition_of(deployment, "DryRun") is None:
            return
        try:
            await self._client.delete(CONFIG_MAP, _key(deployment))
        except NotFound:
            return

    async def _refusal(self, obj: Resource) -> str | None:
        view = self._around.views.get(obj["kind"])
        if view is None:
            return f"{obj['kind']}: the cluster does not serve this kind"
        try:
            await self._client.apply(view.kind, obj, manager=self._manager, force=True, dry_run=True)
        except ApiError as error:
            if not is_refusal(error):
                raise
            return f"{obj['kind']} {obj['metadata']['name']}: {error.message}"
        return None

    async def _write(self, deployment: Resource, desired: Sequence[Resource], refusals: Sequence[str]) -> None:
        # Without the managed-by label: this is no part of what the deployment needs, and must not be pruned as such.
        plan = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": plan_name(deployment),
                "namespace": deployment["metadata"]["namespace"],
                "ownerReferences": [owner_reference(deployment)],
            },
            "data": {
                "objects.yaml": yaml.safe_dump_all(desired, sort_keys=False),
                "refusals.txt": "\n".join(refusals),
            },
        }
        try:
            live = await self._client.get(CONFIG_MAP, _key(deployment))
        except NotFound:
            live = None
        if needs_apply(plan, live, manager=self._manager):
            await self._client.apply(CONFIG_MAP, plan, manager=self._manager, force=True)


def _key(deployment: Resource) -> ObjectKey:
    return ObjectKey(deployment["metadata"]["namespace"], plan_name(deployment))
