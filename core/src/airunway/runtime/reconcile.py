"""One pass over one ModelDeployment, as its provider (spec/providers.md, "The provider runtime").

gather → observe → plan → apply → observe again, if what there is has changed → report: `ProviderReconciler.reconcile`
reads downward. Reads come from caches; a write is preceded by a comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import (
    Client,
    EventRecorder,
    KubeError,
    MutationCache,
    NotFound,
    StatusWriter,
    add_finalizer,
)
from airunway.plugins.contract import Observation
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.process.logs import log_phase
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, is_deleting, key_of, uid_of
from airunway.runtime.apply import Executor, Outcome, Releaser, Writer, told_of
from airunway.runtime.diagnosis import conclude
from airunway.runtime.errors import Occupied, Refused
from airunway.runtime.evidence import EvidenceCollector
from airunway.runtime.informers import UpstreamWatch
from airunway.runtime.memory import Failure, Memory, Standing, Subject
from airunway.runtime.plan import Decision, Do, intent_of, observe, plan, plan_of, plugin_fault
from airunway.runtime.preview import Previewer
from airunway.runtime.report import Report, Told, announcements, leaving, planned_status, record_of_service
from airunway.runtime.state import Identity, Seen, finalizers_of, identity_in, named
from airunway.runtime.translate import selector_of
from airunway.status.events import EVENTS
from airunway.status.evidence import Evidence

__all__ = ["ProviderReconciler"]

log = logging.getLogger(__name__)


_ROLL_OUT_RETRY = 5.0
"""Seconds until a revision that was not there is looked for again; the pods' own changes come sooner."""


_FAULT_RETRY = 30.0
"""Seconds until a plugin that made a mistake is asked again although nothing changed: it may have been slow once."""


