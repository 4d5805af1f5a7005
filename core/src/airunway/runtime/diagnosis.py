"""Combines what the upstream reports with what the pods show: components, faults, root cause.

`pod_summary` decides how the pods are shown. Precedence of the sources:

- A fault that a living pod can show (`POD_SHOWN`) is read from the pods alone. If only the upstream reports it, the
  report is outdated and counts as progress, unless the upstream has it from the engine (`authoritative`).
- A precise fault of a pod replaces a general report of the upstream ("not ready", "failed").
- A deployment is ready if the upstream reports ready and the wanted number of serving pods is ready. Pods beyond that
  number (an autoscaler's) do not matter.
- Events about refused pods or claims are outdated once upstream and pods are ready.
- If several groups of pods hold each other's nodes, none serves: LeaderWorkerSet creates all leaders first, and then
  their workers find no room (recorded).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum

from airunway.kube import soonest
from airunway.plugins.contract import Component, Finding, Observation
from airunway.plugins.rules import PODS
from airunway.resource import Resource, condition_of, dig, entries_at, key_of
from airunway.runtime.memory import Memory, previous_cause
from airunway.runtime.pod_summary import ABSENT, LOST, NOT_YET, PodSummary, faults_of_pods, rule_of, with_advice
from airunway.runtime.report import (
    CACHE_COMPONENT,
    GATEWAY_COMPONENT,
    STORAGE_COMPONENT,
    Report,
    fault_of,
    is_ready,
    located,
    provider_status,
    record_of_service,
)
from airunway.status.conditions import IDLE
from airunway.status.containers import NOT_PULLED
from airunway.status.evidence import (
    POD_SHOWN,
    Evidence,
    PodCounts,
    Reported,
    count_pods,
    parse_moment,
    shortage_of,
)
from airunway.status.reasons import CODES, Category, category_of, code_of_download
from airunway.status.remedies import split
from airunway.status.rollup import Fault, Phase, Rollup, still_unreachable, unreachable_since
from airunway.status.rootcause import Distance, RootCause, Symptom, find_symptoms, root_cause_of

# ------------------------------------------------------------------------------------------------- which source counts


UPSTREAM_STALE_AFTER = timedelta(minutes=5)
"""Time for which an upstream may ignore a change before its status counts as unknown (docs/reference/conditions.md)."""

AWAY_AFTER = timedelta(minutes=2)
"""Time for which all pods may be ready before the upstream reports it; then its controller seems to be down."""

ABSENCE_PATIENCE = timedelta(minutes=1)
"""Time for which an upstream may be ready without the pods that existed before; then they seem to run elsewhere."""

_GENERAL = frozenset({"Starting", "Progressing", "UpstreamFailed", "Unknown"})
"""Reasons that mean no more than "not ready"."""

_NAMED = 3
"""Number of pods that a message names."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The faults and the root cause of a deployment."""

    report: Report
    """The report, with its components as they are shown."""
    faults: tuple[Fault, ...]
    """The faults; the one to report comes first."""
    root_cause: RootCause | None = None
    """The root cause; None if nothing is wrong or the cause is unknown."""
    wake_after: float | None = None
    """Seconds after which time alone changes the diagnosis."""
    ready_pods: int | None = None
    """Number of ready serving pods if not all are ready; None: all are, or it is unknown."""


