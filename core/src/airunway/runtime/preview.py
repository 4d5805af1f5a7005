"""Dry run: what would be written, checked by the API server and published, with nothing upstream changed.

Asked for by the annotation ``airunway.ai/dry-run: "true"`` (spec/core.md). The plan that a pass would carry out stands
in the ConfigMap ``<name>-airunway-plan``, which belongs to the deployment and goes with it, or with the annotation.
Many may read it who may not read what it describes: values of environment variables and arguments whose name speaks of
a secret are left out, and every other text is redacted (`airunway.redaction`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from airunway.api import names
from airunway.kube import CONFIG_MAP, NotFound, needs_apply
from airunway.redaction import redacted
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, owner_reference, uid_of
from airunway.runtime.apply import NEVER, Writer
from airunway.runtime.error_policies import Refused
from airunway.runtime.plan import Action, Plan, Step, conflict_text
from airunway.runtime.report import StepResult
from airunway.runtime.state import ClusterState, named

__all__ = ["PLAN_LIMIT", "Previewer", "plan_data", "plan_name", "shown"]


def plan_name(deployment: Resource) -> str:
    return f"{deployment['metadata']['name']}-airunway-plan"


class Previewer:
    """Publishes plans and takes them back."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def publish(self, state: ClusterState, objects: Sequence[Resource], plan: Plan | None) -> StepResult:
        """Publish what would be done, checked by server-side dry-run; says whether the API server would take it.

        Without a `plan` everything would be removed (``spec.suspend``).
        """
        steps = plan.steps if plan is not None else tuple(Step(action=Action.DELETE, live=obj) for obj in state.ours)
        refusals = [refusal for step in steps if (refusal := await self._refusal(step, steps))]
        actions = [step.text() for step in steps]
        in_the_way = await self._write(state.deployment, objects, actions, refusals)
        would = f"Would {'; '.join(actions) or 'nothing'}"
        if in_the_way:
            return _told("ResourceConflict", f"{would}; not published: {in_the_way}", ok=False)
        message = f"{would} (see ConfigMap {plan_name(state.deployment)})"
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
            await self._writer.dry_run((step,), absent=absent, sure=True)
        except Refused as refused:
            return f"{named(refused.obj)}: {refused.message}"
        return ""

    async def _write(
        self, deployment: Resource, objects: Sequence[Resource], actions: Sequence[str], refusals: Sequence[str]
    ) -> str:
        """Publish the plan; returns what is in the way, which stays as it is.

        Raises Conflict where somebody makes or replaces a ConfigMap of that name at this moment.
        """
        published = await self._writer.client.find(CONFIG_MAP, _key(deployment))
        # Without the managed-by label: this is no part of what the deployment needs, and must not be pruned as such.
        plan = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": plan_name(deployment),
                "namespace": deployment["metadata"]["namespace"],
                "labels": {names.PROVIDER: names.provider_of_manager(self._writer.manager)},
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


def _told(reason: str, message: str, *, ok: bool = True) -> StepResult:
    return StepResult(condition="DryRun", ok=ok, reason=reason, message=message)


def _belongs(plan: Resource, deployment: Resource) -> bool:
    references = dig(plan, "metadata", "ownerReferences") or []
    return any(dig(reference, "uid") == uid_of(deployment) for reference in references)


def _key(deployment: Resource) -> ObjectKey:
    return ObjectKey(key_of(deployment).namespace, plan_name(deployment))


# ----------------------------------------------------------------------------------------------- what may be published


HIDDEN = "***"


PLAN_LIMIT = 900 * 1024
"""Bytes of a plan: the API server takes 1 MiB of data in a ConfigMap, and etcd 1.5 MiB of an object."""


_NOTES_LIMIT = 64 * 1024
"""Bytes of the actions, and of the refusals, at most."""


_ENVIRONMENTS = frozenset(("env", "env_vars", "envVars", "envs"))


_ARGUMENTS = frozenset(("args", "command", "extraArgs"))


_SECRET = re.compile(r"(?i)token|secret|passw|api[_-]?key|credential|private[_-]?key|access[_-]?key|signature|auth")


def plan_data(desired: Sequence[Resource], *, actions: Sequence[str], refusals: Sequence[str]) -> dict[str, str]:
    """The data of the plan's ConfigMap: at most PLAN_LIMIT bytes, with a note where something was left out."""
    data = {
        "actions.txt": _cut("\n".join(actions), _NOTES_LIMIT),
        "refusals.txt": _cut("\n".join(map(redacted, refusals)), _NOTES_LIMIT),
    }
    left = PLAN_LIMIT - sum(len(text.encode()) for text in data.values())
    objects = yaml.safe_dump_all([shown(obj) for obj in desired], sort_keys=False, allow_unicode=True)
    return {"objects.yaml": _cut(objects, left), **data}


def shown(node: Any, name: str = "") -> Any:
    """`node` as it may be published; `name` is the key that it stands under."""
    if isinstance(node, Mapping):
        if name in _ENVIRONMENTS:  # by name, as Ray's runtime_env has it
            return {key: HIDDEN if isinstance(value, str) else shown(value) for key, value in node.items()}
        return {key: shown(value, str(key)) for key, value in node.items()}
    if isinstance(node, list | tuple):
        if name in _ENVIRONMENTS:
            return [_variable(item) for item in node]
        return _arguments(node) if name in _ARGUMENTS else [shown(item) for item in node]
    return redacted(node) if isinstance(node, str) else node


def _variable(item: Any) -> Any:
    if isinstance(item, Mapping) and "value" in item:
        return {**{key: shown(value) for key, value in item.items()}, "value": HIDDEN}
    return shown(item)


def _arguments(items: Sequence[Any]) -> list[Any]:
    """Arguments, without the value of ``--api-key=value`` and of ``--api-key value``."""
    redacted_items: list[Any] = []
    hides = False
    for item in items:
        if not isinstance(item, str):
            redacted_items.append(shown(item))
            hides = False
            continue
        flag, given, _ = item.partition("=")
        if hides and not item.startswith("-"):
            redacted_items.append(HIDDEN)
            hides = False
        elif given and _SECRET.search(flag):
            redacted_items.append(f"{flag}={HIDDEN}")
            hides = False
        else:
            redacted_items.append(redacted(item))
            hides = not given and item.startswith("-") and _SECRET.search(flag) is not None
    return redacted_items


def _cut(text: str, limit: int) -> str:
    """`text` up to the last whole line within `limit` bytes, and a line that says so where something is missing."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    note = f"\n# cut: these are the first lines of {len(encoded)} bytes, of which a plan holds {limit}\n"
    kept = encoded[: limit - len(note)].decode(errors="ignore")
    return (kept.rpartition("\n")[0] or kept) + note
