"""Builds the provider's part of a ModelDeployment's status from what a pass did and observed, and its events. Pure.

Every field here has one writer, the provider (docs/architecture.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airunway.api import names
from airunway.api.bounds import MAX_CAUSES
from airunway.configs.resolution import is_autoscaled
from airunway.plugins.contract import Component, Endpoint, Finding, Observation, Pool
from airunway.plugins.rules import PODS
from airunway.redaction import bounded
from airunway.resource import Resource, condition_of, dig, filled, managed_by
from airunway.status.conditions import IDLE, Condition, as_word, served_before, served_record, written_on
from airunway.status.events import Event
from airunway.status.evidence import parse_moment
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import (
    ALL_READY,
    CAPACITY_PATIENCE,
    DEPENDENCY_GRACE,
    Fault,
    Phase,
    Rollup,
    overall_conditions,
    roll_up,
)
from airunway.status.rootcause import RootCause, root_cause_status


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of one step: a condition, and a fault if it blocks readiness."""

    condition: str = ""
    """Type of the condition; empty if none is written."""
    ok: bool | None = False
    """Status of the condition; None: Unknown."""
    reason: str
    """Reason of the condition and of the fault."""
    message: str
    """Message of both."""
    blocks_ready: bool = False
    """Whether the deployment is not ready because of it; the following fields describe that fault."""
    component: str = ""
    """Component of the fault; empty: the condition's type."""
    pending: bool = False
    """Whether something else must happen first, without a change of the deployment."""
    only_degrades: bool = False
    """Whether the deployment still serves in part."""
    category: Category | None = None
    """Category of the fault if the reason alone does not decide it."""
    since: datetime | None = None
    """When the fault began; None: now."""

    def as_condition(self) -> Condition | None:
        if not self.condition:
            return None
        return Condition(type=self.condition, status=self.ok, reason=self.reason, message=self.message)

    def as_fault(self) -> Fault | None:
        if not self.blocks_ready:
            return None
        return Fault(
            component=self.component or self.condition,
            reason=self.reason,
            message=self.message,
            since=self.since,
            pending=self.pending,
            only_degrades=self.only_degrades,
            category=self.category,
        )


MAX_WARNINGS = 16

WARNING_LIMIT = 256

_NAMED_KEYS = 3

_LONGEST_KEY = 128
"""Maximum number of unknown overrides that the event names, and bytes of each."""

_SECRET = re.compile(r'secrets? "([^"]+)" (?:not found|does not exist)')


@dataclass(frozen=True, kw_only=True)
class Report:
    """The findings of one pass."""

    results: tuple[StepResult, ...] = ()
    """Results of its steps, in the order of the report."""
    resource: Resource | None = None
    """The primary object; None if there is none."""
    leaving: bool = False
    """Whether it is an old object that is being deleted and will be recreated."""
    schema_hash: str = ""
    """Hash of the schema with which it was read."""
    observation: Observation | None = None
    """The plugin's observation."""
    warnings: tuple[Finding, ...] = ()
    """Warnings for the status."""
    subject: str = ""
    """The object of an upstream fault (``Kind/namespace/name``)."""
    applied: datetime | None = None
    """When we last changed the primary object."""
    rolled_out: bool = True
    """False while its pods are known to be of an older revision."""
    selector: str = ""
    """Label selector of the serving pods."""
    core_faults: tuple[Fault, ...] = ()
    """Faults of conditions that the core and its parts write."""
    revision: str | None = None
    """Hash of the revision that the primary object was written from; None: the published one stays."""
    newer: Resource | None = None
    """What the provider would write otherwise; None: what is published stays."""
    grace: timedelta = DEPENDENCY_GRACE
    """How long a dependency may be unreachable before the phase changes."""
    patience: timedelta = CAPACITY_PATIENCE
    """How long missing capacity counts as normal waiting."""

    @property
    def primary(self) -> Resource | None:
        """The primary object, unless it is being deleted: faults of such an object do not count."""
        return None if self.leaving else self.resource

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The runtime's own faults (upstream missing, recreation under way, …)."""
        return tuple(fault for result in self.results if (fault := result.as_fault()) is not None)

    def result(self, condition: str) -> StepResult | None:
        """The last result for the condition of that type."""
        return next((result for result in reversed(self.results) if result.condition == condition), None)


