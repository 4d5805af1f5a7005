"""What an edit does to a deployment's objects: each object's step, and the lines that change."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import yaml

from airunway.api import names
from airunway.redaction import redacted
from airunway.resource import LAST_APPLIED, Resource, dig
from airunway.sdk.pods import pod_specs, pod_templates
from airunway.unseen import Unseen
from airunway.view.base import ViewModel, line, word

MOST_LINES = 2000
"""Lines of one object's diff."""

CHANGES = ("create", "update", "recreate", "delete", "conflict")
"""The actions that are differences; the other one is ``keep``."""

_HIDDEN = "***"
_NOT_SHOWN = ("status", "managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")
_ANNOTATIONS_NOT_SHOWN = (
    LAST_APPLIED,
    names.REVISION,
    names.WRITTEN_FOR,
    names.SPEC_HASH,
    names.DEPLOYMENT_UID,
    names.REPLACE_ON_CHANGE,
    names.INTERRUPTS_ON_CHANGE,
)
"""What kubectl and AI Runway remember on an object."""


@dataclass(frozen=True, kw_only=True)
class PlanStep(ViewModel):
    """What happens to one object."""

    action: str
    """``create``, ``update``, ``recreate`` (deleted and created again), ``delete``, ``keep``, or ``conflict``: another
    owner has an object of this name."""
    api_version: str
    """Its API version, for example ``kaito.sh/v1beta1``."""
    kind: str
    """Its kind."""
    name: str
    """Its name; of a recreated object that of the old one."""
    becomes: str
    """``Kind/name`` of the object that replaces it, where that is another one; empty otherwise."""
    primary: bool
    """Whether it is the object that runs the model."""
    restarts: bool | None
    """Whether pods of it start anew: it is recreated, or a pod template in it changes. None: it runs the model without
    a pod template, so its operator decides."""
    only_records: bool
    """Whether only labels and annotations of the object itself change."""
    causes: tuple[str, ...]
    """What changes that cannot be changed in place."""
    interrupts: tuple[str, ...]
    """What the step interrupts, as the provider says it, or `OUTAGE`."""
    diff: tuple[str, ...]
    """Unified diff of its YAML, from what was applied last to what will be; credentials are hidden."""

    @property
    def changes(self) -> bool:
        return self.action in CHANGES