def diagnose(
    report: Report,
    evidence: Evidence | None,
    *,
    deployment: Resource,
    now: datetime,
) -> Diagnosis:
    """The faults and the root cause of a deployment. `deployment` has the live status.

    Without `evidence` (pods may not be read, or nothing exists yet) the upstream's report counts as it is.
    """
    observation = report.observation
    previous = previous_cause(deployment.get("status") or {})
    if observation is None:
        cause = _root_cause(evidence, report, (), kept=None, deployment=deployment, previous=previous, now=now)
        return Diagnosis(report=report, faults=(*report.faults, *report.core_faults), root_cause=cause)
    summary, rule, pods, kept = None, "", None, None
    if evidence is not None:
        evidence, summary, kept = _look(
            report, observation, evidence, deployment=deployment, previous=previous, now=now
        )
        rule, _, show = rule_of(summary)
        pods = show(summary)
    stale, stale_in = _stale(report, observation, now)
    away, away_in = _away(report, observation, summary, deployment, now)
    if stale is not None:  # a report on an older state may be outdated
        ranked: list[_Ranked] = [
            (replace(c, ready=None, reason=stale.reason, message=stale.message), None) for c in observation.components
        ]
    else:
        ranked = [
            _ranked(replace(c, message=f"{c.message}; {away}") if away and _says_little(c) else c, summary)
            for c in observation.components
        ]
    faults = [
        *report.faults,
        *_refused(observation),
        *(faults_of_pods(summary, evidence) if summary is not None and evidence is not None else ()),
        *([stale] if stale is not None else ()),
        *_in_order(ranked, pods if summary is not None and not summary.shown else None),
    ]
    if not report.rolled_out:
        faults.append(
            Fault(component="Revision", reason="Progressing", message="Pods of the newest revision are not there yet")
        )
    core_faults = report.core_faults
    if not faults and is_ready(observation):  # an object that was made meanwhile serves, and was never Ready
        core_faults = tuple(replace(fault, only_degrades=True) for fault in core_faults)
    components = tuple(component for component, _ in ranked)
    ready_pods = None
    if pods is not None:
        components = (*components, pods)
        if evidence is not None and pods.ready is not True:
            ready_pods = sum(pod.ready and pod.alive and pod.serves for pod in evidence.pods)
    absent = summary.absent if summary is not None and rule == ABSENT else None
    return Diagnosis(
        report=replace(
            report,
            observation=replace(observation, components=components),
            warnings=(*report.warnings, *_unselected(report, evidence)),
        ),
        faults=(*faults, *core_faults),
        root_cause=_root_cause(evidence, report, faults, kept=kept, deployment=deployment, previous=previous, now=now),
        wake_after=soonest(observation.requeue_after, stale_in, away_in, absent),
        ready_pods=ready_pods,
    )


def conclude(
    report: Report, evidence: Evidence | None, *, deployment: Resource, memory: Memory, now: datetime
) -> tuple[Resource, Rollup, Diagnosis]:
    """The complete status after a pass, the verdict behind it, and the diagnosis.

    `memory` has the beginning of each fault. `wake_after` of the diagnosis is the time after which any of the three
    changes without an event.
    """
    found = diagnose(_with_last_words(report, memory.last_words), evidence, deployment=deployment, now=now)
    begun = memory.date(found.faults, status=deployment.get("status") or {}, now=now)
    turned = unreachable_since(deployment.get("status"))
    counted = _counted_from_turning(report) if turned is not None else lambda _: False
    faults = tuple(
        replace(fault, since=turned if counted(fault) else begun[fault.component, fault.reason])
        for fault in found.faults
    )
    status, verdict = provider_status(
        deployment, found.report, faults=faults, root_cause=found.root_cause, ready_pods=found.ready_pods, now=now
    )
    memory.last_words = "" if verdict.ready is True else _last_words(found.root_cause) or memory.last_words
    return status, verdict, replace(found, faults=faults, wake_after=soonest(found.wake_after, verdict.wake_after))


def _counted_from_turning(report: Report) -> Callable[[Fault], bool]:
    """Whether the grace of a fault counts from when ``DependenciesReachable`` turned False.

    What the gateway part reports is not in that condition, and the runtime's own failures to write are told only after
    a grace of their own.
    """
    others = {GATEWAY_COMPONENT, *(fault.component for fault in report.faults)}
    return lambda fault: fault.kind is Category.CONNECTIVITY and fault.component not in others


def _with_last_words(report: Report, last_words: str) -> Report:
    """The report with a pod's last termination message, for an upstream that deletes failed pods (``RestartLoop``).

    The pods' status and logs are deleted with them.
    """
    observation = report.observation
    if not last_words or observation is None or not any(c.reason == "RestartLoop" for c in observation.components):
        return report
    components = tuple(
        replace(c, message=f"{c.message}; {last_words}") if c.reason == "RestartLoop" else c
        for c in observation.components
    )
    return replace(report, observation=replace(observation, components=components))


def _last_words(cause: RootCause | None) -> str:
    """The termination message in a root cause; empty if the cause is no engine fault of a pod."""
    if cause is None or not (cause.of_pods and cause.object.startswith("Pod/") and cause.code.startswith("Engine.")):
        return ""
    return cause.evidence.removesuffix(".")