def fault_of(component: Component, since: datetime | None) -> Fault:
    """The fault for a component that is not ready; the category of its reason decides the effect."""
    return Fault(
        component=component.name,
        reason=component.reason,
        message=component.message,
        since=since,
        pending=component.pending,
        only_degrades=component.only_degrades,
        category=Category.UNKNOWN if component.ready is None and component.reason == "Unknown" else None,
    )


def provider_status(
    deployment: Resource,
    report: Report,
    *,
    faults: Sequence[Fault],
    root_cause: RootCause | None = None,
    ready_pods: int | None = None,
    now: datetime,
) -> tuple[Resource, Rollup]:
    """The complete status that the provider owns, and the verdict behind it.

    `faults` are all faults, including the report's, in the order in which they are named. The root cause that the pods
    show sets the verdict's reason and message; so does a component's if that component decides the verdict.

    In a status that is not Ready, at most `ready_pods` replicas count as ready: the upstream's last report may be
    outdated.
    """
    live = deployment.get("status") or {}
    observation = report.observation
    if observation is not None and not observation.up_to_date and not faults:
        faults = [Fault(component="Revision", reason="Progressing", message="The newest revision is not serving yet")]
    record, named = record_of_service(report, live), report.resource or {}
    counts = observation.replicas if observation is not None else None
    idle = " is scaled to zero" if counts is not None and not counts.desired else ""
    verdict = roll_up(
        faults,
        previous=live.get("phase"),
        created=report.resource is not None,
        served=record is not None,
        now=now,
        running_reason=IDLE if idle and is_autoscaled(deployment) else "DeploymentReady",
        running_message=f"{ALL_READY}: {named.get('kind')} {dig(named, 'metadata', 'name')}{idle}",
        grace=report.grace,
        patience=report.patience,
    )
    verdict = _named(verdict, report, root_cause)
    status = _status(deployment, verdict, _conditions(report, verdict), now=now)
    # `now` is the start of the pass: an object that this pass created is newer, and did not serve before its creation.
    served_at = max(filter(None, (now, _made_at(report))))
    serves = verdict.ready is True or _only_sources_hinder(report, faults)
    record = served_record(
        record, ready=serves, generation=status["observedGeneration"], now=served_at, idle=bool(idle)
    )
    if record is not None:
        status["conditions"] = sorted([*status["conditions"], record], key=lambda condition: str(condition["type"]))
    if root_cause is not None:
        status["rootCause"] = root_cause_status(root_cause, field=root_cause.field)
        if not root_cause.field:
            del status["rootCause"]["field"]
    if (obj := report.resource) is not None:
        status["provider"] = filled(
            resourceName=dig(obj, "metadata", "name"),
            resourceKind=obj.get("kind"),
            resourceAPIVersion=obj.get("apiVersion"),
            schemaHash=report.schema_hash[:12],
            revision=dig(live, "provider", "revision") if report.revision is None else report.revision,
            newer=dig(live, "provider", "newer") if report.newer is None else report.newer,
        )
        if report.selector:
            status["selector"] = report.selector
    if counts is not None:
        if ready_pods is not None and not verdict.ready:
            few = min(counts.ready, ready_pods), min(counts.available, ready_pods)
            counts = replace(counts, ready=few[0], available=few[1])
        status["replicas"] = {
            "desired": counts.desired,
            "ready": counts.ready,
            "available": counts.available,
            "summary": f"{counts.ready}/{counts.desired}",
        }
    if observation is not None and observation.endpoint is not None:
        status["endpoint"] = _endpoint(observation.endpoint, observation.pool, deployment)
    warnings = [*report.warnings, *(observation.warnings if observation else ())]
    texts = [*map(warning_text, warnings), *route_warnings(deployment)]
    if texts or _has_warnings_of_another(deployment):
        status["warnings"] = list(dict.fromkeys(texts))[:MAX_WARNINGS]
    return status, verdict


