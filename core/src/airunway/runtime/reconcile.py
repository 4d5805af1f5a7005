"""Reconciles one ModelDeployment as its provider (docs/providers/contract.md).

A pass is: gather → intent → observe → plan → apply → observe again if something was written → report.
`ProviderReconciler.reconcile` reads downward. Reads come from caches; a write is preceded by a comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from airunway.api import names
from airunway.configs.resolution import status_policy_of
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import (
    Client,
    EventRecorder,
    KubeError,
    MutationCache,
    NotFound,
    StatusWriter,
    add_finalizer,
    soonest,
)
from airunway.owned.objects import Identity, identity_in, named
from airunway.owned.writer import NameTaken, Refused
from airunway.plugins.contract import Observation
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.process.logs import log_phase
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    condition_of,
    dig,
    finalizers_of,
    is_deleting,
    key_of,
    uid_of,
)
from airunway.runtime import preview
from airunway.runtime.apply import Cleanup, Executor, Outcome, refusal_outcome, upstream_writer
from airunway.runtime.autoscaling import CONDITION as AUTOSCALER
from airunway.runtime.autoscaling import autoscaler_result
from airunway.runtime.diagnosis import conclude
from airunway.runtime.evidence import EvidenceCollector
from airunway.runtime.gate import config_secrets, core_faults
from airunway.runtime.informers import UpstreamInformers
from airunway.runtime.memory import Failure, Memory, RetryKey
from airunway.runtime.plan import Decision, Do, intent_of, observe, plan, plan_of, plugin_fault
from airunway.runtime.report import (
    Report,
    StepResult,
    announcements,
    leaving,
    planned_status,
    record_of_service,
    unread_status,
)
from airunway.runtime.state import ClusterState
from airunway.runtime.translate import selector_of
from airunway.status.evidence import Evidence

log = logging.getLogger(__name__)

_ROLL_OUT_RETRY = 5.0
"""Seconds until a missing revision is read again; changes of the pods trigger it earlier."""

_FAULT_RETRY = 30.0
"""Seconds until a failed plugin is called again without a change: it may only have been slow once."""


class ProviderReconciler:
    """Reconciles the deployments of one provider. The provider's plugin has only pure functions."""

    def __init__(
        self,
        *,
        client: Client,
        host: ProviderHost,
        settings: object,
        deployments: MutationCache,
        upstream: UpstreamInformers,
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
        writer = self._writer = upstream_writer(client, host, upstream)
        self._executor = Executor(writer=writer, events=events)
        self._status = StatusWriter(
            client=client, kind=MODEL_DEPLOYMENT, objects=deployments, manager=self._manager, on_write=log_phase
        )
        self._cleanup = Cleanup(
            writer=writer,
            upstream=upstream,
            deployments=deployments,
            events=events,
            status=self._status,
            finalizer=self._finalizer,
            clock=clock,
        )
        self._memories: dict[ObjectKey, Memory] = {}

    def concerns(self, deployment: Resource) -> bool:
        """Whether this deployment is the provider's, or has its finalizer still."""
        mine = dig(deployment, "status", "provider", "name") == self._host.name
        return mine or self._finalizer in finalizers_of(deployment)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile one deployment; returns the seconds until the next reconcile, or None.

        Example: 5 replicas are wanted and the upstream object has 4: one update, and a status with 4/5. Raises
        KubeError for a transient failure: the queue retries.
        """
        deployment = self._deployments.get(key)
        if deployment is None or not self.concerns(deployment):
            self._forget(key)
            return None
        memory = self._memories.setdefault(key, Memory())
        state = await self._gather(deployment, memory)
        intent = intent_of(state, self._host, settings=self._settings)
        if intent.do is Do.SKIP:
            return None
        if intent.do is Do.FINALIZE:
            return await self._release(state, memory)
        observed = observe(self._host, intent, state)
        decision = plan(state, self._host, intent, observed, settings=self._settings, waiting=memory.waiting)
        try:
            outcome = await self._apply(state, decision, memory)
        except KubeError as error:  # reported once it lasts; the queue retries
            await self._report(state, decision, _outage(state, memory, error), observed, memory)
            raise
        if outcome.live is not None:
            state = await self._gather_again(state, outcome.live, outcome.primary)
            observed = observe(self._host, decision, state)
        wake = soonest(await self._report(state, decision, outcome, observed, memory), memory.read_on(state.evidence))
        memory.announced = outcome.announced or memory.announced
        return outcome.again if outcome.backing_off else soonest(outcome.again, wake)

    async def _release(self, state: ClusterState, memory: Memory) -> float | None:
        memory.faults.clear()
        again = await self._cleanup.release(state, memory)
        if self._finalizer not in finalizers_of(self._deployments.get(state.key) or {}):
            self._forget(state.key)
        return again

    def _forget(self, key: ObjectKey) -> None:
        self._memories.pop(key, None)
        self._cleanup.forget(key)

    # ------------------------------------------------------------------------------------------------------ gather

    async def _gather(self, deployment: Resource, memory: Memory) -> ClusterState:
        key = key_of(deployment)
        live = self._upstream.known(key)
        state = ClusterState(
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
        if state.primary is None:
            return state
        return await self._with_pods(state, state.primary)

    async def _gather_again(
        self, state: ClusterState, live: Mapping[Identity, Resource], primary: Resource | None
    ) -> ClusterState:
        """The state after the writes."""
        after = replace(state, live=live, written=primary)
        if after.primary is None or state.primary is not None:
            return after
        # It was just created: the first status must already contain that there are no pods.
        return await self._with_pods(after, after.primary)

    async def _with_pods(self, state: ClusterState, primary: Resource) -> ClusterState:
        """The state with pods, their events, and the objects that the plugin selects for the primary object."""
        deployment = state.deployment
        selected = self._upstream.selected(state.key.namespace, key_of(primary).name)
        evidence = await self._evidence.of(deployment, primary, selected)
        if evidence is not None:
            evidence = replace(evidence, secrets={**config_secrets(state), **evidence.secrets})
        return replace(
            state,
            selected=selected,
            evidence=evidence,
            events=self._evidence.events_about((*state.ours, *selected)),
            rolled_out=evidence is None or await self._is_rolled_out(state, evidence),
        )

    async def _is_rolled_out(self, state: ClusterState, evidence: Evidence) -> bool:
        """Whether the ready pods are of this generation, as far as their controller reports it.

        It is read only while it matters: pods that were created after our last change are of this generation, and a
        deployment that is Ready for this generation stays so.
        """
        applied, ready = state.applied, condition_of(state.deployment, "Ready") or {}
        generation = state.deployment["metadata"].get("generation")
        if applied is None or (ready.get("status"), ready.get("observedGeneration")) == ("True", generation):
            return True
        before = [pod for pod in evidence.pods if pod.created is None or pod.created <= applied]
        if not before or not all(pod.ready for pod in evidence.pods if pod.alive and pod.serves):
            return True
        return await self._evidence.workloads.rolled_out(before)

    # --------------------------------------------------------------------------------------------------------- act

    async def _apply(self, state: ClusterState, decision: Decision, memory: Memory) -> Outcome:
        """Carry the decision out, unless the same try has just failed. Raises KubeError for a transient failure."""
        if decision.do is Do.OBSERVE_ONLY:
            memory.failing = None
            at_fault = any(result.reason == "ProviderError" for result in decision.results)
            return Outcome(again=_FAULT_RETRY if at_fault else None, silent=decision.silent)
        last = memory.tries.last
        failed_try = memory.tries.failed_try(self._retry_key(state, decision)) if last is not None else None
        if failed_try is None:
            failure: Failure | None
            try:
                outcome = await self._do(state, decision, memory)
                dry_run = (result for result in outcome.results if result.condition == "DryRun")
                failure = next((result for result in dry_run if result.reason != "Planned"), None)
            except Refused as no:
                log.info("%s: %s", state.key, no)
                failure = no
            except KubeError as trouble:
                memory.failed(self._retry_key(state, decision), trouble)
                raise
            if failure is None:
                memory.tries.reset()
                memory.failing = None
                return outcome
            # The subject after the try: changes that the try itself made upstream must not trigger the next one.
            failed_try = memory.failed(self._retry_key(state, decision), failure)
        if isinstance(failed_try.failure, KubeError):
            return replace(_outage(state, memory, failed_try.failure), again=failed_try.left, backing_off=True)
        memory.failing = None
        if isinstance(failed_try.failure, StepResult):
            return Outcome(results=_planned(state, failed_try.failure), again=failed_try.left)
        return refusal_outcome(
            state, decision, failed_try.failure, memory, attempt=failed_try.attempt, left=failed_try.left
        )

    async def _do(self, state: ClusterState, decision: Decision, memory: Memory) -> Outcome:
        if decision.do is Do.PREVIEW:
            planned = await preview.publish(self._writer, state, decision.objects, decision.plan)
            if decision.gate.planned:
                planned = replace(planned, message=f"{planned.message}; {decision.gate.planned}")
            return Outcome(results=_planned(state, planned))
        await preview.withdraw(self._writer, state.deployment)
        if decision.do is Do.SUSPEND:
            gone = await self._cleanup.remove_objects(state)
            text = "Suspended" if gone else "Suspending: the upstream resources are being removed"
            result = StepResult(component="Suspend", reason="Suspended", message=text, blocks_ready=True, pending=True)
            return Outcome(results=(result,), live={})  # objects that are being deleted do not count
        try:
            await self._add_finalizer(state.deployment)
        except NotFound:
            return Outcome(silent=True)  # just deleted: the watch reports it next
        assert decision.plan is not None, "a decision to apply has a plan"
        try:
            return await self._executor.apply(state, decision, decision.plan, memory)
        except NameTaken:  # the caches know our own objects only
            found = await self._writer.look_up(decision.objects, state.find(decision.objects))
        again = plan_of(
            decision.objects,
            found,
            deployment=state.deployment,
            provider=self._host.name,
            unrecoverable=decision.unrecoverable,
            transformers=self._host.transformers,
        )
        return await self._executor.apply(state, decision, again, memory, looked_up=True)

    async def _add_finalizer(self, deployment: Resource) -> None:
        """Add our finalizer, and nothing else."""
        if self._finalizer not in finalizers_of(deployment):
            with self._deployments.writing(key_of(deployment)):
                answer = await add_finalizer(
                    self._client, MODEL_DEPLOYMENT, deployment, self._finalizer, manager=self._manager
                )
                self._deployments.note(answer)

    def _retry_key(self, state: ClusterState, decision: Decision) -> RetryKey:
        """The subject of a try: the spec, its objects, and the upstream on which the outcome depends."""
        objects = decision.objects
        primary = self._upstream.find(state.key.namespace, identity_in(objects[0])) if objects else None
        primary_state = primary and (uid_of(primary), dig(primary, "metadata", "generation"), is_deleting(primary))
        digests = (f"{named(obj)} {annotations_of(obj).get(names.SPEC_HASH)}" for obj in objects)
        return RetryKey(
            uid=uid_of(state.deployment),
            generation=state.deployment["metadata"].get("generation", 0),
            wanted=(decision.do.value, *digests),
            upstream=(self._upstream.state, primary_state),
        )

    # ------------------------------------------------------------------------------------------------------ report

    async def _report(
        self,
        state: ClusterState,
        decision: Decision,
        outcome: Outcome,
        observed: Observation | PluginFault | None,
        memory: Memory,
    ) -> float | None:
        """Write the status if it differs from the live one; returns the seconds after which time alone changes it."""
        if outcome.silent:
            return None
        report = _report_of(state, self._host, decision, outcome, observed)
        deployment = self._deployments.get(state.key)
        if deployment is None or is_deleting(deployment):
            return None
        if state.previous_provider and state.dry_run:
            # The previous provider still reports the live objects; we report only the plan.
            await self._status.write(deployment, planned_status(deployment, report, now=state.now))
            return None
        if decision.unread:
            await self._status.write(deployment, unread_status(deployment, decision.results[0].message, now=state.now))
            return None
        evidence = state.evidence
        if report.primary is None or report.observation is None:
            evidence = None  # faults of an old object and its pods do not count any more
        elif evidence is not None:
            served = record_of_service(report, deployment.get("status") or {})
            evidence = replace(evidence, served=served is not None)
        status, verdict, found = conclude(report, evidence, deployment=deployment, memory=memory, now=state.now)
        if await self._status.write(deployment, status):
            for event in announcements(deployment, found.report, verdict, cause=found.root_cause):
                self._events.emit(
                    deployment,
                    reason=event.reason,
                    note=event.note,
                    warning=event.warning,
                    action=event.action,
                    related=event.related,
                )
        return soonest(found.wake_after, None if state.rolled_out else _ROLL_OUT_RETRY)


def _report_of(
    state: ClusterState,
    host: ProviderHost,
    decision: Decision,
    outcome: Outcome,
    observed: Observation | PluginFault | None,
) -> Report:
    """The report on the decision, on the outcome of applying it, and on the plugin's last observation."""
    report = Report(
        results=(*decision.results, *outcome.results),
        warnings=decision.warnings,
        subject=decision.subject,
        core_faults=tuple(core_faults(state, host)) if decision.do is not Do.SUSPEND else (),  # nothing is to serve
    )
    policy = status_policy_of(dig(state.deployment, "status", "effectiveRuntimeConfig", "statusPolicy"))
    report = replace(report, grace=policy.grace, patience=policy.patience)
    scaling = None if decision.do is Do.SUSPEND or report.result(AUTOSCALER) else autoscaler_result(state, host)
    if scaling is not None:
        report = replace(report, results=(*report.results, scaling))
    primary = state.primary
    if primary is None:
        return report
    name, kind = key_of(primary).name, str(primary.get("kind"))
    installed = state.installed.get(identity_in(primary)[:2])
    served = installed.served if installed is not None else ()
    own = next((upstream for upstream in served if upstream.api_version == primary.get("apiVersion")), None)
    report = replace(
        report,
        resource=primary,
        leaving=outcome.leaving is not None,
        schema_hash=own.schema_hash if own is not None else "",
        applied=state.applied,
        selector=selector_of(host, state.key.name, name),
        subject=decision.subject or f"{kind}/{state.key.namespace}/{name}",
        rolled_out=state.rolled_out,
        revision=state.revision_hash if state.in_effect else None,
        newer=decision.newer,
    )
    if isinstance(observed, PluginFault):
        result = plugin_fault(observed)
        return report if result in report.results else replace(report, results=(*report.results, result))
    if observed is not None and outcome.leaving is not None:
        observed = leaving(observed, outcome.leaving)
    selector = observed.selector if observed is not None and observed.selector else report.selector
    return replace(report, observation=observed, selector=selector)


def _outage(state: ClusterState, memory: Memory, error: KubeError) -> Outcome:
    """The outcome of a failure that is retried, once it lasts; with the message of the first failure of its kind."""
    last = memory.tries.last
    result = memory.outage(
        last.failure if last is not None and isinstance(last.failure, KubeError) else error, now=state.now
    )
    return Outcome(silent=True) if result is None or state.previous_provider else Outcome(results=(result,))


def _planned(state: ClusterState, planned: StepResult) -> tuple[StepResult, ...]:
    """The plan; if nothing runs, the dry run is also the reason for not being ready."""
    if state.primary is not None:
        return (planned,)
    return planned, StepResult(
        component="DryRun", reason="DryRun", message=planned.message, blocks_ready=True, pending=True
    )