@dataclass(frozen=True, kw_only=True)
class DeploymentPlan(ViewModel):
    """What an edited ModelDeployment makes of itself and of the objects below it."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    engine: str
    """The engine that it gets; empty if none."""
    provider: str
    """The provider that it gets; empty if none."""
    provider_before: str
    """The provider that has it now; empty if none."""
    deployment: PlanStep
    """The ModelDeployment itself, as the API server would store it."""
    steps: tuple[PlanStep, ...]
    """The upstream objects, the primary one first."""
    waits: tuple[str, ...]
    """Why nothing, or not all, is written upstream, as sentences."""
    warnings: tuple[str, ...]
    """Warnings of the provider."""
    notes: tuple[str, ...]
    """What else follows from the edit, and what was assumed."""
    unseen: tuple[Unseen, ...]
    """What could not be planned or read."""

    @property
    def differs(self) -> bool:
        """Whether anything is created, changed or deleted."""
        return self.deployment.changes or any(step.changes for step in self.steps)


def plan_step(
    action: str,
    before: Resource | None,
    after: Resource | None,
    *,
    primary: bool = False,
    causes: Sequence[str] = (),
    interrupts: Sequence[str] = (),
) -> PlanStep:
    """Returns the step of an object from its content `before` (None: it does not exist) to that `after` (None: it is
    deleted). The first has only what is to be compared. Raises ValueError if there is neither.
    """
    named = before if before is not None and action != "conflict" else after
    if named is None:
        raise ValueError("a step needs an object")
    updates = action == "update" and before is not None and after is not None
    restarts = _restarts(before, after, primary=primary) if updates else action == "recreate"
    outage = (OUTAGE,) if primary and restarts and _is_alone(before, recreated=not updates) else ()
    return PlanStep(
        action=action,
        api_version=word((after or named).get("apiVersion")),
        kind=word(named.get("kind")),
        name=word(dig(named, "metadata", "name")),
        becomes=_becomes(before, after) if action == "recreate" else "",
        primary=primary,
        restarts=restarts,
        only_records=updates and _content(before) == _content(after),
        causes=tuple(map(line, causes)),
        interrupts=tuple(map(line, interrupts)) or outage,
        diff=_diff(before, after) if action in CHANGES and action != "conflict" else (),
    )


def edit_step(live: Resource | None, stored: Resource) -> PlanStep:
    """Returns the step of the edited object itself, from the live one (None: there is none) to what would be stored."""
    before, after = ({key: obj[key] for key in obj if key != "status"} if obj else None for obj in (live, stored))
    action = "create" if before is None else "keep" if _shown(before) == _shown(after) else "update"
    return replace(plan_step(action, before, after), restarts=False)


def summary_of(plan: DeploymentPlan) -> str:
    """Returns what a plan comes to, as words."""
    if not plan.differs:
        return "no difference"
    counts = Counter(step.action for step in plan.steps if step.changes)
    if not counts:
        return "nothing changes upstream" if not plan.unseen else "what changes upstream is not known here"
    text = ", ".join(f"{action} {count}" for action, count in counts.items())
    restarts = [step.restarts for step in plan.steps if step.action != "create"]
    if any(restarts):
        outage = "; outage" if any(step.interrupts for step in plan.steps) else ""
        return f"{text}; pods restart{outage}"
    return f"{text}; pods may restart" if None in restarts else f"{text}; no pod restarts"


def step_words(step: PlanStep) -> str:
    """Returns what happens to an object, as words."""
    match step.action:
        case "create":
            text = "is created"
        case "delete":
            text = "is deleted"
        case "recreate":
            instead = f"{step.becomes} is created instead" if step.becomes else "created again"
            text = f"is deleted and {instead}: {', '.join(step.causes)} cannot be changed in place"
        case "keep":
            text = "stays as it is"
        case "conflict":
            text = "exists, and belongs to another owner"
        case _ if step.only_records:
            text = "is updated: labels and annotations only"
        case _:
            text = "is updated in place"
    if step.action == "update" and step.restarts:
        text += "; its pods restart"
    if step.action == "update" and step.restarts is None:
        text += "; it has no pod template, its operator may restart pods"
    return "; ".join((text, *step.interrupts))


def _becomes(before: Resource | None, after: Resource | None) -> str:
    old, new = (f"{dig(obj, 'kind')}/{dig(obj, 'metadata', 'name')}" for obj in (before, after))
    return line(new) if new != old else ""


def _restarts(before: Resource | None, after: Resource | None, *, primary: bool) -> bool | None:
    pods = _pods(before), _pods(after)
    if primary and not any(pods) and _content(before) != _content(after):
        return None
    return pods[0] != pods[1]


OUTAGE = "outage: nothing is served until the new pod is ready, as the only one there is ends first"
"""What a restart of a model with one replica interrupts."""


def _is_alone(before: Resource | None, *, recreated: bool) -> bool:
    """Whether no other pod serves while the pods of an object start anew: it is recreated, or it has one replica, which
    no new one may stand beside.
    """
    replicas = dig(before, "spec", "replicas", default=1)
    if recreated or replicas != 1:
        return recreated and replicas != 0
    strategy = dig(before, "spec", "strategy", default={})
    if dig(before, "kind") != "Deployment" or dig(strategy, "type") == "Recreate":
        return True
    return dig(strategy, "rollingUpdate", "maxSurge", default="25%") in (0, "0", "0%")


def _pods(obj: Resource | None) -> list[Resource]:
    """What pods are made from. A template contains its pod spec; specs also stand outside of templates."""
    return [*pod_templates(obj), *pod_specs(obj)]


def _content(obj: Resource | None) -> Resource:
    return {key: value for key, value in (obj or {}).items() if key not in ("metadata", "status")}


# ----------------------------------------------------------------------------------------------------------- the diff


def _diff(before: Resource | None, after: Resource | None) -> tuple[str, ...]:
    before, after = _aligned(_shown(before), after), _shown(after)
    shown = [_masked(obj, other) for obj, other in ((before, after), (after, before))]
    old, new = (_lines(obj, mark) for obj, mark in zip(shown, (" (before)", " (after)"), strict=True))
    lines = difflib.unified_diff(old, new, fromfile="now", tofile="then", lineterm="", n=3)
    found = list(islice(lines, MOST_LINES + 1))
    if len(found) > MOST_LINES:
        found[MOST_LINES] = f"(more than {MOST_LINES} lines: the others are left out)"
    return tuple(line(each) for each in found)


def _aligned(node: Any, model: Any) -> Any:
    """`node` with the keys of each object in the order that they have in `model`: another order is no difference."""
    if isinstance(node, dict):
        of = model if isinstance(model, dict) else {}
        keys = [*(key for key in of if key in node), *(key for key in node if key not in of)]
        return {key: _aligned(node[key], of.get(key)) for key in keys}
    if isinstance(node, list):
        partners = _partners(node, model if isinstance(model, list) else [])
        return [_aligned(item, partner) for item, partner in zip(node, partners, strict=True)]
    return node


def _lines(obj: Any, mark: str) -> list[str]:
    if obj is None:
        return []
    text = yaml.safe_dump(_marked(obj, mark), sort_keys=False, allow_unicode=True, width=2**16)
    return str(text).splitlines()


def _shown(obj: Resource | None) -> Resource | None:
    """The object without what the server keeps for itself."""
    if obj is None:
        return None
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _NOT_SHOWN}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {
            key: value for key, value in annotations.items() if key not in _ANNOTATIONS_NOT_SHOWN
        }
    head: Resource = {key: obj[key] for key in ("apiVersion", "kind") if key in obj}
    rest = {key: value for key, value in obj.items() if key not in (*_NOT_SHOWN, "metadata", *head)}
    return {**head, "metadata": metadata, **rest}


class _Secret:
    """A hidden value; `differs`: the other object has another one in its place."""

    def __init__(self, *, differs: bool) -> None:
        self.differs = differs


def _masked(node: Any, other: Any, name: str = "") -> Any:
    """`node` with credentials hidden; `other` is the value in the same place of the other object, `name` its key."""
    if isinstance(node, dict):
        named = node.get("name") if isinstance(node.get("name"), str) and "value" in node else ""
        of = other if isinstance(other, dict) else {}
        return {
            key: _masked(value, of.get(key), str(named) if named and key == "value" else str(key))
            for key, value in node.items()
        }
    if isinstance(node, list):
        partners = list(_partners(node, other if isinstance(other, list) else []))
        flags = ["", *(each.lstrip("-") if isinstance(each, str) and each.startswith("-") else "" for each in node)]
        return [
            _masked(item, partner, flag if isinstance(item, str) and not item.startswith("-") else name)
            for item, partner, flag in zip(node, partners, flags, strict=False)
        ]
    return _hidden(node, other, name) if isinstance(node, str) else node


def _partners(items: list[Any], others: list[Any]) -> Iterator[Any]:
    """For each item the one that it is compared with: of the same name, otherwise in the same position."""
    by_name = {each["name"]: each for each in others if isinstance(each, dict) and isinstance(each.get("name"), str)}
    for position, item in enumerate(items):
        called = item.get("name") if isinstance(item, dict) else None
        if isinstance(called, str):
            yield by_name.get(called)
        else:
            yield others[position] if position < len(others) else None


def _hidden(text: str, other: Any, name: str) -> Any:
    prefix = f"{name}="
    clean = redacted(prefix + text)
    if clean == prefix + text:
        return text
    if clean.startswith(prefix) and clean != prefix + _HIDDEN:
        rest = clean.removeprefix(prefix)
        same = isinstance(other, str) and redacted(prefix + other) == clean and other != text
        return rest if not same else _Secret(differs=True)
    return _Secret(differs=other != text)


def _marked(node: Any, mark: str) -> Any:
    """`node` with ``***`` for each secret, and whether it is the one before or after where it changes."""
    if isinstance(node, _Secret):
        return _HIDDEN + (mark if node.differs else "")
    if isinstance(node, dict):
        return {key: _marked(value, mark) for key, value in node.items()}
    return [_marked(value, mark) for value in node] if isinstance(node, list) else node
