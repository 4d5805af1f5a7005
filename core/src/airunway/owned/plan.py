"""Decides what becomes of each object that a writer makes for an owner: create, update, replace, delete or keep. Pure.

Example: a route with another path is one step, ``update HTTPRoute 'llama'``; a route that another owner has under the
same name is a step FOREIGN and is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airunway.kube import needs_apply
from airunway.owned.objects import Identity, Mark, identity_in, is_ours, named
from airunway.resource import Resource, controller_owner, is_deleting, key_of


class Action(StrEnum):
    """The action for an object."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    """Deleted and created again, because a change cannot be made in place."""
    DELETE = "delete"
    KEEP = "keep"
    FOREIGN = "foreign"
    """An object with this name exists and is not ours."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The action for one object."""

    action: Action
    """The action."""
    wanted: Resource | None = None
    """The desired object; None for a deletion."""
    live: Resource | None = None
    """The live object, None for a creation; for a replacement the old one, of any kind and name."""
    primary: bool = False
    """Whether it is the primary object."""
    causes: tuple[str, ...] = ()
    """What changed that cannot be changed in place."""
    outages: tuple[str, ...] = ()
    """Messages about what an update in place, or another primary object instead of the old one, interrupts."""

    @property
    def subject(self) -> Resource:
        """The object that the step is about: the old one if there are two."""
        found = self.live if self.action is not Action.FOREIGN and self.live is not None else self.wanted
        assert found is not None, "a step has at least one object"
        return found

    @property
    def writes(self) -> bool:
        return self.action in (Action.CREATE, Action.UPDATE)

    def text(self) -> str:
        """The action, as a dry run prints it."""
        what = named(self.subject)
        match self.action:
            case Action.REPLACE:
                changed = f"{', '.join(self.causes)} cannot be changed in place"
                return f"delete {what} and make it again ({'; '.join((changed, *self.outages))})"
            case Action.KEEP:
                return f"leave {what} as it is"
            case Action.FOREIGN:
                return f"create {what}"
            case Action.UPDATE if self.outages:
                return f"update {what} ({'; '.join(self.outages)})"
            case _:
                return f"{self.action.value} {what}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps after which exactly the wanted objects exist."""

    steps: tuple[Step, ...]
    """All steps, the primary object's first; the others in the order in which they are created."""

    @property
    def primary(self) -> Step:
        """The first step. Raises IndexError if the plan is empty."""
        return self.steps[0]

    @property
    def writes(self) -> tuple[Step, ...]:
        """The steps that create or update, a primary object last: it refers to the others."""
        found = [step for step in self.steps if step.writes]
        return tuple(sorted(found, key=lambda step: step.primary))

    def of(self, action: Action) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.action is action)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What cannot be seen in the objects themselves. By default every change is made in place and no object is the
    primary one.
    """

    is_primary: Callable[[Resource], bool] | None = None
    """Whether a live object of ours is the primary one; None: no object is. With it, the first wanted object is the
    primary one, and replaces the live one whatever its kind and name.
    """
    recreates: Callable[[Resource, Resource], Sequence[str]] = lambda _live, _wanted: ()
    """Names what changed from the live to the wanted object and cannot be changed in place."""
    interrupts: Callable[[Resource, Resource], Sequence[str]] = lambda _live, _wanted: ()
    """The messages about what an update of the primary object interrupts, or one of another kind or name."""
    role: Callable[[Resource], str] = lambda _obj: ""
    """The role that only one object can have at a time, for example because it holds GPUs; empty: none. An object with
    the role of one that is no longer wanted replaces it.
    """


def plan_of(
    wanted: Sequence[Resource],
    live: Mapping[Identity, Resource],
    *,
    owner: Resource,
    mark: Mark,
    manager: str,
    rules: Rules | None = None,
    unrecoverable: str = "",
) -> Plan:
    """The steps after which exactly the `wanted` objects (of `complete`) exist among those of the owner with this mark.

    `live` has every known object that is ours or has a wanted name, with the managedFields of `manager`.
    `unrecoverable` is the reason why the primary object will never serve again; empty if it may. An object that is
    known only in another version cannot be compared, and is updated.
    """
    rules = rules or Rules()
    ours = {identity: obj for identity, obj in live.items() if is_ours(obj, owner, mark)}
    named_objects = {identity_in(obj): obj for obj in wanted}
    is_primary = rules.is_primary
    old = next((obj for obj in ours.values() if is_primary(obj)), None) if is_primary is not None else None
    obsolete = (obj for identity, obj in ours.items() if identity not in named_objects and obj is not old)
    before = {role: obj for obj in obsolete if (role := rules.role(obj))}
    steps = []
    for position, (identity, obj) in enumerate(named_objects.items()):
        found, primary = live.get(identity), is_primary is not None and position == 0
        if found is not None and identity not in ours:
            steps.append(Step(action=Action.FOREIGN, wanted=obj, live=found, primary=primary))
        elif primary and old is not None and identity_in(old) != identity:
            causes, outages = _moved(old, obj, rules), tuple(rules.interrupts(old, obj))
            step = Step(action=Action.REPLACE, wanted=obj, live=old, primary=True, causes=causes, outages=outages)
            steps.append(step)
        elif found is None and not primary and (gives_way := before.pop(rules.role(obj), None)) is not None:
            causes = _moved(gives_way, obj, rules)
            steps.append(Step(action=Action.REPLACE, wanted=obj, live=gives_way, causes=causes))
        elif found is None:
            steps.append(Step(action=Action.CREATE, wanted=obj, primary=primary))
        elif causes := _causes(found, obj, rules, unrecoverable=unrecoverable if primary else ""):
            steps.append(Step(action=Action.REPLACE, wanted=obj, live=found, primary=primary, causes=causes))
        elif found.get("apiVersion") != obj["apiVersion"] or needs_apply(obj, found, manager=manager):
            outages = tuple(rules.interrupts(found, obj)) if primary else ()
            steps.append(Step(action=Action.UPDATE, wanted=obj, live=found, primary=primary, outages=outages))
        else:
            steps.append(Step(action=Action.KEEP, wanted=obj, live=found, primary=primary))
    replaced = {identity_in(step.live) for step in steps if step.live is not None}
    steps += [
        Step(action=Action.DELETE, live=obj)
        for identity, obj in ours.items()
        if identity not in named_objects and identity not in replaced and obj is not old
    ]
    return Plan(steps=tuple(steps))


def _causes(found: Resource, wanted: Resource, rules: Rules, *, unrecoverable: str) -> tuple[str, ...]:
    if is_deleting(found):
        return ("an object that is being deleted",)
    causes = tuple(rules.recreates(found, wanted))
    return (*causes, unrecoverable) if unrecoverable else causes


def _moved(old: Resource, new: Resource, rules: Rules) -> tuple[str, ...]:
    causes = tuple(rules.recreates(old, new))
    if old.get("kind") != new.get("kind"):
        return (*causes, f"{old.get('kind')} to {new.get('kind')}")
    return (*causes, f"the name {key_of(old).name} to {key_of(new).name}")


def conflict_text(wanted: Resource, found: Resource, *, owner_kind: str = "ModelDeployment") -> str:
    """The message about a foreign object with a name that we need, or that the upstream of a wanted object needs.

    `owner_kind` is the kind of our owner.
    """
    owner = controller_owner(found)
    by = f" (owned by {owner.get('kind')}/{owner.get('name')})" if owner else " (no owner references)"
    kind = found.get("kind") or wanted["kind"]
    what = f"{kind} {key_of(wanted)} exists but is not managed by this {owner_kind}{by}"
    why = "" if kind == wanted["kind"] else f", and the {wanted['kind']} of that name needs a {kind} of its own"
    return f"{what}{why}; rename one of them or delete it"


def recreation_text(step: Step) -> str:
    """The note of the event that an object is replaced."""
    text = f"{named(step.subject)} is deleted and made again: {', '.join(step.causes)} cannot be changed in place"
    return "; ".join((text, *step.outages))
