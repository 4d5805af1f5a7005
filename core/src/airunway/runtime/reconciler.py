"""One pass over one ModelDeployment, as its provider (spec/providers.md, "The provider runtime").

fetch → deletion → pause → finalizer → can_handle → translate_spec → ownership → recreate or apply → translate_status →
one status apply. Reads come from caches; every write is preceded by a comparison.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from airunway.api import names
from airunway.api.bounds import noted_excess
from airunway.api.modeldeployment import ModelDeployment, ParseError
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, EventRecorder, KubeError, StatusWriter, add_finalizer
from airunway.plugins.contract import Context, Observed, Upstream
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.process.logs import log_phase
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, is_deleting, is_true, key_of
from airunway.runtime.announcements import announcements
from airunway.runtime.apply import Applied, Applier
from airunway.runtime.diagnosis import applied_at, diagnose, is_ready
from airunway.runtime.durations import Durations, previous_cause
from airunway.runtime.evidence import secrets_of
from airunway.runtime.outages import Outages
from airunway.runtime.preview import Previewer, is_asked_for
from airunway.runtime.release import Releaser
from airunway.runtime.rendering import Judgement, desired_objects, judge, observation_of, parsed
from airunway.runtime.report import Done, Report, leaving, planned_status, provider_status, record_of_service
from airunway.runtime.surroundings import Surroundings
from airunway.runtime.tries import HeldBackError, Refusal, Told, Tries
from airunway.runtime.upstream import as_written, upstream_of
from airunway.selection import is_denied
from airunway.status import Category, Fault
from airunway.status.events import EVENTS
from airunway.status.evidence import Evidence

__all__ = ["ProviderReconciler"]

log = logging.getLogger(__name__)

_ROLL_OUT_RETRY = 5.0
"""Seconds until a revision that was not there is looked for again; the pods' own changes come sooner."""