class ProviderReconciler:
    """The loop body that every provider shares; the provider itself is only asked pure questions."""

    def __init__(
        self,
        *,
        client: Client,
        host: ProviderHost,
        settings: object,
        deployments: MutationCache,
        upstream: UpstreamWatch,
        evidence: EvidenceCollector,
        events: EventRecorder,
        kubernetes: Callable[[], tuple[int, int]],
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._host = host
        self._settings = settings
        self._deployments = deployments
        self._upstream = upstream
        self._evidence = evidence
        self._events = events
        self._kubernetes = kubernetes
        self._clock = clock
        self._manager = names.provider_manager(host.name)
        self._finalizer = names.provider_finalizer(host.name)
        writer = Writer(client=client, host=host, upstream=upstream)
        self._executor = Executor(writer=writer, events=events)
        self._previewer = Previewer(writer)
        self._status = StatusWriter(
            client=client, kind=MODEL_DEPLOYMENT, objects=deployments, manager=self._manager, on_write=log_phase
        )
        self._releaser = Releaser(
            writer=writer,
            deployments=deployments,
            events=events,
            status=self._status,
            finalizer=self._finalizer,
            clock=clock,
        )
        self._memories: dict[ObjectKey, Memory] = {}

    def concerns(self, deployment: Resource) -> bool:
        """Whether this deployment is, or was, the provider's."""
        mine = dig(deployment, "status", "provider", "name") == self._host.name
        return mine or self._finalizer in finalizers_of(deployment)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Bring one deployment to where it should be; returns the seconds after which to look again, or None.

        Raises KubeError for a failure that passes: the queue brings the next pass.
        """
        deployment = self._deployments.get(key)
        if deployment is None or not self.concerns(deployment):
            self._forget(key)
            return None
        memory = self._memories.setdefault(key, Memory())
        seen = await self._gather(deployment)
        intent = intent_of(seen, self._host, settings=self._settings)
        if intent.do is Do.NOTHING:
            return None
        if intent.do is Do.RELEASE:
            return await self._release(seen, memory)
        observed = observe(self._host, intent, seen)
        decision = plan(seen, self._host, intent, observed, settings=self._settings, waiting=memory.waiting)
        try:
            outcome = await self._apply(seen, decision, memory)
        except KubeError as error:  # what lasts is told, and the queue brings the next try
            await self._report(seen, decision, _outage(seen, memory, error), observed, memory)
            raise
        if outcome.live is not None:
            seen = await self._gather_again(seen, outcome.live, outcome.primary)
            observed = observe(self._host, decision, seen)
        wake = await self._report(seen, decision, outcome, observed, memory)
        return outcome.again if outcome.held else _soonest(outcome.again, wake)

    async def _release(self, seen: Seen, memory: Memory) -> float | None:
        memory.faults.clear()
        again = await self._releaser.release(seen, memory)
        if self._finalizer not in finalizers_of(self._deployments.get(seen.key) or {}):
            self._forget(seen.key)
        return again

    def _forget(self, key: ObjectKey) -> None:
        self._memories.pop(key, None)
        self._releaser.forget(key)

    # ------------------------------------------------------------------------------------------------------ gather

    async def _gather(self, deployment: Resource) -> Seen:
        key = key_of(deployment)
        live = self._upstream.known(key)
        seen = Seen(
            provider=self._host.name,
            deployment=deployment,
            live=live,
            selected=(),
            find=lambda wanted: self._upstream.known(key, wanted),
            evidence=None,
            events=(),
            installed=self._upstream.verdicts,
            settled=self._evidence.settled() and not self._upstream.unread() and not self._upstream.awaits(live),
            rolled_out=True,
            kubernetes=self._kubernetes(),
            now=self._clock(),
        )
        return seen if seen.primary is None else await self._look_behind(seen, seen.primary)

    async def _gather_again(self, seen: Seen, live: Mapping[Identity, Resource], primary: Resource | None) -> Seen:
        """What there is after the writes."""
        after = replace(seen, live=live, written=primary)
        if after.primary is None or seen.primary is not None:
            return after
        # It was made just now: that no pod is there yet belongs into the first status, not into one more.
        return await self._look_behind(after, after.primary)

    async def _look_behind(self, seen: Seen, primary: Resource) -> Seen:
        """With what stands behind the primary object: pods, their events, what else the plugin selects."""
        deployment = seen.deployment
        selected = self._upstream.selected(seen.key.namespace, key_of(primary).name)
        evidence = await self._evidence.of(deployment, primary, selected)
        return replace(
            seen,
            selected=selected,
            evidence=evidence,
            events=self._evidence.told((*seen.ours, *selected)),
            rolled_out=evidence is None or await self._is_rolled_out(seen, evidence),
        )

    async def _is_rolled_out(self, seen: Seen, evidence: Evidence) -> bool:
        """Whether pods that are ready are of this generation, as far as their controller can tell.

        Asked only while that decides something: pods that were made after our last change are of it, and what is Ready
        for this generation stays so.
        """
        applied, ready = seen.applied, condition_of(seen.deployment, "Ready") or {}
        generation = seen.deployment["metadata"].get("generation")
        if applied is None or (ready.get("status"), ready.get("observedGeneration")) == ("True", generation):
            return True
        before = [pod for pod in evidence.pods if pod.created is None or pod.created <= applied]
        if not before or not all(pod.ready for pod in evidence.pods if pod.alive and pod.serves):
            return True
        return await self._evidence.workloads.rolled_out(before)

    # --------------------------------------------------------------------------------------------------------- act

    async def _apply(self, seen: Seen, decision: Decision, memory: Memory) -> Outcome:
        """Do what was decided, unless the same has just failed. Raises KubeError for a failure that passes."""
        if decision.do is Do.WATCH:
            memory.failing = None
            at_fault = any(told.reason == "ProviderError" for told in decision.said)
            return Outcome(again=_FAULT_RETRY if at_fault else None)
        standing = memory.tries.standing(self._subject(seen, decision))
        if standing is None:
            try:
                outcome = await self._do(seen, decision, memory)
            except Refused as no:
                log.info("%s: %s", seen.key, no)
                standing = self._failed(seen, decision, memory, no)
            except KubeError as trouble:
                self._failed(seen, decision, memory, trouble)
                raise
            else:
                refused = (told for told in outcome.said if told.condition == "DryRun" and told.reason != "Planned")
                if (planned := next(refused, None)) is None:
                    memory.tries.over()
                    memory.failing = None
                    return outcome
                standing = self._failed(seen, decision, memory, planned)
        if isinstance(standing.what, KubeError):
            return replace(_outage(seen, memory, standing.what), again=standing.left, held=True)
        memory.failing = None
        if isinstance(standing.what, Told):
            return Outcome(said=_planned(seen, standing.what), again=standing.left)
        return told_of(seen, decision, standing.what, memory, attempt=standing.attempt, left=standing.left)

    def _failed(self, seen: Seen, decision: Decision, memory: Memory, failure: Failure) -> Standing[Failure]:
        # The subject as it is now: what this very try has changed upstream must not bring the next one.
        return memory.failed(self._subject(seen, decision), failure)

    async def _do(self, seen: Seen, decision: Decision, memory: Memory) -> Outcome:
        if decision.do is Do.PREVIEW:
            planned = await self._previewer.publish(seen, decision.objects, decision.plan)
            return Outcome(said=_planned(seen, planned))
        await self._previewer.withdraw(seen.deployment)
        if decision.do is Do.SUSPEND:
            gone = await self._releaser.remove_objects(seen)
            text = "Suspended" if gone else "Suspending: the upstream resources are being removed"
            told = Told(component="Suspend", reason="Suspended", message=text, hinders=True, waits=True)
            return Outcome(said=(told,), live={})  # what still goes away counts no more
        try:
            await self._hold(seen.deployment)
        except NotFound:
            return Outcome(silent=True)  # deleted a moment ago: the watch says so next
        assert decision.plan is not None, "only what is wanted can be brought about"
        try:
            return await self._executor.bring(seen, decision, decision.plan, memory)
        except Occupied:  # the caches know our own objects only
            found = await self._executor.look_up(seen, decision.objects)
        again = plan_of(
            decision.objects, found, deployment=seen.deployment, provider=self._host.name, dead=decision.dead
        )
        return await self._executor.bring(seen, decision, again, memory, sure=True)

    async def _hold(self, deployment: Resource) -> None:
        """Put our finalizer on, and change nothing else of what is the user's."""
        if self._finalizer not in finalizers_of(deployment):
            with self._deployments.writing(key_of(deployment)):
                answer = await add_finalizer(
                    self._client, MODEL_DEPLOYMENT, deployment, self._finalizer, manager=self._manager
                )
                self._deployments.note(answer)

    def _subject(self, seen: Seen, decision: Decision) -> Subject:
        """What a try is about: a spec, what it comes to, and the upstream that takes or refuses it."""
        objects = decision.objects
        primary = self._upstream.find(seen.key.namespace, identity_in(objects[0])) if objects else None
        state = primary and (uid_of(primary), dig(primary, "metadata", "generation"), is_deleting(primary))
        digests = (f"{named(obj)} {annotations_of(obj).get(names.SPEC_HASH)}" for obj in objects)
        return Subject(
            uid=uid_of(seen.deployment),
            generation=seen.deployment["metadata"].get("generation", 0),
            wanted=(decision.do.value, *digests),
            upstream=(self._upstream.state, state),
        )

    # ------------------------------------------------------------------------------------------------------ report

    async def _report(
        self,
        seen: Seen,
        decision: Decision,
        outcome: Outcome,
        observed: Observation | PluginFault | None,
        memory: Memory,
    ) -> float | None:
        """Write the status if it differs from what stands there; returns when time alone will change it."""
        if outcome.silent:
            return None
        report = _found(seen, self._host, decision, outcome, observed)
        deployment = self._deployments.get(seen.key)
        if deployment is None or is_deleting(deployment):
            return None
        if seen.held_by and seen.dry_run:
            # The one before us speaks for what runs; of us there is only the plan.
            await self._status.write(deployment, planned_status(deployment, report, now=seen.now))
            return None
        evidence = seen.evidence
        if report.primary is None or report.observation is None:
            evidence = None  # whatever is wrong with an old object and its pods is history
        elif evidence is not None:
            served = record_of_service(report, deployment.get("status") or {})
            evidence = replace(evidence, served=served is not None)
        status, verdict, found = conclude(report, evidence, deployment=deployment, memory=memory, now=seen.now)
        if await self._status.write(deployment, status):
            for said in announcements(deployment, found.report, verdict, cause=found.root_cause):
                self._events.emit(
                    deployment,
                    reason=said.reason,
                    note=said.note,
                    warning=True,
                    action=EVENTS[said.reason].action,
                    related=said.related,
                )
        return _soonest(found.wake_after, None if seen.rolled_out else _ROLL_OUT_RETRY)


def _found(
    seen: Seen, host: ProviderHost, decision: Decision, outcome: Outcome, observed: Observation | PluginFault | None
) -> Report:
    """What was decided and done, and what the plugin makes of what is there now."""
    report = Report(said=(*decision.said, *outcome.said), warnings=decision.warnings, subject=decision.subject)
    primary = seen.primary
    if primary is None:
        return report
    name, kind = key_of(primary).name, str(primary.get("kind"))
    installed = seen.installed.get(identity_in(primary)[:2])
    served = installed.served if installed is not None else ()
    own = next((upstream for upstream in served if upstream.api_version == primary.get("apiVersion")), None)
    report = replace(
        report,
        resource=primary,
        leaving=outcome.leaving is not None,
        schema_hash=own.schema_hash if own is not None else "",
        applied=seen.applied,
        selector=selector_of(host, seen.key.name, name),
        subject=decision.subject or f"{kind}/{seen.key.namespace}/{name}",
        rolled_out=seen.rolled_out,
    )
    if isinstance(observed, PluginFault):
        told = plugin_fault(observed)
        return report if told in report.said else report.with_(told)
    if observed is not None and outcome.leaving is not None:
        observed = leaving(observed, outcome.leaving)
    selector = observed.selector if observed is not None and observed.selector else report.selector
    return replace(report, observation=observed, selector=selector)


def _outage(seen: Seen, memory: Memory, error: KubeError) -> Outcome:
    """What to say of a failure that is tried again and again, once it lasts: in the words of the first of its kind."""
    last = memory.tries.last
    told = memory.outage(last.what if last is not None and isinstance(last.what, KubeError) else error, now=seen.now)
    return Outcome(silent=True) if told is None or seen.held_by else Outcome(said=(told,))


def _soonest(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)


def _planned(seen: Seen, planned: Told) -> tuple[Told, ...]:
    """The plan; where nothing runs, that only a plan was asked for is why."""
    if seen.primary is not None:
        return (planned,)
    return planned, Told(component="DryRun", reason="DryRun", message=planned.message, hinders=True, waits=True)
