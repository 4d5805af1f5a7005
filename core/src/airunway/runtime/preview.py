"""Dry run: what would be written, checked by the API server and published, with nothing upstream changed.

Asked for by the annotation ``airunway.ai/dry-run: "true"`` (spec/core.md). The would-be objects stand in the ConfigMap
``<name>-airunway-plan``, which belongs to the deployment and goes with it, or with the annotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.kube import CONFIG_MAP, ApiError, Client, Kind, NotFound, needs_apply
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, key_of, owner_reference, uid_of
from airunway.runtime.answers import is_refusal
from airunway.runtime.apply import NEVER, trial_of
from airunway.runtime.disclosure import plan_data
from airunway.runtime.lookup import conflict_text, live, named, view_of
from airunway.runtime.plan import is_ours, recreate_causes
from airunway.runtime.report import Done
from airunway.runtime.surroundings import Surroundings
from airunway.words import redacted

__all__ = ["Previewer", "is_asked_for", "plan_name"]


def is_asked_for(deployment: Resource) -> bool:
    """Whether the deployment carries the annotation; only the exact word counts."""
    return annotations_of(deployment).get(names.DRY_RUN) == "true"


def plan_name(deployment: Resource) -> str:
    return f"{deployment['metadata']['name']}-airunway-plan"


@dataclass(frozen=True, kw_only=True)
class _Step:
    """What would become of one object, and why the API server (or an object in the way) would not have it."""

    action: str
    refusal: str = ""


class Previewer:
    """Publishes plans and takes them back."""

    def __init__(self, *, client: Client, around: Surroundings, manager: str) -> None:
        self._client = client
        self._around = around
        self._manager = manager

    async def publish(self, deployment: Resource, desired: Sequence[Resource]) -> Done:
        """Publish what would be done, checked by server-side dry-run; says whether the API server would take it.

        `desired` is empty where everything would be removed (``spec.suspend``).
        """
        steps = [await self._step(deployment, obj) for obj in desired]
        wanted = {(obj["kind"], key_of(obj)) for obj in desired}
        children = self._around.children.of(key_of(deployment))
        steps += [
            _Step(action=f"delete {named(obj)}")
            for (kind, key), obj in children.items()
            if (kind.kind, key) not in wanted and is_ours(obj, deployment)
        ]
        in_the_way = await self._write(deployment, desired, steps)
        actions = "; ".join(step.action for step in steps) or "nothing"
        if in_the_way:
            return Done(ok=False, reason="ResourceConflict", message=f"Would {actions}; not published: {in_the_way}")
        message = f"Would {actions} (see ConfigMap {plan_name(deployment)})"
        refusal = next((step.refusal for step in steps if step.refusal), "")
        if refusal:
            return Done(ok=True, reason="WouldBeRefused", message=f"{message}; refused: {redacted(refusal)}")
        return Done(ok=True, reason="Planned", message=f"{message}; the API server accepts it")

    async def withdraw(self, deployment: Resource) -> None:
        """Delete the plan of a deployment that is no longer a dry run. Only one that says it is one has a plan.

        A ConfigMap of that name that is somebody else's stays.
        """
        if condition_of(deployment, "DryRun") is None:
            return
        try:
            published = await self._client.get(CONFIG_MAP, _key(deployment))
            if is_ours(published, deployment):
                await self._client.delete(CONFIG_MAP, _key(deployment), uid=uid_of(published))
        except NotFound:
            return

    async def _step(self, deployment: Resource, obj: Resource) -> _Step:
        view = view_of(obj, self._around)
        if view is None:
            return _Step(action=f"create {named(obj)}", refusal=f"the cluster does not serve {obj['kind']}")
        found = await live(obj, view, self._client)
        if found is not None and not is_ours(found, deployment):
            return _Step(action=f"create {named(obj)}", refusal=conflict_text(obj, found))
        causes = recreate_causes(found, obj) if found is not None else []
        if found is None:
            action = f"create {named(obj)}"
        elif causes:
            action = f"delete {named(obj)} and make it again ({', '.join(causes)} cannot be changed in place)"
        elif needs_apply(obj, found, manager=self._manager):
            action = f"update {named(obj)}"
        else:
            return _Step(action=f"leave {named(obj)} as it is")
        return _Step(action=action, refusal=await self._refusal(trial_of(obj) if causes else obj, view.kind))

    async def _refusal(self, obj: Resource, kind: Kind) -> str:
        try:
            await self._client.apply(kind, obj, manager=self._manager, force=True, dry_run=True)
        except ApiError as error:
            if not is_refusal(error):
                raise
            return f"{named(obj)}: {error.message}"
        return ""

    async def _write(self, deployment: Resource, desired: Sequence[Resource], steps: Sequence[_Step]) -> str:
        """Publish the plan; returns what is in the way, which stays as it is.

        Raises Conflict where somebody makes or replaces a ConfigMap of that name at this moment.
        """
        try:
            published = await self._client.get(CONFIG_MAP, _key(deployment))
        except NotFound:
            published = None
        # Without the managed-by label: this is no part of what the deployment needs, and must not be pruned as such.
        plan = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": plan_name(deployment),
                "namespace": deployment["metadata"]["namespace"],
                "ownerReferences": [owner_reference(deployment)],
                **({"resourceVersion": NEVER} if published is None else {"uid": uid_of(published)}),
            },
            "data": plan_data(
                desired,
                actions=[step.action for step in steps],
                refusals=[step.refusal for step in steps if step.refusal],
            ),
        }
        if published is not None and not is_ours(published, deployment):
            return conflict_text(plan, published)
        if needs_apply(plan, published, manager=self._manager):
            await self._client.apply(CONFIG_MAP, plan, manager=self._manager, force=True)
        return ""


def _key(deployment: Resource) -> ObjectKey:
    return ObjectKey(deployment["metadata"]["namespace"], plan_name(deployment))