def route_warnings(deployment: Resource) -> list[str]:
    """What the gateway part says of the route although it works."""
    found = dig(deployment, "status", "gateway", "warnings")
    return [f"{OF_ROUTE}{text}" for text in found if isinstance(text, str)] if isinstance(found, list) else []


OF_ROUTE = "spec.gateway: "
"""How these warnings begin."""


def _endpoint(where: Endpoint, pool: Pool | None, deployment: Resource) -> Resource:
    namespace = deployment["metadata"].get("namespace", "")
    scheme = where.url.partition(":")[0] if where.url else where.scheme
    found: Resource = {"service": where.service, "port": where.port} if where.service else {}
    found |= {"scheme": scheme, "url": where.url or f"{scheme}://{where.service}.{namespace}.svc:{where.port}"}
    if where.target_port:
        found["targetPort"] = where.target_port
    if pool is not None:
        found["pool"] = {"name": pool.name, "port": pool.port}
        if pool.holds_requests is not None:
            found["pool"]["holdsRequests"] = pool.holds_requests
    return found


def _has_warnings_of_another(deployment: Resource) -> bool:
    """Whether the status has warnings of a previous provider; they stay until they are overwritten."""
    if not dig(deployment, "status", "warnings"):
        return False
    manager = names.provider_manager(str(dig(deployment, "status", "provider", "name", default="")))
    ours = managed_by(deployment, manager)
    return not any(dig(entry, "fieldsV1", "f:status", "f:warnings") is not None for entry in ours)


def _named(verdict: Rollup, report: Report, cause: RootCause | None) -> Rollup:
    """The verdict with the root cause's reason and message (they name the remedy) if a workload's fault decided it."""
    if cause is None or verdict.fault is None or not _is_of_workload(verdict, report):
        return verdict
    if not cause.of_pods and cause.reason != verdict.fault.reason:
        return verdict
    reason = "AuthFailed" if category_of(cause.reason) is Category.AUTH else cause.reason
    return replace(verdict, reason=reason, message=cause.message)


def _is_of_workload(verdict: Rollup, report: Report) -> bool:
    """Whether a fault of the upstream or of the pods decided the verdict."""
    components = {PODS, *(c.name for c in (report.observation.components if report.observation else ()))}
    return verdict.fault is not None and verdict.fault.component in components


CACHE_COMPONENT = "ModelCache"
STORAGE_COMPONENT = "Storage"
GATEWAY_COMPONENT = "Gateway"
_CORE_COMPONENTS = frozenset(
    {"RuntimeConfig", "Template", "Revision", CACHE_COMPONENT, STORAGE_COMPONENT, GATEWAY_COMPONENT}
)
"""Components of the faults of `gate.core_faults`: the core and its parts announce them, not a provider."""


def is_ready(observation: Observation) -> bool:
    """Whether the upstream reports that the newest spec is served."""
    return observation.up_to_date and all(c.ready is True for c in observation.components)


def _only_sources_hinder(report: Report, faults: Sequence[Fault]) -> bool:
    """Whether the object serves, and the deployment is not Ready only because of its config, its template or its route.

    An object that was made while the config was refused serves, too: what it has must not change when the config is
    mended.
    """
    if report.observation is None or not is_ready(report.observation):
        return False
    of_core = _CORE_COMPONENTS - {"Revision"}
    return all(fault.component in of_core and fault.kind is not Category.PROGRESS for fault in faults)


def record_of_service(report: Report, status: Resource) -> Resource | None:
    """The live condition ``Served``, if it is about the report's object."""
    if report.resource is None:
        return None
    return served_before(status, created=_made_at(report))


def _made_at(report: Report) -> datetime | None:
    return parse_moment(dig(report.primary, "metadata", "creationTimestamp"))


def warning_text(finding: Finding) -> str:
    """The text of an entry in ``status.warnings``."""
    return bounded(located(finding), WARNING_LIMIT)


