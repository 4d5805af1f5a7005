"""Applies a plan, and deletes everything again.

`Executor` carries a plan out, and `Cleanup` deletes the objects and then removes the finalizer. If the API server
refuses a write, `Refused` is raised and becomes a condition; any other API error is raised and retried. After five
minutes the finalizer is removed whatever the cause, with a warning event that names the objects which may be left.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airunway.api import names
from airunway.first_seen import FirstSeen
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import (
    Client,
    ErrorKind,
    EventRecorder,
    KubeError,
    MutationCache,
    StatusWriter,
    remove_finalizers,
    soonest,
)
from airunway.owned.apply import CONFLICT_RETRY, Applied, apply_objects, contested, fight_text, write
from airunway.owned.objects import Identity, identity_in, is_ours, named
from airunway.owned.plan import Action, Plan, Step, conflict_text, recreation_text
from airunway.owned.writer import REFUSED_RETRY, Refused, Writer, missing_of
from airunway.plugins.contract import api_version, namesake_of
from airunway.plugins.host import ProviderHost
from airunway.process.deployment_cache import with_all_finalizers
from airunway.quantity import parse_quantity
from airunway.redaction import redacted
from airunway.resource import (
    ObjectKey,
    Resource,
    controller_owner,
    dig,
    digest,
    finalizers_of,
    is_deleting,
    key_of,
    parse_time,
    uid_of,
)
from airunway.runtime.autoscaling import hindered, parted
from airunway.runtime.informers import UpstreamInformers
from airunway.runtime.memory import Announced, Memory, RetryKey
from airunway.runtime.plan import Decision
from airunway.runtime.records import is_primary
from airunway.runtime.report import StepResult, held_by, terminating_status
from airunway.runtime.state import ClusterState, provider_mark
from airunway.status.beside import with_beside
from airunway.status.reasons import Category

log = logging.getLogger(__name__)

QUIET_REFUSALS = 5
"""Number of refusals that name an object just created and are not reported: a cache of the upstream (KAITO's webhook)
probably lags.
"""

_LINGERS = timedelta(seconds=10)
"""Time that an object may take to be deleted before the status names its finalizers."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of applying a plan."""

    results: tuple[StepResult, ...] = ()
    """What the steps report."""
    live: Mapping[Identity, Resource] | None = None
    """Our objects after the writes; None if nothing has changed."""
    primary: Resource | None = None
    """The object in `live` that carries the model."""
    leaving: StepResult | None = None
    """Reported instead of the primary object's state while the old primary object is being deleted."""
    again: float | None = None
    """Seconds after which to reconcile again."""
    silent: bool = False
    """Nothing is worth reporting yet."""
    backing_off: bool = False
    """Whether the write waits for its backoff after an error of the API server."""
    announced: Announced | None = None
    """The replacement that is announced: once the status has it, the next pass carries it out."""


def upstream_writer(client: Client, host: ProviderHost, upstream: UpstreamInformers) -> Writer:
    """The writer of a provider's objects."""
    kinds = {kind.key: kind for kind in host.manifest.upstream}  # we have no right to read kinds it does not name
    return Writer(
        client=client,
        manager=names.provider_manager(host.name),
        kind_of=upstream.view_of,
        propagation={identity: kind.deletion for identity, kind in host.kinds.items()},
        namesakes={
            identity: [
                (api_version(kinds[key], kinds[key].versions[0]), kinds[key].kind, name)
                for key, name in (namesake_of(entry, "{name}") for entry in kind.namesakes)
                if key in kinds
            ]
            for identity, kind in host.kinds.items()
        },
    )


class Executor:
    """Carries plans out."""

    def __init__(self, *, writer: Writer, events: EventRecorder) -> None:
        self._writer = writer
        self._events = events

    async def apply(
        self, state: ClusterState, decision: Decision, plan: Plan, memory: Memory, *, looked_up: bool = False
    ) -> Outcome:
        """Create and update the plan's objects, and delete all others of ours.

        Raises Refused and KubeError. Raises NameTaken if a name is taken that the plan holds for free, unless the names
        were `looked_up`.
        """
        plan, scaler = parted(plan)
        plan = await self._with_name_conflicts(plan)
        first = plan.primary
        live = {identity_in(step.live): step.live for step in plan.steps if step.live is not None}
        if first.action is Action.FOREIGN:
            found = _in_the_way(first, first, exists=state.primary is not None)
            return Outcome(results=(found,), again=CONFLICT_RETRY)  # other objects stay
        if first.action is Action.REPLACE:
            return await self._replace(state, plan, memory)
        obsolete = plan.of(Action.DELETE)
        if first.action is Action.CREATE and obsolete:
            # The earlier plan's objects must release their GPUs first.
            return await self._delete_obsolete(state, obsolete)
        foreign, dependents = plan.of(Action.FOREIGN), plan.of(Action.REPLACE)
        writes = plan.writes
        if foreign or dependents:  # the primary object refers to objects that do not exist yet
            writes = tuple(step for step in writes if not step.primary)
        # An object that another writer keeps changing back waits; everything else goes on.
        fought, held, again = contested(plan, memory.fights(state.now))
        writes = tuple(step for step in writes if step not in held)
        await self._dry_run(decision, plan, writes, dependents, looked_up=looked_up)
        for step in dependents:
            if not is_deleting(step.subject):  # the watch event of its deletion triggers the pass that creates it
                self._announce(state, step)
                await self._writer.delete(step.subject)
        answers = await write(
            self._writer,
            writes,
            owner=state.deployment,
            events=self._events,
            history=memory,
            now=state.now,
            looked_up=looked_up,
        )
        live.update(answers)
        deletes_obsolete = obsolete and not writes and not held and not dependents and decision.deletes_obsolete
        for step in obsolete if deletes_obsolete else ():
            await self._writer.delete(step.subject)
        results = [_in_the_way(foreign[0], first, exists=first.live is not None) if foreign else _created(first)]
        if fought:
            text = fight_text(fought)
            results.append(StepResult(condition="DriftFight", ok=True, reason="RevertedTooOften", message=text))
        again = soonest(CONFLICT_RETRY if foreign else None, again, *self._unconfirmed(plan.steps))
        if any(step.action is not Action.KEEP for step in scaler.steps):
            applied = await self._scale(state, scaler, memory)
            live.update(applied.live)
            again = soonest(again, applied.again, REFUSED_RETRY if applied.refused else None)
            if (hindrance := applied.hindrance()) is not None:
                results.append(hindered(state, *hindrance[1:]))
        else:
            live.update((identity_in(step.live), step.live) for step in scaler.steps if step.live is not None)
        return _outcome(state, live, first, results=tuple(results), again=again)

    async def _scale(self, state: ClusterState, scaler: Plan, memory: Memory) -> Applied:
        """Carry out the plan of the autoscaler. What hinders it hinders nothing else. Raises KubeError."""
        live = {identity_in(step.live): step.live for step in scaler.steps if step.live is not None}
        return await apply_objects(
            self._writer,
            [step.wanted for step in scaler.steps if step.wanted is not None],
            live,
            owner=state.deployment,
            mark=provider_mark(state.provider),
            events=self._events,
            history=memory,
            now=state.now,
        )

    async def _with_name_conflicts(self, plan: Plan) -> Plan:
        """The plan, with a step marked FOREIGN if the upstream needs a name that a foreign object has.

        The caches hold our own objects only, so each creation costs one request per such name.
        """
        steps = []
        for step in plan.steps:
            made = step.wanted if step.action in (Action.CREATE, Action.REPLACE) else None
            found = await self._writer.namesake(made) if made is not None else None
            steps.append(step if found is None else replace(step, action=Action.FOREIGN, live=found, causes=()))
        return replace(plan, steps=tuple(steps))

    def _unconfirmed(self, steps: Iterable[Step]) -> Iterator[float]:
        """Seconds after which our last write of each object does not count any more if no watch has confirmed it."""
        for wanted in (step.wanted for step in steps if step.wanted is not None):
            objects = self._writer.view(wanted).objects
            if objects.unconfirmed(key_of(wanted)):
                yield objects.patience + 1.0

    # ----------------------------------------------------------------------------------------------- single objects

    async def _dry_run(
        self, decision: Decision, plan: Plan, writes: tuple[Step, ...], dependents: tuple[Step, ...], *, looked_up: bool
    ) -> None:
        """Dry-run all changes of existing objects before the first write, and everything under an unverified schema.

        A single write needs no dry run: the API server accepts or refuses it as a whole.
        """
        rehearsed = (*writes, *(step for step in dependents if not is_deleting(step.subject)))
        exists = any(step.live is not None and step.action is not Action.FOREIGN for step in plan.steps)
        if not rehearsed or (decision.verified and (not exists or (len(rehearsed) == 1 and not dependents))):
            return
        absent = tuple(step.wanted for step in rehearsed if step.live is None and step.wanted is not None)
        await rehearse(self._writer, rehearsed, absent=absent, looked_up=looked_up)

    def _announce(self, state: ClusterState, step: Step) -> None:
        self._events.emit(
            state.deployment,
            reason="ResourceRecreated",
            note=with_beside(recreation_text(step), state.deployment),
            action="Recreate",
            related=step.subject,
        )

    # --------------------------------------------------------------------------------------------------- recreating

    async def _replace(self, state: ClusterState, plan: Plan, memory: Memory) -> Outcome:
        """Announce the replacement, then delete; the deletion's watch event triggers the creation.

        While a foreign object has the name of one that is wanted, the old one stays; unless the foreign one belongs to
        an object that goes, and goes with it.
        """
        step, old = plan.primary, plan.primary.subject
        if is_deleting(old):
            holding, again = _blocking_finalizers([old], now=state.now)
            return _recreating(f"Waiting until the old {named(old)} is gone{holding}", leaves=True, again=again)
        goes = {uid_of(other.subject) for other in (*plan.of(Action.REPLACE), *plan.of(Action.DELETE))}
        foreign = [
            each for each in plan.of(Action.FOREIGN) if dig(controller_owner(each.live or {}), "uid") not in goes
        ]
        if foreign:
            memory.announced = None  # it is rehearsed and announced anew
            return Outcome(results=(_in_the_way(foreign[0], step, exists=True),), again=CONFLICT_RETRY)
        text = recreation_text(step)
        announced = Announced(uid=uid_of(old), generation=state.deployment["metadata"].get("generation", 0))
        if memory.announced != announced:
            rehearsed = tuple(s for s in plan.steps if s.wanted is not None and s.action is not Action.KEEP)
            absent = tuple(s.wanted for s in rehearsed if s.wanted is not None)
            await rehearse(self._writer, rehearsed, absent=absent)
            self._announce(state, step)
            return replace(_recreating(text, leaves=True, again=0.0), announced=announced)
        # Objects that the old one refers to are deleted later (`_delete_obsolete`): its operator may need them to
        # clean up.
        others = (*plan.of(Action.DELETE), *(other for other in plan.of(Action.REPLACE) if other is not step))
        workloads = (other for other in others if self._writer.runs_pods(other.subject))
        for obsolete in (step, *workloads):
            await self._writer.delete(obsolete.subject)
        return _recreating(text, leaves=True)

    async def _delete_obsolete(self, state: ClusterState, obsolete: tuple[Step, ...]) -> Outcome:
        """Before the first object of a new plan: delete the earlier plan's objects and wait until they are gone."""
        for step in obsolete:
            await self._writer.delete(step.subject)
        holding, again = _blocking_finalizers([step.subject for step in obsolete], now=state.now)
        what = ", ".join(named(step.subject) for step in obsolete[:3])
        text = f"Waiting until {what} {'is' if len(obsolete) == 1 else 'are'} gone{holding}"
        return _recreating(text, leaves=False, again=again)


def refusal_outcome(
    state: ClusterState, decision: Decision, refused: Refused, memory: Memory, *, attempt: int, left: float | None
) -> Outcome:
    """The outcome of a refusal until the next try, in the API server's own words."""
    young = [
        obj
        for obj in decision.objects
        if identity_in(obj) not in state.live or memory.just_made(identity_in(obj), now=state.now)
    ]
    if attempt <= QUIET_REFUSALS and missing_of(refused.message, refused.obj, young) is not None:
        return Outcome(silent=True, again=left)
    message = f"{named(refused.obj)} was refused: {redacted(refused.message)}"
    if not decision.verified and refused.kind in (ErrorKind.SCHEMA, ErrorKind.INVALID):
        result = StepResult(
            condition="ProviderCompatible",
            reason="UnsupportedSchema",
            message=message,
            blocks_ready=True,
            category=Category.WORKLOAD if state.primary is None else None,  # phase Failed
        )
    else:
        policy = refused.policy
        result = StepResult(
            condition="ResourceCreated",
            reason=policy.reason,
            message=message,
            blocks_ready=True,
            pending=policy.pending,
        )
    return Outcome(results=(result,), again=left)


def _blocking_finalizers(objects: Iterable[Resource], *, now: datetime) -> tuple[str, float | None]:
    """The finalizers that hold objects for longer than `_LINGERS` after their deletion, as the end of a message; and
    the seconds until that is so of another object.
    """
    text, again = "", None
    for obj in objects:
        since, finalizers = parse_time(dig(obj, "metadata", "deletionTimestamp")), finalizers_of(obj)
        if since is None or not finalizers:
            continue
        left = (since + _LINGERS - now).total_seconds()
        if left > 0:
            again = soonest(again, left)
        else:
            text += f"; {named(obj)} is held by its finalizers: {', '.join(finalizers)}"
    return text, again


def _outcome(
    state: ClusterState,
    live: Mapping[Identity, Resource],
    first: Step,
    *,
    results: tuple[StepResult, ...],
    again: float | None,
) -> Outcome:
    assert first.wanted is not None, "a primary step has a wanted object"
    mark = provider_mark(state.provider)
    ours = {identity: obj for identity, obj in live.items() if is_ours(obj, state.deployment, mark)}
    primary = live.get(identity_in(first.wanted))
    if primary is state.primary and {id(obj) for obj in ours.values()} == {id(obj) for obj in state.ours}:
        return Outcome(results=results, again=again)
    return Outcome(results=results, live=ours, primary=primary, again=again)


def _recreating(message: str, *, leaves: bool, again: float | None = None) -> Outcome:
    """The outcome while old objects are being deleted; `leaves`: the primary object is one of them."""
    result = StepResult(component="Resource", reason="Recreating", message=message, blocks_ready=True)
    return Outcome(results=(result,), leaving=result if leaves else None, again=again)


def _created(first: Step) -> StepResult:
    kind = first.wanted["kind"] if first.wanted is not None else "resource"
    return StepResult(
        condition="ResourceCreated", ok=True, reason="ResourceCreated", message=f"{kind} created successfully"
    )


def _in_the_way(step: Step, first: Step, *, exists: bool) -> StepResult:
    """The result for a foreign object. Running objects stay; it blocks readiness only if the primary object cannot be
    written because of it. `exists`: there is a primary object, which may serve.
    """
    assert step.wanted is not None, "a foreign object is in the way of a wanted one"
    assert step.live is not None, "a foreign object exists"
    return StepResult(
        condition="ResourceCreated",
        reason="ResourceConflict",
        message=conflict_text(step.wanted, step.live),
        blocks_ready=first.action is not Action.KEEP,
        only_degrades=exists,
    )


# ---------------------------------------------------------------------------------------------------------- the dry run


_TRIAL_DIGITS = 8


async def rehearse(
    writer: Writer, steps: tuple[Step, ...], *, absent: tuple[Resource, ...], looked_up: bool = False
) -> None:
    """Dry-run what would be written; a replacement under a name of its own.

    A refusal because an object is missing that the same plan creates first is ignored: for example, an upstream's
    webhook misses a ConfigMap, or the API server the Role of a binding. So is a quota on the number of objects that is
    full because the old object still counts. Raises Refused for any other refusal.
    """
    for step in steps:
        wanted, found = step.wanted, step.live if step.writes else None
        assert wanted is not None, "only what is wanted is rehearsed"
        same_name = step.live is not None and identity_in(step.live) == identity_in(wanted)
        trial = trial_of(wanted) if not step.writes and same_name else wanted
        try:
            await writer.apply(trial, found, looked_up=looked_up or not step.writes, dry_run=True)
        except Refused as refused:
            others, message = [obj for obj in absent if obj is not wanted], in_own_name(refused.message, trial, wanted)
            if refused.kind is ErrorKind.QUOTA and _frees_its_place(step) and _is_only_full(message):
                continue
            if missing_of(message, wanted, others) is None:
                raise Refused(wanted, message, refused.kind) from refused


def _frees_its_place(step: Step) -> bool:
    """Whether an object of the same kind is deleted before this one is made."""
    wanted, live = step.wanted, step.live
    return (
        not step.writes and wanted is not None and live is not None and identity_in(live)[:2] == identity_in(wanted)[:2]
    )


_QUOTA = re.compile(r"used: (?P<used>[^:]{1,1000}), limited: (?P<limited>[^:\s]{1,1000})$")


def _is_only_full(message: str) -> bool:
    """Whether a quota is full and not exceeded already: ``…, used: count/pods=3, limited: count/pods=3``."""
    found = _QUOTA.search(message)
    if found is None:
        return False
    used, limited = (dict(part.partition("=")[::2] for part in found[name].split(",")) for name in ("used", "limited"))
    try:
        return all(parse_quantity(amount) <= parse_quantity(limited[name]) for name, amount in used.items())
    except (KeyError, ValueError):
        return False


def in_own_name(message: str, trial: Resource, wanted: Resource) -> str:
    """The message with the object's own name in place of the name that it was tried under."""
    tried, name = key_of(trial).name, key_of(wanted).name
    return message if tried == name else re.sub(rf"(?<![a-z0-9]){re.escape(tried)}(?![a-z0-9])", name, message)


def trial_of(obj: Resource) -> Resource:
    """The object under another name of the same length, for a dry run while the old object still has the name.

    Upstreams limit the length of names and of derived names: a longer name could be refused for its length alone.
    """
    name = key_of(obj).name
    kept = max(0, len(name) - _TRIAL_DIGITS)
    trial = f"{name[:kept]}{'x' if not kept else ''}{digest(['trial', name])}"[: len(name)]
    if trial == name:
        trial = f"{name[:-1]}{'z' if name[-1] != 'z' else 'y'}"
    return {**obj, "metadata": {**obj["metadata"], "name": trial}}


# -------------------------------------------------------------------------------------------------------- the finalizer


RETRY = 5.0
"""Seconds between attempts while a deletion is refused or the API server cannot do it."""


class Cleanup:
    """Deletes the objects of a deployment, waits until they are gone, and removes our finalizer."""

    def __init__(
        self,
        *,
        writer: Writer,
        upstream: UpstreamInformers,
        deployments: MutationCache,
        events: EventRecorder,
        status: StatusWriter,
        finalizer: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._writer = writer
        self._upstream = upstream
        self._deployments = deployments
        self._events = events
        self._status = status
        self._finalizer = finalizer
        self._begun: FirstSeen[ObjectKey] = FirstSeen(clock)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deployment that is gone."""
        self._begun.forget(key)

    async def release(self, state: ClusterState, memory: Memory) -> float | None:
        """One pass over a deployment that is deleted or no longer ours; returns the seconds until the next pass."""
        deployment, key, now = state.deployment, state.key, state.now
        if self._finalizer not in finalizers_of(deployment):
            return None
        begun = self._begun.since(key, parse_time(deployment["metadata"].get("deletionTimestamp")))
        left = (begun + names.FINALIZER_TIMEOUT - now).total_seconds()
        gone, unseen, problem, again = False, False, "", RETRY
        if (failed_try := memory.tries.failed_try(_retry_key(state))) is not None:
            problem, again = str(failed_try.failure), failed_try.left or RETRY
        else:
            try:
                gone = await self.remove_objects(state)
                if gone and not is_deleting(deployment):
                    gone = await self._is_clean(state)
                    unseen = not gone
                memory.tries.reset()
            except KubeError as error:
                gone, text = False, str(error)
                failed_try = memory.tries.failed(
                    _retry_key(state), failure=error, text=text, at_least=RETRY, at_most=RETRY
                )
                problem = str(failed_try.failure)
                log.warning("%s: the upstream objects cannot be deleted: %s", key, error)
        if not gone and left > 0:
            holding, until = _blocking_finalizers(state.ours, now=now)
            await self._report_terminating(state, f"; {problem}" if problem else holding)
            return soonest(left, again if problem or unseen else until)
        if not gone:
            self._warn(state, problem)
        if not is_deleting(deployment):
            # Another provider takes over: our status describes objects that no longer exist.
            await self._status.write(deployment, {})
        with self._deployments.writing(key):
            found = await with_all_finalizers(self._writer.client, deployment)
            answer = await remove_finalizers(
                self._writer.client, MODEL_DEPLOYMENT, found, (self._finalizer,), manager=self._writer.manager
            )
            if answer is not None:
                self._deployments.note(answer)
        others = names.foreign_finalizers(finalizers_of(found))
        if answer is not None and others and is_deleting(deployment):
            await self._status.write(answer, terminating_status(answer, held_by(others), now=now))
        log.info(
            "%s: finalizer removed; %s", key, "nothing is left upstream" if gone else "upstream objects may be orphaned"
        )
        return None

    async def remove_objects(self, state: ClusterState) -> bool:
        """Delete all our upstream objects of this deployment; True when none is left.

        Objects that the workloads refer to are deleted after the workloads. Raises KubeError if a deletion is refused
        or fails.
        """
        workloads = [obj for obj in state.ours if is_primary(obj) or self._writer.runs_pods(obj)]
        for obj in workloads or state.ours:
            await self._writer.delete(obj)
        # Absence in a cache that was never filled means nothing.
        return not state.ours and not self._upstream.unread()

    async def _is_clean(self, state: ClusterState) -> bool:
        """Whether the API server has no object of ours any more; any that it has are deleted.

        The deployment goes on with another provider, and the garbage collector would keep an object that our cache has
        missed.
        """
        selector = f"{names.MODEL_DEPLOYMENT}={state.key.name},{names.PROVIDER}={state.provider}"
        clean = True
        for view in self._upstream.views():
            objects = await self._writer.client.list_all(
                view.kind, namespace=state.key.namespace, label_selector=selector
            )
            for obj in objects:
                obj = {"apiVersion": view.kind.api_version, "kind": view.kind.kind, **obj}
                if is_ours(obj, state.deployment, provider_mark(state.provider)):
                    clean = False
                    await self._writer.delete(obj)
        return clean

    async def _report_terminating(self, state: ClusterState, why: str) -> None:
        if is_deleting(state.deployment):
            message = f"Waiting until the upstream resources are gone{why}"
            await self._status.write(state.deployment, terminating_status(state.deployment, message, now=state.now))

    def _warn(self, state: ClusterState, problem: str) -> None:
        what = ", ".join(f"{obj['kind']} {key_of(obj)}" for obj in state.ours) or "the upstream resource"
        why = f" ({problem})" if problem else ""
        note = f"Finalizer removed after timeout, {what} may be orphaned{why}"
        orphan = next(iter(state.ours), None)
        self._events.emit(
            state.deployment,
            reason="FinalizerTimeout",
            note=note,
            warning=True,
            action="Release",
            related=orphan,
            vital=True,
        )


def _retry_key(state: ClusterState) -> RetryKey:
    """The subject of a refused deletion: our objects, and which of them are being deleted."""
    found = sorted((uid_of(obj), is_deleting(obj)) for obj in state.ours)
    return RetryKey(uid=uid_of(state.deployment), generation=0, wanted=("release",), upstream=tuple(found))