class ProviderReconciler:
    """The loop body that every provider shares; the provider itself is only asked pure questions."""

    def __init__(self, *, client: Client, host: ProviderHost, around: Surroundings, events: EventRecorder) -> None:
        self._client = client
        self._host = host
        self._around = around
        self._events = events
        self._manager = names.provider_manager(host.name)
        self._finalizer = names.provider_finalizer(host.name)
        self._applier = Applier(client=client, around=around, events=events, manager=self._manager)
        self._previewer = Previewer(client=client, around=around, manager=self._manager)
        self._status = StatusWriter(
            client=client,
            kind=MODEL_DEPLOYMENT,
            objects=around.deployments,
            manager=self._manager,
            on_write=log_phase,
        )
        self._releaser = Releaser(
            client=client,
            around=around,
            events=events,
            status=self._status,
            manager=self._manager,
            finalizer=self._finalizer,
        )
        self._durations = Durations()
        self._outages = Outages()
        self._tries = Tries(around)

    def concerns(self, deployment: Resource) -> bool:
        """Whether this deployment is, or was, the provider's."""
        return self._is_mine(deployment) or self._finalizer in _finalizers(deployment)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Bring one deployment to where it should be; returns the seconds after which to look again, or None."""
        deployment = self._around.deployments.get(key)
        if deployment is None:
            self._durations.forget(key)
            self._applier.forget(key)
            self._outages.over(key)
            self._tries.forget(key)
            self._releaser.forget(key)
            return None
        if not self.concerns(deployment):
            return None
        mine, frozen = self._is_mine(deployment), is_asked_for(deployment)
        if is_deleting(deployment):
            return await self._release(deployment)
        if annotations_of(deployment).get(names.PAUSED) == "true":
            return None
        if not mine:
            # A dry run changes nothing upstream: what we made stays until it is over.
            return None if frozen else await self._release(deployment)
        validated = condition_of(deployment, "Validated")
        if validated is None or validated.get("observedGeneration") != deployment["metadata"].get("generation"):
            return None  # the core has not judged this generation yet; its verdict brings us back
        denied = is_true(deployment, "Validated") and is_denied(deployment, self._host.name)
        if denied and not self._primary_exists(deployment):
            return None  # chosen past the policy: the core is about to say so
        other = self._held_by(deployment)
        if other and not frozen:
            return await self._wait_for(other, deployment)
        try:
            report, again = await self._work(deployment, validated)
        except HeldBackError as held:
            await self._say_outage(deployment, held.error)
            return held.left
        except KubeError as error:
            await self._say_outage(deployment, self._tries.told_of(key, error))
            raise
        self._outages.over(key)
        if report is None:
            return again
        if other:
            # The one before us speaks for what runs; of us there is only the plan.
            await self._status.write(deployment, planned_status(deployment, report, now=self._around.clock()))
            return again
        evidence = await self._evidence(deployment, report)
        if evidence is not None and not await self._is_rolled_out(deployment, report, evidence):
            report, again = replace(report, rolled_out=False), _ROLL_OUT_RETRY
        wake = await self._publish(key, report, evidence)
        return min((seconds for seconds in (again, wake) if seconds is not None), default=None)

    # ----------------------------------------------------------------------------------------------- finding out

    async def _work(self, deployment: Resource, validated: Resource) -> tuple[Report | None, float | None]:
        """Do what this generation needs. No report means: say nothing yet, look again after the given seconds."""
        try:
            return await self._work_on(deployment, validated)
        except (PluginFault, ParseError) as error:
            log.exception("%s: the provider's plugin is at fault", dig(deployment, "metadata", "name"))
            fault = Fault(component="Provider", reason="ProviderError", message=str(error))
            return Report(faults=(fault,), created=self._primary_exists(deployment)), None

    async def _work_on(self, deployment: Resource, validated: Resource) -> tuple[Report | None, float | None]:
        installed = self._around.installed
        large = "; ".join(f"{each.path}: {each.message}" for each in noted_excess(deployment))
        if validated.get("status") != "True" or large:
            message = f"Validation failed: {large}" if large else str(validated.get("message"))
            fault = Fault(component="Validated", reason="ValidationFailed", message=message)
            return self._watched(deployment, Report(faults=(fault,))), None
        if installed.upstream is None:
            reason, message = installed.reason, installed.message
            if reason != "UnsupportedSchema":
                return self._without_upstream(deployment, reason, message), None
            primary = self._host.primary_kind
            subject = f"CustomResourceDefinition/{primary.plural}.{primary.group}"
            # What runs is never failed because a schema is new; what is not there yet fails, and says so (ruling 13).
            report = Report(compatible=Done(ok=False, reason=reason, message=message), subject=subject)
            if not self._primary_exists(deployment):
                fault = Fault(component="Upstream", reason=reason, message=message, category=Category.WORKLOAD)
                report = replace(report, faults=(fault,))
            return self._watched(deployment, report), None
        if not self._around.settled():
            return None, None  # the caches' first sight of everything brings every deployment back
        return await self._act(deployment, installed.upstream)

    def _without_upstream(self, deployment: Resource, reason: str, message: str) -> Report:
        """Nothing can be written, for the upstream is not there (any more, or yet)."""
        primary = self._host.primary_kind
        if reason == "UpstreamNotInstalled":
            message = f"Provider '{self._host.name}' CRD not installed in cluster"
        fault = Fault(component="Upstream", reason=reason, message=message, waits=True)
        subject = f"CustomResourceDefinition/{primary.plural}.{primary.group}"
        return self._watched(deployment, Report(faults=(fault,), subject=subject))

    async def _act(self, deployment: Resource, upstream: Upstream) -> tuple[Report | None, float | None]:
        engine = dig(deployment, "status", "engine", "type", default="")
        typed = parsed(deployment)
        upstream = self._as_written(deployment, upstream)
        context = self._context(engine, upstream)
        judged = judge(self._host, typed, context)
        if judged.blockers and not typed.spec.suspend:
            return self._watched(deployment, _refused(judged), typed=typed, context=context), None
        compatible = Done(
            ok=True,
            reason="CompatibilityVerified" if upstream.verified else "UnverifiedSchema",
            message=f"Configuration compatible with {self._host.manifest.display_name or self._host.name}"
            if upstream.verified
            else self._around.installed.message,
        )
        if judged.blockers:
            compatible = _refused(judged).compatible or compatible  # stopping it needs no translation
        report = Report(compatible=compatible, warnings=judged.warnings, upstream=upstream)
        wanted = [] if typed.spec.suspend else self._desired(deployment, typed, context, judged)
        outcome = await self._tries.run(
            deployment, wanted, lambda: self._do(deployment, wanted, upstream, suspended=typed.spec.suspend)
        )
        match outcome:
            case Told(done=done, left=left):
                fault = Fault(component="DryRun", reason="DryRun", message=done.message, waits=True)
                report = replace(report, dry_run=done, faults=() if self._primary_exists(deployment) else (fault,))
                return self._watched(deployment, report, typed=typed, context=context), left
            case bool():  # whether what is suspended is gone
                text = "Suspended" if outcome else "Suspending: the upstream resources are being removed"
                fault = Fault(component="Suspend", reason="Suspended", message=text, waits=True)
                return replace(report, faults=(fault,)), None
            case Refusal() if outcome.of(wanted[0], "UpstreamNotInstalled"):
                return self._without_upstream(deployment, "UpstreamNotInstalled", ""), outcome.left
            case Refusal():
                applied = self._applier.told(wanted, outcome, upstream)
            case _:
                applied = outcome
        return self._observed(typed, context, report, wanted, applied), applied.again

    async def _do(
        self, deployment: Resource, wanted: list[Resource], upstream: Upstream, *, suspended: bool
    ) -> Done | bool | Applied:
        if is_asked_for(deployment):
            return await self._previewer.publish(deployment, wanted)
        await self._previewer.withdraw(deployment)
        if suspended:
            return await self._releaser.remove_objects(deployment)
        await self._hold(deployment)
        return await self._applier.bring(deployment, wanted, upstream)

    def _desired(
        self, deployment: Resource, typed: ModelDeployment, context: Context, judged: Judgement
    ) -> list[Resource]:
        return desired_objects(self._host, deployment, typed, context, merge=judged.merge)

    def _watched(
        self,
        deployment: Resource,
        report: Report,
        *,
        typed: ModelDeployment | None = None,
        context: Context | None = None,
    ) -> Report:
        """Add what is seen of an upstream object that exists while nothing may be done about it."""
        primary = self._primary_of(deployment)
        upstream = self._around.installed.upstream or upstream_of(primary, self._host.transformers)
        if primary is None or upstream is None:
            return replace(report, created=primary is not None)
        name = key_of(primary).name
        report = replace(
            report,
            created=True,
            upstream=upstream,
            resource=(name, str(primary.get("kind"))),
            selector=self._selector(name),
        )
        if typed is None or context is None:
            try:
                typed = parsed(deployment)
            except ParseError:
                return report  # an invalid spec that cannot even be read: what runs is named, not judged
            engine = dig(deployment, "status", "engine", "type", default="")
            context = self._context(engine, self._as_written(deployment, upstream))
        children = self._around.children.of(key_of(deployment)).values()
        observed = Observed(primary=primary, objects=(primary, *(obj for obj in children if obj is not primary)))
        observation = observation_of(self._host, typed, observed, context)
        return replace(report, primary=primary, observation=observation, applied=applied_at(primary, self._manager))

    def _observed(
        self, typed: ModelDeployment, context: Context, report: Report, desired: list[Resource], applied: Applied
    ) -> Report | None:
        if applied.silent:
            return None
        primary = applied.primary
        name, kind = desired[0]["metadata"]["name"], desired[0]["kind"]
        report = replace(
            report,
            compatible=applied.incompatible or report.compatible,
            resource_created=applied.done,
            created=primary is not None,
            resource=(name, kind) if primary is not None else None,
            faults=(*report.faults, *applied.faults),
            drift_fight=applied.fight,
            selector=self._selector(name),
            running_message=f"{kind} {name} is ready",
            subject=f"{kind}/{desired[0]['metadata']['namespace']}/{name}",
        )
        if primary is None:
            return report
        observed = Observed(primary=primary, objects=(primary, *applied.others))
        observation = observation_of(self._host, typed, observed, context)
        if applied.recreating:
            # Whatever is wrong with the old object and its pods is history: it neither decides nor delays anything.
            return replace(report, observation=leaving(observation, applied.faults[0]))
        report = replace(report, primary=primary, applied=applied_at(primary, self._manager))
        return replace(report, observation=observation)

    def _context(self, engine: str, upstream: Upstream) -> Context:
        return Context(
            contract_version=self._host.contract_version,
            engine=engine,
            upstream=upstream,
            settings=self._around.settings.values,
            now=self._around.clock(),
        )

    # --------------------------------------------------------------------------------------------------- writing

    async def _release(self, deployment: Resource) -> float | None:
        self._durations.forget(key_of(deployment))
        self._applier.forget(key_of(deployment))
        self._tries.forget(key_of(deployment))
        return await self._releaser.release(deployment)

    async def _wait_for(self, other: str, deployment: Resource) -> float | None:
        """Say that the provider before us still cleans up; the removal of its finalizer brings us back."""
        text = (
            f"Waiting until provider '{other}' has removed what it made. If it does not run any more, delete that "
            f"by hand, and then the finalizer {names.provider_finalizer(other)} of this ModelDeployment"
        )
        fault = Fault(component="Handover", reason="WaitingForProvider", message=text, waits=True)
        return await self._publish(key_of(deployment), Report(faults=(fault,)), None)

    async def _hold(self, deployment: Resource) -> None:
        """Put our finalizer on, and change nothing else of what is the user's."""
        if self._finalizer not in _finalizers(deployment):
            answer = await add_finalizer(
                self._client, MODEL_DEPLOYMENT, deployment, self._finalizer, manager=self._manager
            )
            self._around.deployments.note(answer)

    async def _say_outage(self, deployment: Resource, error: KubeError) -> None:
        """Say of a failure that is tried again and again what it is, once it lasts."""
        fault = self._outages.note(key_of(deployment), error, now=self._around.clock())
        if fault is not None and not self._held_by(deployment):
            done = Done(ok=False, reason=fault.reason, message=fault.message)
            report = self._watched(deployment, Report(resource_created=done, faults=(fault,)))
            await self._publish(key_of(deployment), report, None)

    async def _publish(self, key: ObjectKey, report: Report, evidence: Evidence | None) -> float | None:
        """Write the status if it differs from what stands there; returns when time alone will change it."""
        deployment = self._around.deployments.get(key)
        if deployment is None or is_deleting(deployment):
            return None
        now = self._around.clock()
        live = deployment.get("status") or {}
        found = diagnose(report, evidence, deployment=deployment, previous=previous_cause(live), now=now)
        begun = self._durations.date(key, found.faults, status=live, now=now)
        status, verdict = provider_status(
            deployment,
            found.report,
            faults=[replace(fault, since=begun[fault.component, fault.reason]) for fault in found.faults],
            root_cause=found.root_cause,
            now=now,
        )
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
        return min((seconds for seconds in (found.wake_after, verdict.wake_after) if seconds is not None), default=None)

    async def _evidence(self, deployment: Resource, report: Report) -> Evidence | None:
        """What lies behind the primary object, or None if there is none (or nothing may be read)."""
        if report.primary is None or report.observation is None or self._around.evidence is None:
            return None
        found = await self._around.evidence.of(deployment, report.primary)
        if found is None:
            return None
        served = record_of_service(report, deployment.get("status") or {}) is not None
        return replace(found, served=served, secrets=secrets_of(deployment["spec"]))

    async def _is_rolled_out(self, deployment: Resource, report: Report, evidence: Evidence) -> bool:
        """Whether what the upstream calls ready is of this generation, as far as its pods' controller can tell.

        Asked once for each change: pods that were made after our last change are of it, and what is Ready for this
        generation stays so.
        """
        if report.observation is None or not is_ready(report.observation) or report.applied is None:
            return True
        ready = condition_of(deployment, "Ready") or {}
        generation = deployment["metadata"].get("generation")
        if (ready.get("status"), ready.get("observedGeneration")) == ("True", generation):
            return True
        before = [pod for pod in evidence.pods if pod.created is None or pod.created <= report.applied]
        if not before or self._around.evidence is None:
            return True
        return await self._around.evidence.rolled_out(before)

    # --------------------------------------------------------------------------------------------------- reading

    def _is_mine(self, deployment: Resource) -> bool:
        return bool(dig(deployment, "status", "provider", "name") == self._host.name)

    def _held_by(self, deployment: Resource) -> str:
        """Another provider, which has not yet cleaned up what it made; empty if there is none."""
        others = (names.provider_of_finalizer(finalizer) for finalizer in _finalizers(deployment))
        return next((other for other in others if other not in ("", self._host.name)), "")

    def _as_written(self, deployment: Resource, upstream: Upstream) -> Upstream:
        return as_written(upstream, self._primary_of(deployment), self._host.transformers)

    def _selector(self, primary: str) -> str:
        """What selects the deployment's pods: the scale subresource needs it, and with it every HPA."""
        label = self._host.manifest.pod_label
        return f"{label}={primary}" if label else ""

    def _primary_exists(self, deployment: Resource) -> bool:
        return self._primary_of(deployment) is not None

    def _primary_of(self, deployment: Resource) -> Resource | None:
        wanted = self._host.primary_kind.kind
        children = self._around.children.of(key_of(deployment))
        return next((obj for (kind, _), obj in children.items() if kind.kind == wanted), None)


def _refused(judged: Judgement) -> Report:
    """The provider cannot do it: nothing is created, what runs is left alone."""
    reason = judged.blockers[0].reason
    message = "; ".join(finding.message for finding in judged.blockers)
    return Report(
        compatible=Done(ok=False, reason=reason, message=message),
        faults=(Fault(component="ProviderCompatible", reason=reason, message=message),),
        warnings=judged.warnings,
    )


def _finalizers(deployment: Resource) -> list[str]:
    return dig(deployment, "metadata", "finalizers") or []