def _look(
    report: Report,
    observation: Observation,
    evidence: Evidence,
    *,
    deployment: Resource,
    previous: RootCause | None,
    now: datetime,
) -> tuple[Evidence, PodSummary, Symptom | None]:
    """What the pods show next to the upstream's report, and the evidence without outdated events; and what they do not
    show any more, and is kept.
    """
    ready, missing_roles = is_ready(observation), _missing_roles(observation, evidence)
    wanted = observation.replicas.desired if observation.replicas is not None else None
    counts = count_pods(evidence.pods)
    short = max(shortage_of(counts, wanted), len(missing_roles))
    record = record_of_service(report, deployment.get("status") or {})
    lost = _is_lost(record, deployment, counts, evidence, missing_roles=missing_roles)
    if ready and counts.ready and not short:
        evidence = replace(evidence, events=tuple(e for e in evidence.events if e.kind == "Pod"))
    condition = condition_of(deployment, f"{PODS}Ready")
    since = parse_moment((condition or {}).get("lastTransitionTime"))
    gone = since if condition is not None and condition.get("status") != "True" and since is not None else now
    kept, shown = None, with_advice(find_symptoms(evidence, now=now, previous=previous), evidence.pods)
    if not shown and (short or not ready) and _is_kept(condition, evidence, missing=counts.living < (wanted or 0)):
        assert condition is not None
        kept = _kept(condition, previous)
        shown = (kept,)
    unready_parts = [component for component in observation.components if component.ready is not True]
    unready = sorted(pod.name for pod in evidence.pods if pod.alive and pod.serves and not pod.ready)
    summary = PodSummary(
        shown=shown,
        counts=counts,
        short=short,
        wanted=wanted,
        unready=", ".join(unready[:_NAMED]) + (f" and {len(unready) - _NAMED} more" if len(unready) > _NAMED else ""),
        ready=ready,
        only_degrades=bool(unready_parts) and all(part.only_degrades and not part.role for part in unready_parts),
        lost=lost,
        out=_is_out(record, deployment, counts, missing_roles=missing_roles, wanted=wanted),
        missing_roles=missing_roles,
        seen_before=condition is not None and condition.get("reason") != NOT_YET,
        degraded=dig(deployment, "status", "phase") == Phase.DEGRADED.value,
        absent=(gone + ABSENCE_PATIENCE - now).total_seconds(),
        optional_roles=frozenset(c.role for c in observation.components if c.only_degrades and c.role),
    )
    return evidence, summary, kept


def _is_kept(condition: Resource | None, evidence: Evidence, *, missing: bool) -> bool:
    """Whether ``PodsReady`` keeps the connectivity fault that it has, although no pod shows it any more.

    The pod may be another one, may try again, or be missing (`missing`: some are). A registry has answered once all
    pods have run their containers; what an engine fetches from has answered once a pod is ready.
    """
    if condition is None or not still_unreachable(condition, NOT_YET) or condition.get("reason") == "PodEvicted":
        return False
    living = [pod for pod in evidence.pods if pod.alive]
    ran = all(each.running or each.ended or each.last for pod in living for each in pod.containers)
    pulled = not missing and bool(living) and ran and all(pod.containers for pod in living)
    return not (pulled and NOT_PULLED in str(condition.get("message")))


def _kept(condition: Resource, previous: RootCause | None) -> Symptom:
    """The symptom behind a condition that is kept, with the root cause that it had."""
    found = Symptom(
        reason=str(condition.get("reason")),
        code="",
        object="",
        message=str(condition.get("message", "")),
        since=parse_moment(condition.get("lastTransitionTime")),
        distance=Distance.POD,
    )
    code = CODES.get(previous.code) if previous is not None else None
    if previous is None or code is None or found.reason not in code.reasons:
        return found
    _, remedy = split(previous.message, code, previous.object)
    return replace(found, code=code.name, object=previous.object, field=previous.field, remedy=remedy)


def _is_out(
    record: Resource | None,
    deployment: Resource,
    counts: PodCounts,
    *,
    missing_roles: Sequence[str],
    wanted: int | None,
) -> bool:
    """Whether a deployment with that record of service has no ready pod, or none of a needed role, and should have.

    Between two revisions the pods of the old one may leave first: then their room is about to be free. One that wakes
    from zero replicas only starts.
    """
    if record is None or wanted == 0 or (counts.ready and not missing_roles):
        return False
    same = record.get("observedGeneration") == dig(deployment, "metadata", "generation")
    return same or not (counts.leaving or record.get("reason") == IDLE)