def located(finding: Finding) -> str:
    """The finding's message, preceded by its field."""
    return f"{finding.path}: {finding.message}" if finding.path else finding.message


def _conditions(report: Report, verdict: Rollup) -> list[Condition]:
    conditions = overall_conditions(verdict)
    conditions += [condition for result in report.results if (condition := result.as_condition()) is not None]
    conditions += [
        Condition(
            type=f"{as_word(component.name, otherwise='Component')}Ready",
            status=component.ready,
            reason=component.reason,
            message=component.message,
        )
        for component in (report.observation.components if report.observation else ())
    ]
    return conditions


def leaving(observation: Observation, result: StepResult) -> Observation:
    """The observation of an object that is being recreated: every component reports only that."""
    reason, message = result.reason, result.message
    components = tuple(
        replace(each, ready=False, reason=reason, message=message, pending=False, only_degrades=False)
        for each in observation.components
    )
    return replace(observation, components=components, up_to_date=True, refused=None)


def planned_status(deployment: Resource, report: Report, *, now: datetime) -> Resource:
    """The status while another provider still owns it: the plan, or why there is none."""
    planned = report.result("DryRun")
    refused = report.result("ProviderCompatible")
    if planned is None and refused is not None and not refused.ok:
        planned = StepResult(condition="DryRun", ok=True, reason="WouldBeRefused", message=refused.message)
    condition = planned.as_condition() if planned is not None else None
    if condition is None:
        return {}
    return {"conditions": written_on(deployment, [condition], now=now)}


def terminating_status(deployment: Resource, message: str, *, now: datetime) -> Resource:
    """The status while the upstream objects of a deleted deployment are deleted; known facts about them stay."""
    verdict = Rollup(phase=Phase.TERMINATING, reason="Terminating", message=bounded(message), ready=False)
    status = _status(deployment, verdict, overall_conditions(verdict), now=now)
    return {**status, **_known_resource(deployment)}


def held_by(others: Sequence[str]) -> str:
    """The message of a deleted deployment that only other programs' finalizers hold."""
    more = f" and {len(others) - _HOLDERS} more" if len(others) > _HOLDERS else ""
    listed = f"{', '.join(others[:_HOLDERS])}{more}"
    return (
        "Nothing of it is left upstream; it stays until the programs that set these finalizers remove them: "
        f"{bounded(listed, 300)}"
    )


_HOLDERS = 5
"""Maximum finalizers of others that a message names."""


def unread_status(deployment: Resource, message: str, *, now: datetime) -> Resource:
    """The status while the primary object may exist and cannot be read: all that is known of it stays."""
    live = deployment.get("status") or {}
    fault = Fault(component="Upstream", reason="UnsupportedSchema", message=message, category=Category.STALE)
    verdict = roll_up([fault], previous=live.get("phase"), created=True, now=now)
    refused = Condition(type="ProviderCompatible", status=False, reason=fault.reason, message=message)
    status = _status(deployment, verdict, [*overall_conditions(verdict), refused], now=now)
    if (record := served_record(served_before(live, created=None), ready=False, generation=0, now=now)) is not None:
        status["conditions"] = sorted([*status["conditions"], record], key=lambda condition: str(condition["type"]))
    kept = {key: live[key] for key in ("endpoint", "replicas", "selector") if key in live}
    return {**status, **kept, **_known_resource(deployment)}


def _known_resource(deployment: Resource) -> Resource:
    """What the status has of the primary object, without what the core writes there."""
    known = ["resourceName", "resourceKind", "resourceAPIVersion", "schemaHash", "revision", "newer"]
    resource = filled(**{key: dig(deployment, "status", "provider", key) for key in known})
    return {"provider": resource} if resource else {}


def _status(deployment: Resource, verdict: Rollup, conditions: list[Condition], *, now: datetime) -> Resource:
    """The fields that are in every status of ours."""
    return {
        "phase": verdict.phase.value,
        "reason": verdict.reason,
        "message": bounded(verdict.message),
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "conditions": written_on(deployment, conditions, now=now),
    }


