"""Dry run: what would be written, checked by the API server and published, with nothing upstream changed.

Asked for by the annotation ``airunway.ai/dry-run: "true"`` (spec/core.md). The plan that a pass would carry out stands
in the ConfigMap ``<name>-airunway-plan``, which belongs to the deployment and goes with it, or with the annotation.
"""

from __future__ import annotations

from collections.abc import Sequence

from airunway.kube import CONFIG_MAP, NotFound, needs_apply
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, owner_reference, uid_of
from airunway.runtime.answers import Refused
from airunway.runtime.disclosure import plan_data
from airunway.runtime.seen import Seen
from airunway.runtime.steps import Action, Plan, Step, conflict_text, named
from airunway.runtime.told import Told
from airunway.runtime.writes import NEVER, Writer
from airunway.words import redacted

__all__ = ["Previewer", "plan_name"]


def plan_name(deployment: Resource) -> str:
    return f"{deployment['metadata']['name']}-airunway-plan"


class Previewer:
    """Publishes plans and takes them back."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def publish(self, seen: Seen, objects: Sequence[Resource], plan: Plan | None) -> Told:
        """Publish what would be done, checked by server-side dry-run; says whether the API server would take it.

        Without a `plan` everything would be removed (``spec.suspend``).
        """
        steps = plan.steps if plan is not None else tuple(Step(action=Action.DELETE, live=obj) for obj in seen.ours)
        refusals = [refusal for step in steps if (refusal := await self._refusal(step, steps))]
        actions = [step.text() for step in steps]
        in_the_way = await self._write(seen.deployment, objects, actions, refusals)
        would = f"Would {'; '.join(actions) or 'nothing'}"
        if in_the_way:
            return _told("ResourceConflict", f"{would}; not published: {in_the_way}", ok=False)
        message = f"{would} (see ConfigMap {plan_name(seen.deployment)})"
        if refusals:
            return _told("WouldBeRefused", f"{message}; refused: {redacted(refusals[0])}")
        return _told("Planned", f"{message}; the API server accepts it")

    async def withdraw(self, deployment: Resource) -> None:
        """Delete the plan of a deployment that is no longer a dry run. Only one that says it is one has a plan.

        A ConfigMap of that name that is somebody else's stays.
        """
        if condition_of(deployment, "DryRun") is None:
            return
        try:
            published = await self._writer.client.get(CONFIG_MAP, _key(deployment))
            if _belongs(published, deployment):
                await self._writer.client.delete(CONFIG_MAP, _key(deployment), uid=uid_of(published))
        except NotFound:
            return

    async def _refusal(self, step: Step, steps: Sequence[Step]) -> str:
        """Why the API server, or an object in the way, would not have it; empty if nothing speaks against it."""
        if step.wanted is None or step.action is Action.KEEP:
            return ""
        if step.action is Action.FOREIGN and step.live is not None:
            return conflict_text(step.wanted, step.live)
        if step.action is Action.CREATE and (found := await self._writer.find(step.wanted)) is not None:
            return conflict_text(step.wanted, found)
        absent = tuple(other.wanted for other in steps if other.live is None and other.wanted is not None)
        try:
            await self._writer.rehearse((step,), absent=absent, sure=True)
        except Refused as refused:
            return f"{named(refused.obj)}: {refused.message}"
        return ""

    async def _write(
        self, deployment: Resource, objects: Sequence[Resource], actions: Sequence[str], refusals: Sequence[str]
    ) -> str:
        """Publish the plan; returns what is in the way, which stays as it is.

        Raises Conflict where somebody makes or replaces a ConfigMap of that name at this moment.
        """
        try:
            published = await self._writer.client.get(CONFIG_MAP, _key(deployment))
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
            "data": plan_data(objects, actions=actions, refusals=refusals),
        }
        if published is not None and not _belongs(published, deployment):
            return conflict_text(plan, published)
        if needs_apply(plan, published, manager=self._writer.manager):
            await self._writer.client.apply(CONFIG_MAP, plan, manager=self._writer.manager, force=True)
        return ""


def _told(reason: str, message: str, *, ok: bool = True) -> Told:
    return Told(condition="DryRun", ok=ok, reason=reason, message=message)


def _belongs(plan: Resource, deployment: Resource) -> bool:
    references = dig(plan, "metadata", "ownerReferences") or []
    return any(dig(reference, "uid") == uid_of(deployment) for reference in references)


def _key(deployment: Resource) -> ObjectKey:
    return ObjectKey(key_of(deployment).namespace, plan_name(deployment))
