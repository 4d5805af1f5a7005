"""Carries a plan out: `write` for the steps that a caller has chosen, `apply_objects` for all of a part's objects.

`WriteHistory` is what a writer remembers of one owner's objects: recent reverts, which may be a fight, and creations.
Nothing depends on it after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airunway.api import names
from airunway.kube import EventRecorder, changed_fields, soonest
from airunway.owned.objects import Identity, Mark, identity_in, named
from airunway.owned.plan import Action, Plan, Step, conflict_text, plan_of, recreation_text
from airunway.owned.writer import NameTaken, Refused, Writer
from airunway.resource import Resource, annotations_of, is_deleting
from airunway.status.beside import with_beside

# ---------------------------------------------------------------------------------------------- what a writer remembers


FIGHT_WINDOW = timedelta(minutes=2)

FIGHT_REVERTS = 5
"""Number of reverts of one object within the window above which they are a fight with another writer."""

FIGHT_PAUSE = timedelta(seconds=30)
"""Minimum time between reverts during a fight."""

_JUST_MADE = timedelta(seconds=30)
"""Time for which a new object of ours may be missing in another controller's cache."""


@dataclass(frozen=True, kw_only=True)
class Fight:
    """A fight with another writer over one object."""

    retry_after: float
    """Seconds until the next revert is due; zero or less if it is due."""
    expires_in: float
    """Seconds until the fight is over if no further revert follows."""


@dataclass(kw_only=True)
class WriteHistory:
    """The recent writes of one owner's objects."""

    reverts: dict[Identity, deque[datetime]] = field(default_factory=dict)
    """Times of recent reverts, by object."""
    made: dict[Identity, datetime] = field(default_factory=dict)
    """When each object was created, for objects created lately."""

    def note_made(self, obj: Identity, *, now: datetime) -> None:
        """Note that the object was just created; forget objects created long ago."""
        self.made = {one: when for one, when in self.made.items() if now - when < _JUST_MADE}
        self.made[obj] = now

    def just_made(self, obj: Identity, *, now: datetime) -> bool:
        """Whether the object was created so recently that others may not know of it yet."""
        when = self.made.get(obj)
        return when is not None and now - when < _JUST_MADE

    def reverted(self, identity: Identity, now: datetime) -> None:
        """Count a revert of a foreign change to this object."""
        self.reverts.setdefault(identity, deque()).append(now)

    def fights(self, now: datetime) -> dict[Identity, Fight]:
        """The objects with too many reverts within the window."""
        for identity, times in list(self.reverts.items()):
            while times and now - times[0] > FIGHT_WINDOW:
                times.popleft()
            if not times:
                del self.reverts[identity]
        return {
            identity: Fight(
                retry_after=(times[-1] + FIGHT_PAUSE - now).total_seconds(),
                expires_in=max(1.0, (times[0] + FIGHT_WINDOW - now).total_seconds()),
            )
            for identity, times in self.reverts.items()
            if len(times) > FIGHT_REVERTS
        }


def is_drift(step: Step) -> bool:
    """Whether a step writes what was written before because another writer changed the object."""
    live, wanted = step.live, step.wanted
    return step.writes and live is not None and wanted is not None and _hash(live) == _hash(wanted)


def contested(plan: Plan, fights: Mapping[Identity, Fight]) -> tuple[list[Step], list[Step], float | None]:
    """The steps about objects that another writer keeps changing, those of them that wait for a pause, and the seconds
    until one of this changes. Empty for nearly all deployments.
    """
    if not fights:
        return [], [], None
    about = ((step, fights.get(identity_in(step.subject))) for step in plan.steps)
    found = [(step, fight) for step, fight in about if fight is not None]
    held = [step for step, fight in found if is_drift(step) and fight.retry_after > 0]
    again = (fight.retry_after if step in held else fight.expires_in for step, fight in found)
    return [step for step, _ in found], held, min(again, default=None)


def fight_text(steps: Sequence[Step]) -> str:
    """The message where another writer keeps changing what we keep reverting."""
    return (
        f"{', '.join(named(step.subject) for step in steps[:3])} {'was' if len(steps) == 1 else 'were each'} changed "
        f"and reverted more than {FIGHT_REVERTS} times within "
        f"{FIGHT_WINDOW.seconds // 60} minutes; reverts now wait {FIGHT_PAUSE.seconds} s. "
        "The event DriftDetected names the field and who changes it"
    )


def _hash(obj: Resource) -> str | None:
    return annotations_of(obj).get(names.SPEC_HASH)


# ----------------------------------------------------------------------------------------------------------- the writes


CONFLICT_RETRY = 15.0
"""Seconds after which a foreign object with our name is read again: no informer of ours watches it."""


