"""Carrying a plan out: the writing part of a pass (spec rulings 9, 10, 13, 14, 15).

What the API server refuses becomes part of what is told; what it cannot do just now is raised and retried.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.api import names
from airunway.kube import Answer, EventRecorder, changed_fields
from airunway.resource import Resource, annotations_of, dig, is_deleting, key_of, parse_time
from airunway.runtime.answers import Occupied, Refused
from airunway.runtime.decision import Decision
from airunway.runtime.desired import Identity, identity_in, is_ours
from airunway.runtime.memory import FIGHT_PAUSE, FIGHT_REVERTS, FIGHT_WINDOW, Fight, Memory
from airunway.runtime.seen import Seen
from airunway.runtime.steps import Action, Plan, Step, conflict_text, missing_of, named
from airunway.runtime.told import Told
from airunway.runtime.writes import Writer
from airunway.status import Category
from airunway.words import redacted

__all__ = ["Executor", "Outcome", "held_by", "told_of", "unchanged"]

log = logging.getLogger(__name__)

CONFLICT_RETRY = 15.0
"""Seconds after which an object that belongs to somebody else is looked at again: nothing of ours watches it."""

QUIET_REFUSALS = 5
"""How many refusals that name an object just made are taken for an upstream cache that lags (KAITO's webhook)."""

_LINGERS = timedelta(seconds=10)
"""How long an object may take to go before it is said what keeps it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a plan.

    `objects` are ours as they stand now, `primary` among them the one that carries the model, or None. `leaving` is
    said while `primary` is an old object on its way out. `again` is a number of seconds after which to look once more;
    `silent`: nothing is worth reporting yet.
    """

    said: tuple[Told, ...] = ()
    primary: Resource | None = None
    objects: tuple[Resource, ...] = ()
    leaving: Told | None = None
    again: float | None = None
    silent: bool = False


def unchanged(seen: Seen, *said: Told, leaving: Told | None = None, again: float | None = None) -> Outcome:
    """The outcome where ours are still as they were seen."""
    return Outcome(said=said, primary=seen.primary, objects=seen.ours, leaving=leaving, again=again)


class Executor:
    """Carries plans out; holds nothing but its means."""

    def __init__(self, *, writer: Writer, events: EventRecorder) -> None:
        self._writer = writer
        self._events = events

    async def bring(self, seen: Seen, decision: Decision, memory: Memory) -> Outcome:
        """Make the cluster hold the decision's objects and nothing else of ours. Raises Refused and KubeError."""
        assert decision.plan is not None, "only what is wanted can be brought about"
        try:
            return await self._carry_out(seen, decision, decision.plan, memory, sure=False)
        except Occupied:
            assert decision.planned is not None, "what has a plan can be planned again"
            plan = decision.planned(await self._look_up(seen, decision.objects))
            return await self._carry_out(seen, decision, plan, memory, sure=True)

    async def _look_up(self, seen: Seen, wanted: tuple[Resource, ...]) -> dict[Identity, Resource]:
        """What is known, and what the API server has under the names that the caches think free."""
        found = dict(seen.find(wanted))
        for obj in wanted:
            if identity_in(obj) not in found and (there := await self._writer.find(obj)) is not None:
                found[identity_in(obj)] = there
        return found

    async def _carry_out(self, seen: Seen, decision: Decision, plan: Plan, memory: Memory, *, sure: bool) -> Outcome:
        first = plan.primary
        live = {identity_in(step.live): step.live for step in plan.steps if step.live is not None}
        if first.action is Action.FOREIGN:
            return unchanged(seen, _in_the_way(first, first), again=CONFLICT_RETRY)  # what has another name goes on
        if first.action is Action.REPLACE:
            return await self._replace(seen, plan)
        obsolete = plan.of(Action.DELETE)
        if first.action is Action.CREATE and obsolete:
            # What held the model before has to have let go of its GPUs first.
            return await self._clear(seen, obsolete)
        foreign, dependents = plan.of(Action.FOREIGN), plan.of(Action.REPLACE)
        writes = plan.writes
        if foreign or dependents:  # the primary refers to what is not there yet
            writes = tuple(step for step in writes if not step.primary)
        # What somebody else fights over waits; all else goes on.
        fought = _fought(plan, memory.fights(seen.now))
        held = [step for step, fight in fought if _is_drift(step) and fight.truce > 0]
        writes = tuple(step for step in writes if step not in held)
        await self._rehearse(decision, plan, writes, dependents, sure=sure)
        for step in dependents:
            if not is_deleting(step.subject):  # its deletion's event brings the pass that makes it
                self._announce(seen, step)
                await self._writer.delete(step.subject)
        live.update(await self._write(seen, writes, memory, sure=sure))
        prunes = obsolete and not writes and not held and not dependents and decision.prunes
        for step in obsolete if prunes else ():
            await self._writer.delete(step.subject)
        said = [_created(first)]
        if foreign:
            said = [_in_the_way(foreign[0], first)]
        if fought:
            said.append(_fight([step for step, _ in fought]))
        waits = [CONFLICT_RETRY] if foreign else []
        waits += [fight.truce if step in held else fight.peace for step, fight in fought]
        waits += [patience + 1.0 for patience in self._unconfirmed(plan.steps)]
        return _outcome(seen, live, first, said=tuple(said), again=min(waits, default=None))

    def _unconfirmed(self, steps: Iterable[Step]) -> Iterator[float]:
        """Seconds for which our own word on an object counts although the watch has not confirmed it."""
        for wanted in (step.wanted for step in steps if step.wanted is not None):
            objects = self._writer.view(wanted).objects
            if objects.unconfirmed(key_of(wanted)):
                yield objects.patience

    # ---------------------------------------------------------------------------------------------- single objects

    async def _rehearse(
        self, decision: Decision, plan: Plan, writes: tuple[Step, ...], dependents: tuple[Step, ...], *, sure: bool
    ) -> None:
        """What changes something that is there is rehearsed before the first write, and so is all for a schema that
        nobody verified (ruling 15). One write alone is taken or refused as a whole: it rehearses itself.
        """
        rehearsed = (*writes, *(step for step in dependents if not is_deleting(step.subject)))
        exists = any(step.live is not None and step.action is not Action.FOREIGN for step in plan.steps)
        if not rehearsed or (decision.verified and (not exists or (len(rehearsed) == 1 and not dependents))):
            return
        absent = tuple(step.wanted for step in rehearsed if step.live is None and step.wanted is not None)
        await self._writer.rehearse(rehearsed, absent=absent, sure=sure)

    async def _write(
        self, seen: Seen, steps: tuple[Step, ...], memory: Memory, *, sure: bool
    ) -> dict[Identity, Resource]:
        """Create and update, in order; what was made is told in one event, also if the last one failed."""
        answers: dict[Identity, Resource] = {}
        made: list[Resource] = []
        try:
            for step in steps:
                wanted, found = step.wanted, step.live
                assert wanted is not None, "what is written is wanted"
                drifted = _is_drift(step)
                if drifted:
                    memory.reverted(identity_in(wanted), seen.now)
                    await self._tell_drift(seen.deployment, wanted)
                answer = await self._writer.apply(wanted, found, sure=sure)
                answers[identity_in(wanted)] = answer
                if found is None:
                    made.append(answer)
                    memory.note_made(identity_in(wanted), now=seen.now)
                elif not drifted:
                    note = f"Updated {named(wanted)}"
                    self._events.emit(
                        seen.deployment, reason="ResourceUpdated", note=note, action="Update", related=answer
                    )
        finally:
            if made:
                main = made[-1]
                others = f" with {', '.join(map(named, made[:-1]))}" if len(made) > 1 else ""
                note = f"Created {named(main)}{others}"
                self._events.emit(seen.deployment, reason="ResourceCreated", note=note, action="Create", related=main)
        return answers

    async def _tell_drift(self, deployment: Resource, wanted: Resource) -> None:
        """Say which field somebody changed, and who. The cache keeps no foreign managedFields: the object is read."""
        full = await self._writer.find(wanted)
        changes = changed_fields(wanted, full, manager=self._writer.manager) if full is not None else []
        if not changes:
            return
        said = ", ".join(f"{change.path} (by {change.manager or 'unknown'})" for change in changes[:3])
        note = f"{named(wanted)} was modified directly, reconciling: {said}"
        self._events.emit(deployment, reason="DriftDetected", note=note, warning=True, action="Revert", related=full)

    def _announce(self, seen: Seen, step: Step) -> None:
        self._events.emit(
            seen.deployment,
            reason="ResourceRecreated",
            note=_recreation(step),
            action="Recreate",
            related=step.subject,
        )

    # --------------------------------------------------------------------------------------------------- recreating

    async def _replace(self, seen: Seen, plan: Plan) -> Outcome:
        """Say it, then delete; the deletion's event brings the pass that creates (rulings 9, 10, 15)."""
        step, old = plan.primary, plan.primary.subject
        if is_deleting(old):
            text = f"Waiting until the old {named(old)} is gone"
            holding, again = held_by(old, now=seen.now)
            return _leaving(seen, f"{text}; {holding}" if holding else text, again=again)
        text = _recreation(step)
        if not _is_announced(seen.deployment):
            rehearsed = tuple(s for s in plan.steps if s.wanted is not None and s.action is not Action.KEEP)
            absent = tuple(s.wanted for s in rehearsed if s.wanted is not None)
            await self._writer.rehearse(rehearsed, absent=absent)
            self._announce(seen, step)
            return _leaving(seen, text, again=0.0)
        # What the old object refers to goes after it (`_clear`): its operator may need it for taking leave.
        workloads = (other for other in plan.of(Action.DELETE) if self._writer.runs_pods(other.subject))
        for obsolete in (step, *workloads):
            await self._writer.delete(obsolete.subject)
        return _leaving(seen, text)

    async def _clear(self, seen: Seen, obsolete: tuple[Step, ...]) -> Outcome:
        """Before the first object of a new plan: whatever an earlier one needed goes, and is waited for."""
        for step in obsolete:
            await self._writer.delete(step.subject)
        waits = [held_by(step.subject, now=seen.now) for step in obsolete]
        said = "; ".join(text for text, _ in waits if text)
        what = ", ".join(named(step.subject) for step in obsolete[:3])
        text = f"Waiting until {what} {'is' if len(obsolete) == 1 else 'are'} gone"
        again = min((seconds for _, seconds in waits if seconds is not None), default=None)
        told = Told(
            component="Resource", reason="Recreating", message=f"{text}; {said}" if said else text, hinders=True
        )
        return Outcome(said=(told,), again=again)


def told_of(
    seen: Seen, decision: Decision, refused: Refused, memory: Memory, *, attempt: int, left: float | None
) -> Outcome:
    """What a refusal means, which stands until it is tried again: said with the server's own words."""
    young = [
        obj
        for obj in decision.objects
        if identity_in(obj) not in seen.live or memory.just_made(identity_in(obj), now=seen.now)
    ]
    if attempt <= QUIET_REFUSALS and missing_of(refused.message, refused.obj, young) is not None:
        return Outcome(silent=True, again=left)
    message = f"{named(refused.obj)} was refused: {redacted(refused.message)}"
    if not decision.verified and refused.answer in (Answer.SCHEMA, Answer.INVALID):
        told = Told(
            condition="ProviderCompatible",
            reason="UnsupportedSchema",
            message=message,
            hinders=True,
            category=Category.WORKLOAD if seen.primary is None else None,  # Failed, though nothing exists (ruling 13)
        )
    else:
        meaning = refused.meaning
        told = Told(
            condition="ResourceCreated", reason=meaning.reason, message=message, hinders=True, waits=meaning.waits
        )
    return unchanged(seen, told, again=left)


def held_by(obj: Resource, *, now: datetime) -> tuple[str, float | None]:
    """What keeps an object that is being deleted, once it takes long; before that, in how many seconds it does."""
    since = parse_time(dig(obj, "metadata", "deletionTimestamp"))
    finalizers = dig(obj, "metadata", "finalizers") or []
    if since is None or not finalizers:
        return "", None
    left = (since + _LINGERS - now).total_seconds()
    if left > 0:
        return "", left
    return f"{named(obj)} is held by its finalizers: {', '.join(map(str, finalizers))}", None


def _outcome(
    seen: Seen, live: Mapping[Identity, Resource], first: Step, *, said: tuple[Told, ...], again: float | None
) -> Outcome:
    assert first.wanted is not None, "a primary step has a wanted object"
    objects = tuple(obj for obj in live.values() if is_ours(obj, seen.deployment, seen.provider))
    return Outcome(said=said, primary=live.get(identity_in(first.wanted)), objects=objects, again=again)


def _leaving(seen: Seen, message: str, *, again: float | None = None) -> Outcome:
    told = Told(component="Resource", reason="Recreating", message=message, hinders=True)
    return unchanged(seen, told, leaving=told, again=again)


def _recreation(step: Step) -> str:
    return f"{named(step.subject)} is deleted and made again: {', '.join(step.causes)} cannot be changed in place"


def _created(first: Step) -> Told:
    kind = first.wanted["kind"] if first.wanted is not None else "resource"
    return Told(condition="ResourceCreated", ok=True, reason="ResourceCreated", message=f"{kind} created successfully")


def _in_the_way(step: Step, first: Step) -> Told:
    """Somebody else's object. What runs goes on; it hinders where the primary cannot be written because of it."""
    assert step.wanted is not None, "a foreign object is in the way of a wanted one"
    assert step.live is not None, "a foreign object exists"
    return Told(
        condition="ResourceCreated",
        reason="ResourceConflict",
        message=conflict_text(step.wanted, step.live),
        hinders=first.writes or first is step,
        partial=first is not step and first.live is not None,
    )


def _is_drift(step: Step) -> bool:
    """Whether what is to be written was written already, and somebody changed it."""
    live, wanted = step.live, step.wanted
    return step.writes and live is not None and wanted is not None and _hash(live) == _hash(wanted)


def _fought(plan: Plan, fights: Mapping[Identity, Fight]) -> list[tuple[Step, Fight]]:
    """The steps about objects that somebody fights over: of next to all deployments none."""
    if not fights:
        return []
    about = ((step, fights.get(identity_in(step.subject))) for step in plan.steps)
    return [(step, fight) for step, fight in about if fight is not None]


def _fight(fought: Sequence[Step]) -> Told:
    """What to say where somebody else keeps changing what we keep reverting."""
    message = (
        f"{', '.join(named(step.subject) for step in fought[:3])} {'was' if len(fought) == 1 else 'were each'} changed "
        f"and reverted more than {FIGHT_REVERTS} times within "
        f"{FIGHT_WINDOW.seconds // 60} minutes; reverts now wait {FIGHT_PAUSE.seconds} s. "
        "The event DriftDetected names the field and who changes it"
    )
    return Told(condition="DriftFight", ok=True, reason="RevertedTooOften", message=message)


def _is_announced(deployment: Resource) -> bool:
    """Whether the status has said, for this very generation, that the upstream object is made anew."""
    status, generation = deployment.get("status") or {}, dig(deployment, "metadata", "generation")
    return (status.get("reason"), status.get("observedGeneration")) == ("Recreating", generation)


def _hash(obj: Resource) -> str | None:
    return annotations_of(obj).get(names.SPEC_HASH)
