"""Bringing the upstream objects of one deployment to what was translated: the writing half of a pass.

Ownership check, recreate or apply, pruning (spec rulings 9, 10, 13, 14, 15). What the API server refuses becomes part
of the answer; what it cannot do just now is raised and retried by the controller.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.api import names
from airunway.kube import (
    ApiError,
    Client,
    EventRecorder,
    Kind,
    NotFound,
    backoff_delay,
    changed_fields,
    needs_apply,
)
from airunway.plugins.contract import Upstream
from airunway.resource import ObjectKey, Resource, annotations_of, controller_owner, dig, is_deleting, key_of, uid_of
from airunway.runtime.plan import is_ours, recreate_causes
from airunway.runtime.report import Done
from airunway.runtime.surroundings import Surroundings, UpstreamView
from airunway.status import Category, Fault

__all__ = ["Applied", "Applier", "is_refusal"]

log = logging.getLogger(__name__)

CONFLICT_RETRY = 15.0
"""Seconds after which an object that belongs to somebody else is looked at again: nothing of ours watches it."""

FIGHT_WINDOW = timedelta(minutes=2)
FIGHT_REVERTS = 5
"""More reverts than this within the window are a fight: somebody else wants something else, again and again."""

FIGHT_PAUSE = 30.0
"""Seconds between reverts during a fight."""

QUIET_REFUSALS = 5
"""How many refusals that name an object just made are taken for an upstream cache that lags (KAITO's webhook)."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What became of the objects. `silent`: nothing to report yet; `again`: seconds after which to try once more.

    `fight` is set while somebody else keeps changing what we keep reverting.
    """

    primary: Resource | None = None
    others: tuple[Resource, ...] = ()
    done: Done | None = None
    incompatible: Done | None = None
    faults: tuple[Fault, ...] = ()
    again: float | None = None
    silent: bool = False
    fight: Done | None = None


class Applier:
    """Applies plans; remembers how often each deployment was refused, for the backoff, and when it was reverted."""

    def __init__(self, *, client: Client, around: Surroundings, events: EventRecorder, manager: str) -> None:
        self._client = client
        self._around = around
        self._events = events
        self._manager = manager
        self._refusals: dict[ObjectKey, int] = {}
        self._reverts: dict[ObjectKey, deque[datetime]] = {}
        self._rng = random.Random()

    async def bring(self, deployment: Resource, desired: Sequence[Resource], upstream: Upstream) -> Applied:
        """Make the cluster hold `desired` (primary first) and nothing else of ours for this deployment."""
        live = [await self._live(obj) for obj in desired]
        for wanted, found in zip(desired, live, strict=True):
            if found is not None and not is_ours(found, deployment):
                return self._foreign(wanted, found)
        primary = live[0]
        if primary is not None and is_deleting(primary):
            return self._recreating(deployment, primary, f"Waiting until the old {_named(primary)} is gone")
        if primary is not None and (causes := recreate_causes(primary, desired[0])):
            return await self._recreate(deployment, primary, desired, live, upstream, causes)
        pending = [
            position
            for position, (wanted, found) in enumerate(zip(desired, live, strict=True))
            if needs_apply(wanted, found, manager=self._manager)
        ]
        fight = self._fight(deployment, desired[0])
        if fight is not None and pending and (pause := self._truce(key_of(deployment))) > 0:
            return Applied(
                primary=primary,
                others=tuple(obj for obj in live[1:] if obj is not None),
                done=_created(desired[0]),
                again=pause,
                fight=fight,
            )
        try:
            if pending:
                await self._rehearse([desired[i] for i in pending], [live[i] for i in pending], upstream)
            for position in sorted(pending, key=lambda i: i == 0):  # the primary last: it refers to the others
                live[position] = await self._write(deployment, desired[position], live[position])
            await self._prune(deployment, desired)
        except _RefusedError as refused:
            return self._refused(deployment, desired, live, refused, upstream)
        self._refusals.pop(key_of(deployment), None)
        view = self._view(desired[0])
        unconfirmed = view.objects.unconfirmed(key_of(desired[0]))
        return Applied(
            primary=live[0],
            others=tuple(obj for obj in live[1:] if obj is not None),
            done=_created(desired[0]),
            again=self._until_peace(key_of(deployment))
            if fight
            else view.objects.patience + 1.0
            if unconfirmed
            else None,
            fight=fight,
        )

    # ----------------------------------------------------------------------------------------------------- fights

    def _fight(self, deployment: Resource, primary: Resource) -> Done | None:
        """What to say if too many reverts lie within the window already."""
        key, now = key_of(deployment), self._around.clock()
        reverts = self._reverts.get(key)
        if reverts is None:
            return None
        while reverts and now - reverts[0] > FIGHT_WINDOW:
            reverts.popleft()
        if not reverts:
            del self._reverts[key]
        if len(reverts) <= FIGHT_REVERTS:
            return None
        message = (
            f"{_named(primary)} was changed and reverted more than {FIGHT_REVERTS} times within "
            f"{FIGHT_WINDOW.seconds // 60} minutes; reverts now wait {FIGHT_PAUSE:.0f} s. "
            "The event DriftDetected names the field and who changes it"
        )
        return Done(ok=True, reason="RevertedTooOften", message=message)

    def _truce(self, key: ObjectKey) -> float:
        """Seconds until the next revert is due in a fight."""
        since = (self._around.clock() - self._reverts[key][-1]).total_seconds()
        return FIGHT_PAUSE - since

    def _until_peace(self, key: ObjectKey) -> float:
        """Seconds until the fight is over if nothing more happens."""
        since = (self._around.clock() - self._reverts[key][0]).total_seconds()
        return max(1.0, FIGHT_WINDOW.total_seconds() - since)

    # ------------------------------------------------------------------------------------------------- one object

    def _view(self, obj: Resource) -> UpstreamView:
        view = self._around.views.get(obj["kind"])
        if view is None or view.kind.api_version != obj["apiVersion"]:
            what = f"{obj['apiVersion']} {obj['kind']}"
            raise _RefusedError(obj, f"{what} is not in the provider's manifest, or the cluster does not serve it")
        return view

    async def _live(self, obj: Resource) -> Resource | None:
        """The object as it is. One that the cache does not know is asked for: it may be there without our label."""
        view = self._view(obj)
        key = key_of(obj)
        known = view.objects.get(key)
        if known is not None:
            return known
        try:
            return await self._client.get(view.kind, key)
        except NotFound:
            return None

    async def _write(self, deployment: Resource, wanted: Resource, found: Resource | None) -> Resource:
        view = self._view(wanted)
        drifted = found is not None and _hash(found) == _hash(wanted)
        if drifted:
            self._reverts.setdefault(key_of(deployment), deque()).append(self._around.clock())
            await self._tell_drift(deployment, wanted, view.kind)
        try:
            answer = await self._client.apply(view.kind, wanted, manager=self._manager, force=True)
        except ApiError as error:
            if is_refusal(error):
                raise _RefusedError(wanted, error.message, error) from error
            raise
        view.objects.note(answer)
        if found is None:
            self._events.emit(deployment, reason="ResourceCreated", note=f"Created {_named(wanted)}")
        elif not drifted:
            self._events.emit(deployment, reason="ResourceUpdated", note=f"Updated {_named(wanted)}")
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
        note = f"{_named(wanted)} was modified directly, reconciling: {said}"
        self._events.emit(deployment, reason="DriftDetected", note=note, warning=True)

    async def _rehearse(self, wanted: Sequence[Resource], found: Sequence[Resource | None], upstream: Upstream) -> None:
        """Dry-run a plan of several objects, or one for a schema that nobody verified, before the first write."""
        if len(wanted) < 2 and upstream.verified:
            return
        absent = [obj["metadata"]["name"] for obj, live in zip(wanted, found, strict=True) if live is None]
        for obj in wanted:
            try:
                await self._client.apply(self._view(obj).kind, obj, manager=self._manager, force=True, dry_run=True)
            except ApiError as error:
                # An upstream webhook that misses an object which this very plan is about to make says nothing.
                named = any(name in error.message for name in absent if name != obj["metadata"]["name"])
                if is_refusal(error) and not named:
                    raise _RefusedError(obj, error.message, error) from error
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
        live: Sequence[Resource | None],
        upstream: Upstream,
        causes: Sequence[str],
    ) -> Applied:
        """Say it, then delete; the deletion's event brings the pass that creates (spec rulings 9, 10, 15)."""
        text = f"{_named(primary)} is deleted and made again: {', '.join(causes)} cannot be changed in place"
        if dig(deployment, "status", "reason") != "Recreating":
            try:
                await self._rehearse_anew(desired)
            except _RefusedError as refused:
                return self._refused(deployment, desired, list(live), refused, upstream)
            self._events.emit(deployment, reason="ResourceRecreated", note=text)
            return self._recreating(deployment, primary, text, again=0.0)
        view = self._view(desired[0])
        try:
            await self._client.delete(view.kind, key_of(primary), uid=uid_of(primary))
        except NotFound:
            return self._recreating(deployment, primary, text, again=0.0)
        return self._recreating(deployment, primary, text)

    async def _rehearse_anew(self, desired: Sequence[Resource]) -> None:
        """Dry-run the new primary under a name of its own: the old one still has the real name."""
        obj = desired[0]
        name = f"{obj['metadata']['name'][:40]}-airunway-check"
        trial = {**obj, "metadata": {**obj["metadata"], "name": name}}
        others = [other["metadata"]["name"] for other in desired[1:]]
        try:
            await self._client.apply(self._view(obj).kind, trial, manager=self._manager, dry_run=True)
        except ApiError as error:
            if not is_refusal(error):
                raise
            if not any(other in error.message for other in others):
                raise _RefusedError(obj, error.message, error) from error

    def _recreating(
        self, deployment: Resource, primary: Resource, message: str, *, again: float | None = None
    ) -> Applied:
        return Applied(
            primary=primary, faults=(Fault(component="Resource", reason="Recreating", message=message),), again=again
        )

    # ---------------------------------------------------------------------------------------------------- refusals

    def _foreign(self, wanted: Resource, found: Resource) -> Applied:
        owner = controller_owner(found)
        by = f" (owned by {owner.get('kind')}/{owner.get('name')})" if owner else " (no owner references)"
        key = key_of(wanted)
        what = f"{wanted['kind']} {key} exists but is not managed by this ModelDeployment{by}"
        message = f"{what}; rename one of them or delete it"
        return Applied(
            done=Done(ok=False, reason="ResourceConflict", message=message),
            faults=(Fault(component="ResourceCreated", reason="ResourceConflict", message=message),),
            again=CONFLICT_RETRY,
        )

    def _refused(
        self,
        deployment: Resource,
        desired: Sequence[Resource],
        live: Sequence[Resource | None],
        refused: _RefusedError,
        upstream: Upstream,
    ) -> Applied:
        """What a refusal means: said with the server's own words, tried again with backoff."""
        key = key_of(deployment)
        attempt = self._refusals[key] = self._refusals.get(key, 0) + 1
        again = backoff_delay(attempt, base=0.2, cap=300.0, rng=self._rng)
        dependencies = [obj["metadata"]["name"] for obj in desired[1:]]
        lags = any(name in refused.message for name in dependencies)
        if lags and attempt <= QUIET_REFUSALS:
            return Applied(silent=True, again=again)
        message = f"{_named(refused.obj)} was refused: {refused.message}"
        log.info("%s: %s", key, message)
        if not upstream.verified and refused.status in (400, 422):
            verdict = Done(ok=False, reason="UnsupportedSchema", message=message)
            fault = Fault(
                component="ProviderCompatible",
                reason="UnsupportedSchema",
                message=message,
                category=Category.WORKLOAD if live[0] is None else None,  # Failed, though nothing exists (ruling 13)
            )
            return Applied(primary=live[0], incompatible=verdict, faults=(fault,), again=again)
        reason = "InvalidSpec"
        if refused.status == 403:
            reason = "QuotaExceeded" if "exceeded quota" in refused.message else "Forbidden"
        return Applied(
            primary=live[0],
            done=Done(ok=False, reason=reason, message=message),
            faults=(Fault(component="ResourceCreated", reason=reason, message=message),),
            again=again,
        )


class _RefusedError(Exception):
    """The server will not take an object as it is (400, 403, 422), or we cannot address it (no status)."""

    def __init__(self, obj: Resource, message: str, error: ApiError | None = None) -> None:
        super().__init__(message)
        self.obj = obj
        self.message = message
        self.status = error.status if error else 0


def is_refusal(error: ApiError) -> bool:
    """Whether the server said no to what was asked, as opposed to not now."""
    return error.status in (400, 403, 422)


def _created(primary: Resource) -> Done:
    return Done(ok=True, reason="ResourceCreated", message=f"{primary['kind']} created successfully")


def _hash(obj: Resource) -> str | None:
    return annotations_of(obj).get(names.SPEC_HASH)


def _named(obj: Resource) -> str:
    return f"{obj.get('kind')} '{key_of(obj).name}'"