async def write(
    writer: Writer,
    steps: Sequence[Step],
    *,
    owner: Resource,
    events: EventRecorder,
    history: WriteHistory,
    now: datetime,
    looked_up: bool = False,
    refused: list[Refused] | None = None,
    dependent: Collection[Identity] = (),
) -> dict[Identity, Resource]:
    """Create and update in order; returns the answers. One event names everything that was created, even if a later
    write fails.

    A revert of a foreign change is counted in `history` and announced by the event DriftDetected. Raises Refused,
    NameTaken (not if `looked_up`) and KubeError, as `Writer.apply`. With a list `refused`, refusals are added to it,
    and the next object is written: but a `dependent` one only if nothing was refused.
    """
    answers: dict[Identity, Resource] = {}
    made: list[Resource] = []
    try:
        for step in steps:
            wanted, found = step.wanted, step.live
            assert wanted is not None, "what is written is wanted"
            if refused and identity_in(wanted) in dependent:
                continue
            drifted = is_drift(step)
            if drifted:
                history.reverted(identity_in(wanted), now)
                await _announce_drift(writer, wanted, owner=owner, events=events)
            if step.outages:
                note = f"{named(wanted)} is changed in place: {'; '.join(step.outages)}"
                note = with_beside(note, owner)
                events.emit(owner, reason="ServiceInterrupted", note=note, warning=True, action="Update", related=found)
            try:
                answer = await writer.apply(wanted, found, looked_up=looked_up)
            except Refused as refusal:
                if refused is None:
                    raise
                refused.append(refusal)
                continue
            answers[identity_in(wanted)] = answer
            if found is None:
                made.append(answer)
                history.note_made(identity_in(wanted), now=now)
            elif not drifted:
                note = f"Updated {named(wanted)}"
                events.emit(owner, reason="ResourceUpdated", note=note, action="Update", related=answer)
    finally:
        if made:
            main = made[-1]
            others = f" with {', '.join(map(named, made[:-1]))}" if len(made) > 1 else ""
            note = f"Created {named(main)}{others}"
            events.emit(owner, reason="ResourceCreated", note=note, action="Create", related=main)
    return answers


async def _announce_drift(writer: Writer, wanted: Resource, *, owner: Resource, events: EventRecorder) -> None:
    """Emit an event with the changed fields and their managers.

    The object is read from the API server, because the cache drops the managedFields of other managers.
    """
    full = await writer.find(wanted)
    changes = changed_fields(wanted, full, manager=writer.manager) if full is not None else []
    if not changes:
        return
    changed = ", ".join(f"{change.path} (by {change.manager or 'unknown'})" for change in changes[:3])
    note = f"{named(wanted)} was modified directly, reconciling: {changed}"
    events.emit(owner, reason="DriftDetected", note=note, warning=True, action="Revert", related=full)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The result of `apply_objects`."""

    live: Mapping[Identity, Resource]
    """The wanted objects that exist now and are ours."""
    foreign: tuple[Step, ...] = ()
    """Objects that others have under a wanted name; `conflict_text` of a step's objects is the message."""
    fought: tuple[Step, ...] = ()
    """Objects that another writer keeps changing back; `fight_text` is the message."""
    refused: tuple[Refused, ...] = ()
    """Objects that the API server refused to create or to update."""
    again: float | None = None
    """Seconds until the next pass is due; None if only a change makes it due."""
    changed: bool = False
    """Whether an object was created or updated."""

    def hindrance(self, *, owner_kind: str = "ModelDeployment") -> tuple[Resource, str, str] | None:
        """The first object that is not as it shall be, with reason and message: refused, foreign or fought over; None
        if there is none.
        """
        if self.refused:
            return self.refused[0].obj, self.refused[0].policy.reason, str(self.refused[0])
        for step in self.foreign:
            if step.wanted is not None and step.live is not None:
                return step.wanted, "ResourceConflict", conflict_text(step.wanted, step.live, owner_kind=owner_kind)
        if self.fought:
            return self.fought[0].subject, "ResourceConflict", fight_text(self.fought)
        return None


async def apply_objects(
    writer: Writer,
    wanted: Sequence[Resource],
    live: Mapping[Identity, Resource],
    *,
    owner: Resource,
    mark: Mark,
    events: EventRecorder,
    history: WriteHistory,
    now: datetime,
    dependent: Collection[Identity] = (),
) -> Applied:
    """Create and update the `wanted` objects (of `complete`) in their order, then delete all others of the owner with
    this mark.

    `live` has the known objects, as in `plan_of`. A foreign object is never changed. Neither it nor an object that the
    API server refuses keeps the others from being written and deleted, but for the `dependent` ones after a refused
    one. An object that must be replaced is deleted; the pass after its deletion creates it. Raises KubeError.
    """
    manager = writer.manager
    plan = plan_of(wanted, live, owner=owner, mark=mark, manager=manager)
    looked_up, refused = False, list[Refused]()
    while True:
        fought, held, again = contested(plan, history.fights(now))
        writes = [step for step in plan.writes if step not in held]
        try:
            refused.clear()
            answers = await write(
                writer,
                writes,
                owner=owner,
                events=events,
                history=history,
                now=now,
                looked_up=looked_up,
                refused=refused,
                dependent=dependent,
            )
            break
        except NameTaken:  # the caches know our own objects only
            found = await writer.look_up(wanted, live)
            plan = plan_of(wanted, found, owner=owner, mark=mark, manager=manager)
            looked_up = True
    for step in plan.of(Action.REPLACE):
        if not is_deleting(step.subject):
            note = recreation_text(step)
            events.emit(owner, reason="ResourceRecreated", note=note, action="Recreate", related=step.subject)
            await writer.delete(step.subject)
    for step in plan.of(Action.DELETE):
        await writer.delete(step.subject)
    foreign = plan.of(Action.FOREIGN)
    kept = (*plan.of(Action.KEEP), *plan.of(Action.UPDATE))
    return Applied(
        live={**{identity_in(step.subject): step.subject for step in kept}, **answers},
        foreign=foreign,
        fought=tuple(fought),
        refused=tuple(refused),
        again=soonest(CONFLICT_RETRY if foreign else None, again),
        changed=bool(answers),
    )