def _is_lost(
    record: Resource | None,
    deployment: Resource,
    counts: PodCounts,
    evidence: Evidence,
    *,
    missing_roles: Sequence[str],
) -> bool:
    """Whether pods that were ready for this generation are not ready any more, so that this is no progress.

    True if no pod is ready, if a needed role has none (`missing_roles`), or if a pod that is not ready was ready
    before. Otherwise the pods that are not ready are additional ones that start.
    """
    if record is None or record.get("observedGeneration") != dig(deployment, "metadata", "generation"):
        return False
    if counts.ready == 0 or missing_roles:
        return True
    return any(pod.alive and pod.serves and pod.unready_again for pod in evidence.pods)


def _missing_roles(observation: Observation, evidence: Evidence) -> tuple[str, ...]:
    """The needed roles that have no ready pod, whatever pods other roles have.

    A component that is ready without any pod of its role wants none, or runs elsewhere.
    """
    needed = [component for component in observation.components if component.role and not component.only_degrades]
    if not needed:
        return ()
    ready = {pod.role for pod in evidence.pods if pod.alive and pod.ready}
    there = {pod.role for pod in evidence.pods}
    return tuple(c.role for c in needed if c.role not in ready and (c.ready is not True or c.role in there))


class _Rank(IntEnum):
    """Order of the components' faults; lost pods come between the first two."""

    PRECISE = 0
    GENERAL = 1
    OUTDATED = 2


_Ranked = tuple[Component, _Rank | None]
"""A component as it is shown, and the rank of its fault; None: it reports no fault."""


def _ranked(component: Component, summary: PodSummary | None) -> _Ranked:
    """The component's report, corrected by what the pods show."""
    shown = summary.shown if summary is not None else ()
    rank = _Rank.GENERAL if component.reason in _GENERAL else _Rank.PRECISE
    if component.ready is True:
        return component, None
    if component.authoritative:
        return component, rank
    of_pods = component.reason in POD_SHOWN and summary is not None and bool(summary.counts.living)
    if of_pods and not any(symptom.reason == component.reason for symptom in shown):
        text = "The upstream still reports a fault that no pod shows any more"
        if component.message:
            text += f": {component.message}"
        outdated = replace(component, ready=False, reason="Progressing", message=text, pending=False)
        return outdated, (None if _explained(outdated, shown) else _Rank.OUTDATED)
    return component, (None if _explained(component, shown) else rank)


def _explained(component: Component, shown: Sequence[Symptom]) -> bool:
    """Whether the pods show a more precise reason than the component."""
    if not shown:
        return False
    if component.reason in POD_SHOWN:
        return True
    # A connectivity fault is debounced: until then only "not ready" is certain.
    return component.reason in _GENERAL and category_of(shown[0].reason) is not Category.CONNECTIVITY


def _in_order(components: Sequence[_Ranked], pods: Component | None) -> list[Fault]:
    """The faults of the components and of `pods` (None if the pods show a precise fault) in the order in which they are
    reported.

    Precise reports come first, then pods that were lost, then general reports, then reports that no pod confirms.
    """
    ranked = [(float(rank), fault_of(component, None)) for component, rank in components if rank is not None]
    if pods is not None and pods.ready is not True:
        lost = pods.reason == LOST
        precise = [fault.message for rank, fault in ranked if rank == _Rank.PRECISE and fault.message]
        message = "; ".join([pods.message, *precise]) if lost else pods.message
        fault = Fault(component=PODS, reason=pods.reason, message=message, only_degrades=lost)
        ranked.append((_Rank.PRECISE + 0.5 if lost else _Rank.GENERAL + 0.5, fault))
    return [fault for _, fault in sorted(ranked, key=lambda entry: entry[0])]


def _refused(observation: Observation) -> list[Fault]:
    """The fault for a newest spec that the upstream refuses. If the previous spec still serves, the deployment is
    degraded, whatever the reason.
    """
    refused = observation.refused
    if refused is None:
        return []
    serves = any(component.ready is True for component in observation.components)
    return [
        Fault(
            component="Revision",
            reason=refused.reason,
            message=f"The newest spec is refused{', the one before serves' if serves else ''}: {located(refused)}",
            only_degrades=serves,
            category=Category.CONFIG,
        )
    ]


