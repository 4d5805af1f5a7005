"""Bringing the upstream objects of one deployment to what was translated: the writing half of a pass.

Ownership check, recreate or apply, pruning (spec rulings 9, 10, 13, 14, 15). What the API server refuses becomes part
of the answer; what it cannot do just now is raised and retried by the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.kube import (
    Answer,
    ApiError,
    Client,
    Conflict,
    EventRecorder,
    Kind,
    NotFound,
    changed_fields,
    needs_apply,
)
from airunway.plugins.contract import Upstream
from airunway.resource import ObjectKey, Resource, annotations_of, dig, is_deleting, key_of, uid_of
from airunway.runtime.answers import MEANINGS, Meaning, is_refusal
from airunway.runtime.fights import Fights
from airunway.runtime.lookup import cached, conflict_text, held_by, named, view_of
from airunway.runtime.lookup import live as look_up
from airunway.runtime.plan import is_ours, recreate_causes
from airunway.runtime.report import Done
from airunway.runtime.surroundings import Surroundings, UpstreamView
from airunway.status import Category, Fault
from airunway.words import redacted

__all__ = ["NEVER", "Applied", "Applier", "Refusal", "RefusedError", "trial_of"]

log = logging.getLogger(__name__)

CONFLICT_RETRY = 15.0
"""Seconds after which an object that belongs to somebody else is looked at again: nothing of ours watches it."""

NEVER = "1"
"""A resourceVersion that no object has: an etcd counts from one, and that is its state with nothing in it."""

QUIET_REFUSALS = 5
"""How many refusals that name an object just made are taken for an upstream cache that lags (KAITO's webhook)."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What became of the objects. `silent`: nothing to report yet; `again`: seconds after which to try once more.

    `fight` is set while somebody else keeps changing what we keep reverting; `recreating` while `primary` is the old
    object, on its way out.
    """

    primary: Resource | None = None
    others: tuple[Resource, ...] = ()
    done: Done | None = None
    incompatible: Done | None = None
    faults: tuple[Fault, ...] = ()
    again: float | None = None
    silent: bool = False
    fight: Done | None = None
    recreating: bool = False


class Applier:
    """Applies plans; remembers when each deployment's objects were reverted."""

    def __init__(self, *, client: Client, around: Surroundings, events: EventRecorder, manager: str) -> None:
        self._client = client
        self._around = around
        self._events = events
        self._manager = manager
        self._fights = Fights(around.clock)

    def forget(self, deployment: ObjectKey) -> None:
        """Drop what is remembered of a deployment that is gone or not ours any more."""
        self._fights.forget(deployment)

    async def bring(self, deployment: Resource, desired: Sequence[Resource], upstream: Upstream) -> Applied:
        """Make the cluster hold `desired` (primary first) and nothing else of ours for this deployment.

        Raises RefusedError where the server does not take an object as it is, KubeError where it cannot do it now.
        """
        live = self.known(desired)
        try:
            return await self._bring(deployment, desired, live, upstream, sure=False)
        except _OccupiedError:
            live = [await look_up(obj, self._view(obj), self._client) for obj in desired]
            return await self._bring(deployment, desired, live, upstream, sure=True)

    def known(self, desired: Sequence[Resource]) -> list[Resource | None]:
        """The objects as far as they are known without asking; None where one is not there."""
        return [cached(obj, self._view(obj)) for obj in desired]

    async def _bring(
        self,
        deployment: Resource,
        desired: Sequence[Resource],
        live: list[Resource | None],
        upstream: Upstream,
        *,
        sure: bool,
    ) -> Applied:
        """One attempt, from `live` as it is known; what is written goes into `live`.

        Raises _OccupiedError where something has a name that `live` says is free; Conflict if that was `sure`.
        """
        for wanted, found in zip(desired, live, strict=True):
            if found is not None and not is_ours(found, deployment):
                return _foreign(wanted, found)
        primary = live[0]
        if primary is not None and is_deleting(primary):
            return self._leaving(primary)
        if primary is not None and (causes := recreate_causes(primary, desired[0])):
            return await self._recreate(deployment, primary, desired, causes)
        pending = [
            position
            for position, (wanted, found) in enumerate(zip(desired, live, strict=True))
            if needs_apply(wanted, found, manager=self._manager)
        ]
        fight = self._fights.told(key_of(deployment), named(desired[0]))
        if fight is not None and pending and (pause := self._fights.truce(key_of(deployment))) > 0:
            return Applied(
                primary=primary,
                others=tuple(obj for obj in live[1:] if obj is not None),
                done=_created(desired[0]),
                again=pause,
                fight=fight,
            )
        if pending:
            await self._rehearse([desired[i] for i in pending], [live[i] for i in pending], upstream, sure=sure)
        for position in sorted(pending, key=lambda i: i == 0):  # the primary last: it refers to the others
            live[position] = await self._write(deployment, desired[position], live[position], sure=sure)
        await self._prune(deployment, desired)
        view = self._view(desired[0])
        unconfirmed = view.objects.unconfirmed(key_of(desired[0]))
        return Applied(
            primary=live[0],
            others=tuple(obj for obj in live[1:] if obj is not None),
            done=_created(desired[0]),
            again=self._fights.until_peace(key_of(deployment))
            if fight
            else view.objects.patience + 1.0
            if unconfirmed
            else None,
            fight=fight,
        )

    # ------------------------------------------------------------------------------------------------- one object

    def _view(self, obj: Resource) -> UpstreamView:
        view = view_of(obj, self._around)
        if view is None:
            what = f"{obj['apiVersion']} {obj['kind']}"
            raise RefusedError(obj, f"{what} is not in the provider's manifest, or the cluster does not serve it")
        return view

    async def _apply(
        self, obj: Resource, found: Resource | None, *, sure: bool = False, dry_run: bool = False
    ) -> Resource:
        """Apply by force: onto `found` and no other object, or, where that is None, only if there is none.

        The uid of what was checked goes along: an object that was deleted since is not made again by a pass that knows
        an old state, and one that somebody else made is not taken over (Conflict). Where there is to be none, no object
        ever has the resourceVersion that is asked for, so that the API server answers with a conflict if there is one:
        _OccupiedError, or Conflict if that was `sure`.
        """
        precondition = {"resourceVersion": NEVER} if found is None else {"uid": uid_of(found)}
        body = {**obj, "metadata": {**obj["metadata"], **precondition}}
        try:
            return await self._client.apply(
                self._view(obj).kind, body, manager=self._manager, force=True, dry_run=dry_run
            )
        except Conflict as error:
            if found is None and not sure:
                raise _OccupiedError from error
            raise

    async def _write(self, deployment: Resource, wanted: Resource, found: Resource | None, *, sure: bool) -> Resource:
        view = self._view(wanted)
        drifted = found is not None and _hash(found) == _hash(wanted)
        if drifted:
            self._fights.reverted(key_of(deployment))
            await self._tell_drift(deployment, wanted, view.kind)
        try:
            answer = await self._apply(wanted, found, sure=sure)
        except ApiError as error:
            if is_refusal(error):
                raise RefusedError(wanted, error.message, error.answer) from error
            raise
        view.objects.note(answer)
        if found is None:
            note = f"Created {named(wanted)}"
            self._events.emit(deployment, reason="ResourceCreated", note=note, action="Create", related=answer)
        elif not drifted:
            note = f"Updated {named(wanted)}"
            self._events.emit(deployment, reason="ResourceUpdated", note=note, action="Update", related=answer)
        return answer

    async def _tell_drift(self, deployment: Resource, wanted: Resource, kind: Kind) -> None:
        """Say which field somebody changed, and who. The cache keeps no foreign managedFields: the object is read."""
        try:
            full = await self._client.get(kind, key_of(wanted))
        except NotFound:
            return
        changes = changed_fields(wanted, full, manager=self._manager)
        if not changes:
            return
        said = ", ".join(f"{change.path} (by {change.manager or 'unknown'})" for change in changes[:3])
        note = f"{named(wanted)} was modified directly, reconciling: {said}"
        self._events.emit(deployment, reason="DriftDetected", note=note, warning=True, action="Revert", related=full)

    async def _rehearse(
        self, wanted: Sequence[Resource], found: Sequence[Resource | None], upstream: Upstream, *, sure: bool
    ) -> None:
        """Dry-run a plan of several objects, or one for a schema that nobody verified, before the first write."""
        if len(wanted) < 2 and upstream.verified:
            return
        absent = [obj["metadata"]["name"] for obj, live in zip(wanted, found, strict=True) if live is None]
        for obj, live in zip(wanted, found, strict=True):
            try:
                await self._apply(obj, live, sure=sure, dry_run=True)
            except ApiError as error:
                # An upstream webhook that misses an object which this very plan is about to make says nothing.
                named = any(name in error.message for name in absent if name != obj["metadata"]["name"])
                if is_refusal(error) and not named:
                    raise RefusedError(obj, error.message, error.answer) from error
                if not is_refusal(error):
                    raise

    async def _prune(self, deployment: Resource, desired: Sequence[Resource]) -> None:
        """Delete what an earlier generation needed and this one does not."""
        wanted = {(obj["kind"], key_of(obj)) for obj in desired}
        for (kind, key), obj in self._around.children.of(key_of(deployment)).items():
            if (kind.kind, key) in wanted or not is_ours(obj, deployment) or is_deleting(obj):
                continue
            try:
                await self._client.delete(kind, key, uid=uid_of(obj))
            except NotFound:
                continue

    # --------------------------------------------------------------------------------------------------- recreating

    async def _recreate(
        self,
        deployment: Resource,
        primary: Resource,
        desired: Sequence[Resource],
        causes: Sequence[str],
    ) -> Applied:
        """Say it, then delete; the deletion's event brings the pass that creates (spec rulings 9, 10, 15)."""
        text = f"{named(primary)} is deleted and made again: {', '.join(causes)} cannot be changed in place"
        if not _is_announced(deployment):
            await self._rehearse_anew(desired)
            self._events.emit(deployment, reason="ResourceRecreated", note=text, action="Recreate", related=primary)
            return _recreating(primary, text, again=0.0)
        view = self._view(desired[0])
        try:
            await self._client.delete(view.kind, key_of(primary), uid=uid_of(primary))
        except NotFound:
            return _recreating(primary, text, again=0.0)
        return _recreating(primary, text)

    async def _rehearse_anew(self, desired: Sequence[Resource]) -> None:
        """Dry-run the new primary under a name of its own: the old one still has the real name."""
        obj = desired[0]
        trial = trial_of(obj)
        others = [other["metadata"]["name"] for other in desired[1:]]
        try:
            await self._client.apply(self._view(obj).kind, trial, manager=self._manager, dry_run=True)
        except ApiError as error:
            if not is_refusal(error):
                raise
            if not any(other in error.message for other in others):
                raise RefusedError(obj, error.message, error.answer) from error

    def _leaving(self, primary: Resource) -> Applied:
        """The old object is on its way out; from some time on it is said what holds it."""
        text = f"Waiting until the old {named(primary)} is gone"
        holding, again = held_by(primary, now=self._around.clock())
        return _recreating(primary, f"{text}; {holding}" if holding else text, again=again)

    # ---------------------------------------------------------------------------------------------------- refusals

    def told(self, desired: Sequence[Resource], refusal: Refusal, upstream: Upstream) -> Applied:
        """What a refusal means, which stands until it is tried again: said with the server's own words."""
        refused, again = refusal.error, refusal.left
        try:
            live = self.known(desired)
        except RefusedError:
            live = [None for _ in desired]
        dependencies = [obj["metadata"]["name"] for obj in desired[1:]]
        lags = any(name in refused.message for name in dependencies)
        if lags and refusal.attempt <= QUIET_REFUSALS:
            return Applied(silent=True, again=again)
        message = f"{named(refused.obj)} was refused: {redacted(refused.message)}"
        known = Applied(primary=live[0], others=tuple(obj for obj in live[1:] if obj is not None), again=again)
        if not upstream.verified and refused.answer in (Answer.SCHEMA, Answer.INVALID):
            verdict = Done(ok=False, reason="UnsupportedSchema", message=message)
            fault = Fault(
                component="ProviderCompatible",
                reason="UnsupportedSchema",
                message=message,
                category=Category.WORKLOAD if live[0] is None else None,  # Failed, though nothing exists (ruling 13)
            )
            return replace(known, incompatible=verdict, faults=(fault,))
        meaning = refused.meaning
        return replace(
            known,
            done=Done(ok=False, reason=meaning.reason, message=message),
            faults=(Fault(component="ResourceCreated", reason=meaning.reason, message=message, waits=meaning.waits),),
        )


class RefusedError(Exception):
    """The server will not take an object as it is, or we cannot address it (no `answer`)."""

    def __init__(self, obj: Resource, message: str, answer: Answer | None = None) -> None:
        super().__init__(message)
        self.obj = obj
        self.message = message
        self.answer = answer

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self.answer or Answer.INVALID]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A refusal that stands: after how many tries, and for how many seconds more (None: no time will do)."""

    error: RefusedError
    attempt: int
    left: float | None

    def of(self, obj: Resource, reason: str) -> bool:
        """Whether it is that object which was refused, for that reason."""
        return self.error.obj["kind"] == obj["kind"] and self.error.meaning.reason == reason


class _OccupiedError(Exception):
    """An object that was to be made is there already, or the API server says so."""


def trial_of(obj: Resource) -> Resource:
    """The object under a name of its own, for the dry run of one whose name the old object still has."""
    return {**obj, "metadata": {**obj["metadata"], "name": f"{obj['metadata']['name'][:40]}-airunway-check"}}


def _recreating(primary: Resource, message: str, *, again: float | None = None) -> Applied:
    fault = Fault(component="Resource", reason="Recreating", message=message)
    return Applied(primary=primary, faults=(fault,), again=again, recreating=True)


def _foreign(wanted: Resource, found: Resource) -> Applied:
    message = conflict_text(wanted, found)
    return Applied(
        done=Done(ok=False, reason="ResourceConflict", message=message),
        faults=(Fault(component="ResourceCreated", reason="ResourceConflict", message=message),),
        again=CONFLICT_RETRY,
    )


def _is_announced(deployment: Resource) -> bool:
    """Whether the status has said, for this very generation, that the upstream object is made anew."""
    status, generation = deployment.get("status") or {}, dig(deployment, "metadata", "generation")
    return (status.get("reason"), status.get("observedGeneration")) == ("Recreating", generation)


def _created(primary: Resource) -> Done:
    return Done(ok=True, reason="ResourceCreated", message=f"{primary['kind']} created successfully")


def _hash(obj: Resource) -> str | None:
    return annotations_of(obj).get(names.SPEC_HASH)