def announcements(
    before: Resource, report: Report, verdict: Rollup, *, cause: RootCause | None = None
) -> Iterator[Event]:
    """The warning events for a change from the status of `before`; `cause` is the root cause now."""
    if (
        cause is not None
        and cause.reason == "SecretNotFound"
        and dig(before, "status", "rootCause", "code") != cause.code
    ):
        yield Event(reason="SecretNotFound", note=_missing_secret(before, cause), related=report.primary)
    worse = verdict.phase in (Phase.FAILED, Phase.DEGRADED) and dig(before, "status", "phase") != verdict.phase.value
    of_core = verdict.fault is not None and verdict.fault.component in _CORE_COMPONENTS
    if worse and not (of_core and not _is_of_workload(verdict, report)):
        yield Event(reason="ProviderError", note=_error(report, verdict), related=report.primary)
    compatible = report.result("ProviderCompatible")
    if compatible is not None:
        known = condition_of(before, "ProviderCompatible") or {}
        is_new = (known.get("reason"), known.get("message")) != (compatible.reason, compatible.message)
        if is_new and compatible.reason == "UnverifiedSchema":
            yield Event(reason="UnverifiedSchema", note=compatible.message)
        if is_new and compatible.reason == "UnsupportedSchema":
            yield Event(reason="UnsupportedSchema", note=compatible.message)
    scaling, known = report.result("AutoscalerReady"), condition_of(before, "AutoscalerReady") or {}
    if scaling is not None and scaling.ok and scaling.reason != "ProviderScales" and known.get("status") != "True":
        yield Event(reason="ScaledObjectReady", note=scaling.message)
    is_known = scaling is not None and (known.get("status"), known.get("reason")) == ("False", scaling.reason)
    is_fault = scaling is not None and scaling.ok is False and category_of(scaling.reason) is not Category.PROGRESS
    if scaling is not None and is_fault and not is_known:
        yield Event(reason="AutoscalerNotReady", note=f"{scaling.reason}: {scaling.message}")
    # Warnings beyond the limit are not in the status, so it is unknown whether they are new.
    shown = [finding for finding in report.warnings[:MAX_WARNINGS] if finding.reason == "UnknownOverride"]
    if any(_is_new(finding, before) for finding in shown):
        yield Event(reason="UnknownOverride", note=_unknown_overrides(report, before, shown))


def _unknown_overrides(report: Report, before: Resource, shown: Sequence[Finding]) -> str:
    """One event for all unknown overrides: one deployment must not fill the namespace's events and our log."""
    count = sum(finding.reason == "UnknownOverride" for finding in report.warnings)
    new = [finding for finding in shown if _is_new(finding, before)]
    if count == 1:
        return new[0].message
    named = ", ".join(bounded(finding.path, _LONGEST_KEY) for finding in new[:_NAMED_KEYS])
    more = f" and {left} more" if (left := count - min(len(new), _NAMED_KEYS)) else ""
    least = "at least " if count >= MAX_CAUSES else ""
    return f"{least}{count} unknown overrides are passed over: {named}{more}; status.warnings says what is known there"


def _is_new(finding: Finding, before: Resource) -> bool:
    return warning_text(finding) not in (dig(before, "status", "warnings") or ())


def _missing_secret(before: Resource, cause: RootCause) -> str:
    named = _SECRET.search(cause.message)
    if named is None:  # a missing key of an existing Secret
        return cause.message
    namespace = dig(before, "metadata", "namespace", default="")
    return f"Secret '{named[1]}' not found in namespace '{namespace}': {cause.message}"


def _error(report: Report, verdict: Rollup) -> str:
    """The status message, preceded by the upstream object if the error is the object's."""
    if report.resource is None or not _is_of_workload(verdict, report):
        return verdict.message
    name, kind = dig(report.resource, "metadata", "name"), report.resource.get("kind")
    return f"{kind} '{name}' is in error state: {verdict.message}"