def _unselected(report: Report, evidence: Evidence | None) -> tuple[Finding, ...]:
    """A warning if ready pods are not selected by ``status.selector``: an autoscaler does not count them.

    The selector that follows from the manifest requires a role, and a pod without a role serves nevertheless.
    """
    if evidence is None or "," not in report.selector or (report.observation and report.observation.selector):
        return ()
    pods = sorted(pod.name for pod in evidence.pods if pod.alive and pod.ready and pod.serves and not pod.role)
    if not pods:
        return ()
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    text = (
        f"pod {pods[0]}{more} is ready, and the selector {report.selector} does not select it: an autoscaler does not "
        "count it. Report this to the provider's author: the pod needs the role label, or the status a selector"
    )
    return (Finding(path="", reason="PodsNotSelected", message=text),)


def _stale(report: Report, observation: Observation, now: datetime) -> tuple[Fault | None, float | None]:
    """The fault of an upstream that does not report on the newest spec; or the seconds until that is a fault."""
    observed = observation.up_to_date if observation.observed is None else observation.observed
    if observed or observation.refused or report.applied is None or report.primary is None:
        return None, None
    signs = [parse_moment(c.get("lastTransitionTime")) for c in entries_at(report.primary, "status", "conditions")]
    last = max([report.applied, *(sign for sign in signs if sign is not None)])
    left = (last + UPSTREAM_STALE_AFTER - now).total_seconds()
    if left > 0:
        return None, left
    kind, name = report.primary.get("kind"), dig(report.primary, "metadata", "name")
    text = f"The controller of {kind} '{name}' has not reported on its newest state for five minutes"
    return Fault(component="Upstream", reason="StaleStatus", message=text, since=last), None


def _away(
    report: Report, observation: Observation, summary: PodSummary | None, deployment: Resource, now: datetime
) -> tuple[str, float | None]:
    """A message if the upstream does not report that all pods are ready; or the seconds until that counts.

    The usual cause is that its controller does not run.
    """
    if summary is None or not observation.up_to_date or report.primary is None:
        return "", None  # `_stale` reports an upstream that has not observed the newest spec
    if summary.ready or summary.shown or summary.short or not summary.counts.ready:
        return "", None
    condition = condition_of(deployment, f"{PODS}Ready")
    if condition is None or condition.get("status") != "True" or any(c.authoritative for c in observation.components):
        return "", AWAY_AFTER.total_seconds()
    since = parse_moment(condition.get("lastTransitionTime"))
    left = (since + AWAY_AFTER - now).total_seconds() if since is not None else 0.0
    if left > 0:
        return "", left
    kind = report.primary.get("kind")
    return f"all pods are ready and its status does not say so: see whether the controller of {kind} runs", None


def _says_little(component: Component) -> bool:
    """Whether a component that is not ready has no reason of its own."""
    return component.ready is False and component.reason in _GENERAL


def _root_cause(
    evidence: Evidence | None,
    report: Report,
    faults: Iterable[Fault],
    *,
    kept: Symptom | None,
    deployment: Resource,
    previous: RootCause | None,
    now: datetime,
) -> RootCause | None:
    """The root cause from the evidence, the runtime's own faults, the upstream's reports that still count, and what
    hinders the model cache. Other conditions of the core and its parts have none: they are about other objects.
    """
    reported = [
        Reported(reason=fault.reason, object=report.subject, message=fault.message, since=fault.since)
        for fault in dict.fromkeys([*report.faults, *faults])
        if fault.component != PODS
    ]
    reported += [
        Reported(
            reason=fault.reason,
            code=code_of_download(fault.reason),
            object=_explained_by(fault, deployment),
            message=fault.message,
            since=fault.since,
        )
        for fault in report.core_faults
        if fault.component in (CACHE_COMPONENT, STORAGE_COMPONENT) and fault.kind is not Category.PROGRESS
    ]
    reported_evidence = replace(evidence or Evidence(), reports=tuple(reported))
    symptoms = with_advice(find_symptoms(reported_evidence, now=now, previous=previous), reported_evidence.pods)
    return root_cause_of((*symptoms, *filter(None, (kept,))), now=now, previous=previous)


def _explained_by(fault: Fault, deployment: Resource) -> str:
    """The object that shows more of a fault of the model cache: its artifact; of volumes the deployment itself."""
    key, artifact = key_of(deployment), dig(deployment, "status", "modelCache", "artifactName")
    if fault.component == CACHE_COMPONENT and isinstance(artifact, str) and artifact:
        return f"ModelArtifact/{key.namespace}/{artifact}"
    return f"ModelDeployment/{key.namespace}/{key.name}"
