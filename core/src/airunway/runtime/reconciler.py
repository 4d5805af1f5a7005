"""One pass over one ModelDeployment, as its provider (spec/providers.md, "The provider runtime").

gather (`seen`) → decide (`decision`) → act (`execution`, `release`, `preview`) → report (`report`, `diagnosis`). Each
once, in this order, and none asks the one before it again. Reads come from caches; a write is preceded by a comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import (
    Client,
    EventRecorder,
    KubeError,
    NotFound,
    Overlay,
    StatusWriter,
    add_finalizer,
    retry_after_of,
)
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.process.logs import log_phase
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, is_deleting, key_of, uid_of
from airunway.runtime.answers import Refused
from airunway.runtime.decision import Decision, Do, decide, observe, plugin_fault, report_on
from airunway.runtime.desired import identity_in
from airunway.runtime.diagnosis import applied_at, conclude
from airunway.runtime.evidence import EvidenceCollector
from airunway.runtime.execution import Executor, Outcome, told_of, unchanged
from airunway.runtime.memory import Memory, Subject
from airunway.runtime.preview import Previewer
from airunway.runtime.release import Releaser
from airunway.runtime.report import Report, announcements, leaving, planned_status, record_of_service
from airunway.runtime.seen import Seen, finalizers_of
from airunway.runtime.steps import named
from airunway.runtime.told import Told
from airunway.runtime.upstreams import UpstreamWatch
from airunway.runtime.writes import Writer
from airunway.status.events import EVENTS
from airunway.status.evidence import Evidence

__all__ = ["ProviderReconciler"]

log = logging.getLogger(__name__)

_ROLL_OUT_RETRY = 5.0
"""Seconds until a revision that was not there is looked for again; the pods' own changes come sooner."""

_FAULT_RETRY = 30.0
"""Seconds until a plugin that made a mistake is asked again although nothing changed: it may have been slow once."""


