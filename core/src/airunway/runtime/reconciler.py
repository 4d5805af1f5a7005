"""One pass over one ModelDeployment, as its provider (spec/providers.md, "The provider runtime").

fetch → deletion → pause → finalizer → can_handle → translate_spec → ownership → recreate or apply → translate_status →
one status apply. Reads come from caches; every write is preceded by a comparison.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment, ParseError, parse_deployment
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, EventRecorder
from airunway.plugins.contract import Context, Observed, Upstream
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, is_deleting, key_of
from airunway.runtime.announcements import announcements
from airunway.runtime.apply import Applied, Applier
from airunway.runtime.diagnosis import applied_at, diagnose, is_ready
from airunway.runtime.durations import Durations, previous_cause
from airunway.runtime.evidence import secrets_of
from airunway.runtime.preview import Previewer, is_asked_for
from airunway.runtime.release import Releaser
from airunway.runtime.rendering import Judgement, desired_objects, judge
from airunway.runtime.report import Done, Report, provider_status
from airunway.runtime.status_writer import StatusWriter
from airunway.runtime.surroundings import Surroundings
from airunway.status import Category, Fault, Phase
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
        self._status = StatusWriter(client=client, deployments=around.deployments, manager=self._manager)
        self._releaser = Releaser(
            client=client,
            around=around,
            events=events,
            status=self._status,
            manager=self._manager,
            finalizer=self._finalizer,
        )
        self._durations = Durations()

    def concerns(self, deployment: Resource) -> bool:
        """Whether this deployment is, or was, the provider's."""
        return self._is_mine(deployment) or self._finalizer in _finalizers(deployment)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Bring one deployment to where it should be; returns the seconds after which to look again, or None."""
        deployment = self._around.deployments.get(key)
        if deployment is None:
            self._durations.forget(key)
            return None
        if not self.concerns(deployment):
            return None
        if is_deleting(deployment) or not self._is_mine(deployment):
            self._durations.forget(key)
            return await self._releaser.release(deployment)
        if annotations_of(deployment).get(names.PAUSED) == "true":
            return None
        if self._is_held_by_another(deployment):
            return None  # the provider before us still cleans up; its finalizer's removal brings us back
        validated = condition_of(deployment, "Validated")
        if validated is None or validated.get("observedGeneration") != deployment["metadata"].get("generation"):
            return None  # the core has not judged this generation yet; its verdict brings us back
        report, again = await self._work(deployment, validated)
        if report is None:
            return again
        evidence = await self._evidence(deployment, report)
        if evidence is not None and not await self._is_rolled_out(deployment, report, evidence):
            report, again = replace(report, rolled_out=False), _ROLL_OUT_RETRY
        wake = await self._publish(key, report, evidence)
        return min((seconds for seconds in (again, wake) if seconds is not None), default=None)

    # ----------------------------------------------------------------------------------------------- finding out

    async def _work(self, deployment: Resource, validated: Resource) -> tuple[Report | None, float | None]:
        """Do what this generation needs. No report means: say nothing yet, look again after the given seconds."""
        installed = self._around.installed
        if validated.get("status") != "True":
            fault = Fault(component="Validated", reason="ValidationFailed", message=str(validated.get("message")))
            return self._watched(deployment, Report(faults=(fault,))), None
        if installed.upstream is None:
            reason = installed.reason
            text = f"Provider '{self._host.name}' CRD not installed in cluster"
            message = text if reason == "UpstreamNotInstalled" else installed.message
            primary = self._host.primary_kind
            subject = f"CustomResourceDefinition/{primary.plural}.{primary.group}"
            if reason != "UnsupportedSchema":
                fault = Fault(component="Upstream", reason=reason, message=message, waits=True)
                return self._watched(deployment, Report(faults=(fault,), subject=subject)), None
            # What runs is never failed because a schema is new; what is not there yet fails, and says so (ruling 13).
            report = Report(compatible=Done(ok=False, reason=reason, message=message), subject=subject)
            if not self._primary_exists(deployment):
                fault = Fault(component="Upstream", reason=reason, message=message, category=Category.WORKLOAD)
                report = replace(report, faults=(fault,))
            return self._watched(deployment, report), None
        if not self._around.settled():
            return None, None  # the caches' first sight of everything brings every deployment back
        try:
            return await self._act(deployment, installed.upstream)
        except (PluginFault, ParseError) as error:
            log.exception("%s: the provider's plugin is at fault", dig(deployment, "metadata", "name"))
            fault = Fault(component="Provider", reason="ProviderError", message=str(error))
            return Report(faults=(fault,), created=self._primary_exists(deployment)), None

    async def _act(self, deployment: Resource, upstream: Upstream) -> tuple[Report | None, float | None]:
        engine = dig(deployment, "status", "engine", "type", default="")
        typed = parse_deployment(deployment)
        upstream = self._as_written(deployment, upstream)
        context = self._context(engine, upstream)
        judged = judge(self._host, typed, context)
        if judged.blockers:
            return self._watched(deployment, _refused(judged), typed=typed, context=context), None
        compatible = Done(
            ok=True,
            reason="CompatibilityVerified" if upstream.verified else "UnverifiedSchema",
            message=f"Configuration compatible with {self._host.manifest.display_name or self._host.name}"
            if upstream.verified
            else self._around.installed.message,
        )
        report = Report(compatible=compatible, warnings=judged.warnings, upstream=upstream)
        if typed.spec.suspend:
            gone = await self._releaser.remove_objects(deployment)
            text = "Suspended" if gone else "Suspending: the upstream resources are being removed"
            return replace(
                report, faults=(Fault(component="Suspend", reason="Suspended", message=text, waits=True),)
            ), None

        desired = desired_objects(self._host, deployment, typed, context, merge=judged.merge)
        if is_asked_for(deployment):
            planned = await self._previewer.publish(deployment, desired)
            fault = Fault(component="DryRun", reason="DryRun", message=planned.message, waits=True)
            exists = self._primary_exists(deployment)
            report = replace(report, dry_run=planned, faults=() if exists else (fault,))
            return self._watched(deployment, report, typed=typed, context=context), None
        await self._previewer.withdraw(deployment)
        await self._hold(deployment)
        applied = await self._applier.bring(deployment, desired, upstream)
        return self._observed(typed, context, report, desired, applied), applied.again

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
        upstream = self._around.installed.upstream or self._written_upstream(primary)
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
                typed = parse_deployment(deployment)
            except ParseError:
                return report  # an invalid spec that cannot even be read: what runs is named, not judged
            engine = dig(deployment, "status", "engine", "type", default="")
            context = self._context(engine, self._as_written(deployment, upstream))
        children = self._around.children.of(key_of(deployment)).values()
        observed = Observed(primary=primary, objects=(primary, *(obj for obj in children if obj is not primary)))
        observation = self._host.translate_status(typed, observed, context)
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
        report = replace(report, primary=primary, applied=applied_at(primary, self._manager))
        observed = Observed(primary=primary, objects=(primary, *applied.others))
        return replace(report, observation=self._host.translate_status(typed, observed, context))

    def _context(self, engine: str, upstream: Upstream) -> Context:
        return Context(
            contract_version=self._host.contract_version,
            engine=engine,
            upstream=upstream,
            settings=self._around.settings.values,
            now=self._around.clock(),
        )

    # --------------------------------------------------------------------------------------------------- writing

    async def _hold(self, deployment: Resource) -> None:
        """Put our finalizer on, by an apply that states nothing else: no field of the spec can be lost by it."""
        if self._finalizer in _finalizers(deployment):
            return
        metadata = deployment["metadata"]
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "finalizers": [self._finalizer],
            },
        }
        answer = await self._client.apply(MODEL_DEPLOYMENT, body, manager=self._manager)
        self._around.deployments.note(answer)

    async def _publish(self, key: ObjectKey, report: Report, evidence: Evidence | None) -> float | None:
        """Write the status if it differs from what stands there; returns when time alone will change it."""
        deployment = self._around.deployments.get(key)
        if deployment is None or is_deleting(deployment):
            return None
        now = self._around.clock()
        live = deployment.get("status") or {}
        found = diagnose(report, evidence, status=live, previous=previous_cause(live), now=now)
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
                self._events.emit(deployment, reason=said.reason, note=said.note, warning=True)
        return min((seconds for seconds in (found.wake_after, verdict.wake_after) if seconds is not None), default=None)

    async def _evidence(self, deployment: Resource, report: Report) -> Evidence | None:
        """What lies behind the primary object, or None if there is none (or nothing may be read)."""
        if report.primary is None or report.observation is None or self._around.evidence is None:
            return None
        found = await self._around.evidence.of(deployment, report.primary)
        if found is None:
            return None
        served = dig(deployment, "status", "phase") in (Phase.RUNNING.value, Phase.DEGRADED.value)
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

    def _is_held_by_another(self, deployment: Resource) -> bool:
        return any(
            finalizer.startswith(f"{names.GROUP}/") and finalizer.endswith("-provider") and finalizer != self._finalizer
            for finalizer in _finalizers(deployment)
        )

    def _as_written(self, deployment: Resource, upstream: Upstream) -> Upstream:
        """The upstream with the transformer that wrote the object which exists.

        An upgrade of the upstream brings a newer transformer, which may write the same deployment in another way. That
        alone must not touch what runs: the newer one is used for objects that are made from then on.
        """
        primary = self._primary_of(deployment)
        written_by = annotations_of(primary).get(names.TRANSFORMER) if primary is not None else None
        for transformer in self._host.transformers:
            if transformer.name == written_by and transformer.api_version == upstream.api_version:
                return replace(upstream, transformer=transformer)
        return upstream

    def _written_upstream(self, primary: Resource | None) -> Upstream | None:
        """The upstream as it was when an object was written, where nothing may be written for its present schema."""
        if primary is None:
            return None
        api_version = str(primary.get("apiVersion"))
        known = [t for t in self._host.transformers if t.api_version == api_version]
        written_by = annotations_of(primary).get(names.TRANSFORMER)
        transformer = next((t for t in known if t.name == written_by), known[-1] if known else None)
        return Upstream(api_version=api_version, transformer=transformer, verified=False) if transformer else None

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
