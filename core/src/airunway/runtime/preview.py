"""Publishes what a pass would write, checked by server-side dry run, and changes nothing upstream.

The annotation ``airunway.ai/dry-run: "true"`` asks for it (docs/architecture.md). The plan stands in the ConfigMap
``<name>-airunway-plan``, which the deployment owns; it is deleted with the deployment or with the annotation. Users may
be allowed to read ConfigMaps and not the objects that the plan describes. So the values of environment variables and of
arguments whose name suggests a secret are left out, and every other text is redacted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from airunway.api import names
from airunway.kube import CONFIG_MAP, NotFound, needs_apply
from airunway.owned.objects import named
from airunway.owned.plan import Action, Plan, Step, conflict_text
from airunway.owned.writer import NEVER, Refused, Writer
from airunway.redaction import redacted
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, owner_reference, uid_of
from airunway.runtime.apply import rehearse
from airunway.runtime.report import StepResult
from airunway.runtime.state import ClusterState
from airunway.status.beside import beside


def plan_name(deployment: Resource) -> str:
    return f"{deployment['metadata']['name']}{names.PLAN_SUFFIX}"


async def publish(writer: Writer, state: ClusterState, objects: Sequence[Resource], plan: Plan | None) -> StepResult:
    """Publish what would be done, checked by server-side dry run; the result reports whether the API server would
    accept it.

    Without a `plan` every object would be deleted (``spec.suspend``).
    """
    steps = plan.steps if plan is not None else tuple(Step(action=Action.DELETE, live=obj) for obj in state.ours)
    refusals = [refusal for step in steps if (refusal := await _refusal(writer, step, steps))]
    actions = [step.text() for step in steps]
    interrupted = plan is not None and any(step.action is Action.REPLACE or step.outages for step in steps)
    way = f"; {beside(state.deployment)}" if interrupted and beside(state.deployment) else ""
    in_the_way = await _write(writer, state.deployment, objects, actions=actions, refusals=refusals)
    would = f"Would {'; '.join(actions) or 'nothing'}"
    if in_the_way:
        return _result("ResourceConflict", f"{would}; not published: {in_the_way}", ok=False)
    message = f"{would} (see ConfigMap {plan_name(state.deployment)})"
    message += f"; refused: {redacted(refusals[0])}" if refusals else "; the API server accepts it"
    return _result("WouldBeRefused" if refusals else "Planned", f"{message}{way}")


async def withdraw(writer: Writer, deployment: Resource) -> None:
    """Delete the plan of a deployment that is no longer a dry run. A deployment without the condition DryRun has no
    plan.

    A ConfigMap of that name that the deployment does not own stays.
    """
    if condition_of(deployment, "DryRun") is None:
        return
    try:
        published = await writer.client.get(CONFIG_MAP, _key(deployment))
        if _belongs(published, deployment):
            await writer.client.delete(CONFIG_MAP, _key(deployment), uid=uid_of(published))
    except NotFound:
        return


async def _refusal(writer: Writer, step: Step, steps: Sequence[Step]) -> str:
    """Why the API server would refuse the step, or which object has the name already; empty if neither."""
    if step.wanted is None or step.action is Action.KEEP:
        return ""
    if step.action is Action.FOREIGN and step.live is not None:
        return conflict_text(step.wanted, step.live)
    if step.action is Action.CREATE and (found := await writer.find(step.wanted)) is not None:
        return conflict_text(step.wanted, found)
    absent = tuple(other.wanted for other in steps if other.live is None and other.wanted is not None)
    try:
        await rehearse(writer, (step,), absent=absent, looked_up=True)
    except Refused as refused:
        return f"{named(refused.obj)}: {refused.message}"
    return ""


async def _write(
    writer: Writer,
    deployment: Resource,
    objects: Sequence[Resource],
    *,
    actions: Sequence[str],
    refusals: Sequence[str],
) -> str:
    """Publish the plan; returns which foreign object has the ConfigMap's name already (it is not changed), or an
    empty text.

    Raises Conflict if a ConfigMap of that name is created or replaced at the same time.
    """
    published = await writer.client.find(CONFIG_MAP, _key(deployment))
    # No managed-by label: the plan is not one of the deployment's objects, and must not be pruned like one.
    plan = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": plan_name(deployment),
            "namespace": deployment["metadata"]["namespace"],
            "labels": {names.PROVIDER: names.provider_of_manager(writer.manager)},
            "ownerReferences": [owner_reference(deployment)],
            **({"resourceVersion": NEVER} if published is None else {"uid": uid_of(published)}),
        },
        "data": plan_data(objects, actions=actions, refusals=refusals),
    }
    if published is not None and not _belongs(published, deployment):
        return conflict_text(plan, published)
    if needs_apply(plan, published, manager=writer.manager):
        await writer.client.apply(CONFIG_MAP, plan, manager=writer.manager, force=True)
    return ""


def _result(reason: str, message: str, *, ok: bool = True) -> StepResult:
    return StepResult(condition="DryRun", ok=ok, reason=reason, message=message)


def _belongs(plan: Resource, deployment: Resource) -> bool:
    references = dig(plan, "metadata", "ownerReferences") or []
    return any(dig(reference, "uid") == uid_of(deployment) for reference in references)


def _key(deployment: Resource) -> ObjectKey:
    return ObjectKey(key_of(deployment).namespace, plan_name(deployment))


# ----------------------------------------------------------------------------------------------- what may be published


HIDDEN = "***"

PLAN_LIMIT = 900 * 1024
"""Maximum bytes of a plan: the API server accepts 1 MiB of data in a ConfigMap, and etcd 1.5 MiB per object."""

_NOTES_LIMIT = 64 * 1024
"""Maximum bytes of the actions, and of the refusals."""

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
    """`node` without secrets; `name` is its key."""
    if isinstance(node, Mapping):
        if name in _ENVIRONMENTS:  # a map from name to value, as in Ray's runtime_env
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
    """The arguments, with the value of ``--api-key=value`` and of ``--api-key value`` hidden."""
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
    """`text` up to the last whole line within `limit` bytes; a last line notes the cut if there is one."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    note = f"\n# cut: these are the first lines of {len(encoded)} bytes, of which a plan holds {limit}\n"
    kept = encoded[: limit - len(note)].decode(errors="ignore")
    return (kept.rpartition("\n")[0] or kept) + note