class HeldBack(Exception):
    """A failure that passes stands, and it is too early for another try: `left` seconds (None: no time will do)."""

    def __init__(self, error: KubeError, left: float | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.left = left


class ProviderReconciler:
    """The loop body that every provider shares; the provider itself is only asked pure questions."""

    def __init__(
        self,
        *,
        client: Client,
        host: ProviderHost,
        settings: object,
        deployments: Overlay,
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
        """Bring one deployment to where it should be; returns the seconds after which to look again, or None."""
        deployment = self._deployments.get(key)
        if deployment is None or not self.concerns(deployment):
            self._forget(key)
            return None
        memory = self._memories.setdefault(key, Memory())
        seen = await self._gather(deployment)
        decision = decide(seen, self._host, settings=self._settings)
        match decision.do:
            case Do.NOTHING:
                return None
            case Do.RELEASE:
                memory.faults.clear()
                again = await self._releaser.release(seen, memory)
                if self._finalizer not in finalizers_of(self._deployments.get(key) or {}):
                    self._forget(key)
                return again
        try:
            outcome = await self._act(seen, decision, memory)
        except HeldBack as held:
            await self._report_outage(seen, decision, memory, held.error)
            return held.left
        except KubeError as error:
            first = memory.tries.last  # whose words stay
            said = first.what if first is not None and isinstance(first.what, KubeError) else error
            await self._report_outage(seen, decision, memory, said)
            raise
        memory.failing = None
        if outcome.silent:
            return outcome.again
        if seen.primary is None and outcome.primary is not None:
            # It was made just now: that no pod is there yet belongs into the first status, not into one more.
            seen = await self._look_behind(seen, outcome.primary)
        wake = await self._report(seen, decision, outcome, memory)
        return min((seconds for seconds in (outcome.again, wake) if seconds is not None), default=None)

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
            rolled_out=evidence is None or await self._is_rolled_out(deployment, primary, evidence),
        )

    async def _is_rolled_out(self, deployment: Resource, primary: Resource, evidence: Evidence) -> bool:
        """Whether pods that are ready are of this generation, as far as their controller can tell.

        Asked only while that decides something: pods that were made after our last change are of it, and what is Ready
        for this generation stays so.
        """
        applied = applied_at(primary, self._manager)
        ready = condition_of(deployment, "Ready") or {}
        generation = deployment["metadata"].get("generation")
        if applied is None or (ready.get("status"), ready.get("observedGeneration")) == ("True", generation):
            return True
        before = [pod for pod in evidence.pods if pod.created is None or pod.created <= applied]
        if not before or not all(pod.ready for pod in evidence.pods if pod.alive and pod.serves):
            return True
        return await self._evidence.workloads.rolled_out(before)

    # --------------------------------------------------------------------------------------------------------- act

    async def _act(self, seen: Seen, decision: Decision, memory: Memory) -> Outcome:
        """Do what was decided, unless the same has just failed. Raises KubeError for a failure that passes."""
        if decision.do is Do.WATCH:
            at_fault = any(told.reason == "ProviderError" for told in decision.report.said)
            return unchanged(seen, again=_FAULT_RETRY if at_fault else None)
        subject = self._subject(seen, decision)
        standing = memory.tries.standing(subject)
        if standing is None:
            try:
                outcome = await self._do(seen, decision, memory)
            except Refused as no:
                log.info("%s: %s", seen.key, no)
                # The subject as it is now: what this very try has changed upstream must not bring the next one.
                subject = self._subject(seen, decision)
                standing = memory.tries.failed(subject, what=no, text=no.message, lasts=no.meaning.lasts)
            except KubeError as trouble:
                subject = self._subject(seen, decision)
                memory.tries.failed(subject, what=trouble, text=str(trouble), at_least=retry_after_of(trouble))
                raise
            else:
                planned = next((told for told in outcome.said if told.condition == "DryRun"), None)
                if planned is None or planned.reason == "Planned":
                    memory.tries.over()
                    return outcome
                subject = self._subject(seen, decision)
                standing = memory.tries.failed(subject, what=planned, text=planned.message)
        match standing.what:
            case Refused() as refused:
                return told_of(seen, decision, refused, memory, attempt=standing.attempt, left=standing.left)
            case Told() as planned:
                return unchanged(seen, *_planned(seen, planned), again=standing.left)
            case error:
                raise HeldBack(error, standing.left)

    async def _do(self, seen: Seen, decision: Decision, memory: Memory) -> Outcome:
        if decision.do is Do.PREVIEW:
            planned = await self._previewer.publish(seen, decision.objects, decision.plan)
            return unchanged(seen, *_planned(seen, planned))
        await self._previewer.withdraw(seen.deployment)
        if decision.do is Do.SUSPEND:
            gone = await self._releaser.remove_objects(seen)
            text = "Suspended" if gone else "Suspending: the upstream resources are being removed"
            told = Told(component="Suspend", reason="Suspended", message=text, hinders=True, waits=True)
            return Outcome(said=(told,))
        try:
            await self._hold(seen.deployment)
        except NotFound:
            return Outcome(silent=True)  # deleted a moment ago: the watch says so next
        return await self._executor.bring(seen, decision, memory)

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

    async def _report(self, seen: Seen, decision: Decision, outcome: Outcome, memory: Memory) -> float | None:
        """Write the status if it differs from what stands there; returns when time alone will change it."""
        report = self._found(seen, decision, outcome)
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
        waits = [found.wake_after, None if seen.rolled_out else _ROLL_OUT_RETRY]
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def _found(self, seen: Seen, decision: Decision, outcome: Outcome) -> Report:
        """What was decided and done, and what the plugin makes of what is there now."""
        report = decision.report.with_(*outcome.said)
        primary = outcome.primary
        if primary is None:
            return replace(report, resource=None)
        if seen.primary is None:  # made just now: all that is told of it goes into the first status
            report = replace(report_on(seen, self._host, primary), said=report.said, warnings=report.warnings)
        report = replace(
            report,
            resource=primary,
            leaving=outcome.leaving is not None,
            applied=applied_at(primary, self._manager),
        )
        try:
            observation = observe(self._host, decision, seen, primary=primary, objects=outcome.objects)
        except PluginFault as error:
            log.exception("%s: the provider's plugin is at fault", seen.key)
            return report.with_(plugin_fault(error))
        if observation is not None and outcome.leaving is not None:
            observation = leaving(observation, outcome.leaving)
        selector = observation.selector if observation is not None and observation.selector else report.selector
        return replace(report, observation=observation, selector=selector)

    async def _report_outage(self, seen: Seen, decision: Decision, memory: Memory, error: KubeError) -> None:
        """Say of a failure that is tried again and again what it is, once it lasts."""
        told = memory.outage(error, now=seen.now)
        if told is not None and not seen.held_by:
            await self._report(seen, decision, unchanged(seen, told), memory)


def _planned(seen: Seen, planned: Told) -> tuple[Told, ...]:
    """The plan; where nothing runs, that only a plan was asked for is why."""
    if seen.primary is not None:
        return (planned,)
    return planned, Told(component="DryRun", reason="DryRun", message=planned.message, hinders=True, waits=True)
