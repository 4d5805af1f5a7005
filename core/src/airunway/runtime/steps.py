"""The plan of a pass: what has to become of each object of a deployment. Pure.

One list, which a dry run prints and a pass carries out (spec/contract.md, "Inside the runtime").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airunway.api import names
from airunway.kube import needs_apply
from airunway.resource import Resource, controller_owner, digest, is_deleting, key_of
from airunway.runtime.desired import Identity, identity_in, is_ours, is_primary, recreate_causes

__all__ = [
    "Action",
    "Plan",
    "Step",
    "conflict_text",
    "missing_of",
    "named",
    "plan_of",
    "trial_of",
]


_TRIAL_DIGITS = 8


class Action(StrEnum):
    """What becomes of an object."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    """Deleted, waited for, and made anew: something of it cannot be changed in place."""
    DELETE = "delete"
    KEEP = "keep"
    FOREIGN = "foreign"
    """Somebody else's object has the name."""


def named(obj: Resource) -> str:
    return f"{obj.get('kind')} '{key_of(obj).name}'"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One object: `wanted` is None for a deletion, `live` for a creation. `causes` are those of a replacement.

    The step of a primary whose old object has another kind or name has that as `live`.
    """

    action: Action
    wanted: Resource | None = None
    live: Resource | None = None
    primary: bool = False
    causes: tuple[str, ...] = ()

    @property
    def subject(self) -> Resource:
        """The object that the step is about: the old one where there are two."""
        found = self.live if self.action is not Action.FOREIGN and self.live is not None else self.wanted
        assert found is not None, "a step has at least one object"
        return found

    @property
    def writes(self) -> bool:
        return self.action in (Action.CREATE, Action.UPDATE)

    def text(self) -> str:
        """What would be done, in words."""
        what = named(self.subject)
        match self.action:
            case Action.REPLACE:
                return f"delete {what} and make it again ({', '.join(self.causes)} cannot be changed in place)"
            case Action.KEEP:
                return f"leave {what} as it is"
            case Action.FOREIGN:
                return f"create {what}"
            case _:
                return f"{self.action.value} {what}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All steps, the primary's first; those after it in the order in which they are to be made."""

    steps: tuple[Step, ...]

    @property
    def primary(self) -> Step:
        return self.steps[0]

    @property
    def writes(self) -> tuple[Step, ...]:
        """What is created or updated, the primary last: it refers to the others."""
        found = [step for step in self.steps if step.writes]
        return tuple(sorted(found, key=lambda step: step.primary))

    def of(self, action: Action) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.action is action)


def plan_of(
    desired: Sequence[Resource],
    live: Mapping[Identity, Resource],
    *,
    deployment: Resource,
    provider: str,
    dead: str = "",
) -> Plan:
    """What has to be done so that exactly `desired` (primary first) is there of the provider for the deployment.

    `live` has everything known to exist: what is ours, and what has a name that is wanted. `dead` says why the primary
    object will never serve again. An object that is known in another version only cannot be compared: it is updated.
    """
    manager = names.provider_manager(provider)
    ours = {identity: obj for identity, obj in live.items() if is_ours(obj, deployment, provider)}
    wanted = {identity_in(obj): obj for obj in desired}
    old = next((obj for obj in ours.values() if is_primary(obj)), None)
    steps = []
    for position, (identity, obj) in enumerate(wanted.items()):
        found, primary = live.get(identity), position == 0
        if found is not None and identity not in ours:
            steps.append(Step(action=Action.FOREIGN, wanted=obj, live=found, primary=primary))
        elif primary and old is not None and identity_in(old) != identity:
            steps.append(Step(action=Action.REPLACE, wanted=obj, live=old, primary=True, causes=_moved(old, obj)))
        elif found is None:
            steps.append(Step(action=Action.CREATE, wanted=obj, primary=primary))
        elif causes := _causes(found, obj, dead=dead if primary else ""):
            steps.append(Step(action=Action.REPLACE, wanted=obj, live=found, primary=primary, causes=causes))
        elif found.get("apiVersion") != obj["apiVersion"] or needs_apply(obj, found, manager=manager):
            steps.append(Step(action=Action.UPDATE, wanted=obj, live=found, primary=primary))
        else:
            steps.append(Step(action=Action.KEEP, wanted=obj, live=found, primary=primary))
    steps += [
        Step(action=Action.DELETE, live=obj)
        for identity, obj in ours.items()
        if identity not in wanted and obj is not old
    ]
    return Plan(steps=tuple(steps))


def _causes(found: Resource, wanted: Resource, *, dead: str) -> tuple[str, ...]:
    if is_deleting(found):
        return ("an object that is being deleted",)
    causes = tuple(recreate_causes(found, wanted))
    return (*causes, dead) if dead else causes


def _moved(old: Resource, new: Resource) -> tuple[str, ...]:
    causes = recreate_causes(old, new)
    if old.get("kind") != new.get("kind"):
        return (*causes, f"{old.get('kind')} to {new.get('kind')}")
    return (*causes, f"the name {key_of(old).name} to {key_of(new).name}")


def conflict_text(wanted: Resource, found: Resource) -> str:
    """What to say of an object of somebody else that has the name which we need."""
    owner = controller_owner(found)
    by = f" (owned by {owner.get('kind')}/{owner.get('name')})" if owner else " (no owner references)"
    what = f"{wanted['kind']} {key_of(wanted)} exists but is not managed by this ModelDeployment{by}"
    return f"{what}; rename one of them or delete it"


def missing_of(message: str, refused: Resource, absent: Iterable[Resource]) -> Resource | None:
    """The object of the plan that does not exist yet and that a refusal names, if it names one.

    Only the exact name counts, and never the refused object's own: a Service is often called like its primary. But that
    what is to be made is itself "not found" means something that it refers to: so the API server answers for a binding
    whose Role is still to come.
    """
    own = identity_in(refused)
    others = [obj for obj in absent if identity_in(obj) != own]
    if others and _says_missing(message, own):
        return others[0]
    for obj in others:
        other = identity_in(obj)
        named = rf"(?<![\w.-]){re.escape(other.name)}(?![\w-]|\.\w)"
        if _says_missing(message, other) or (other.name != own.name and re.search(named, message)):
            return obj
    return None


def _says_missing(message: str, what: Identity) -> bool:
    """Whether the API server says that it does not find exactly this object."""
    group = rf"\.{re.escape(what.group)}" if what.group else ""
    said = rf'(?<![\w.-]){what.kind.lower()}(s|es)?{group} "{re.escape(what.name)}" not found'
    return re.search(said, message) is not None


def trial_of(obj: Resource) -> Resource:
    """The object under another name of the same length, for the dry run of one whose name the old object still has.

    Upstreams limit names together with others that they derive: a longer one could be refused for its length alone.
    """
    name = key_of(obj).name
    kept = max(0, len(name) - _TRIAL_DIGITS)
    trial = f"{name[:kept]}{'x' if not kept else ''}{digest(['trial', name])}"[: len(name)]
    if trial == name:
        trial = f"{name[:-1]}{'z' if name[-1] != 'z' else 'y'}"
    return {**obj, "metadata": {**obj["metadata"], "name": trial}}
