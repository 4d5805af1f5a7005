"""Putting together what the upstream says and what the pods show: components, faults, root cause. Pure.

Who is believed:

- what a living pod shows (`POD_SHOWN`) is read from the pods alone; an upstream's word for it that no pod confirms is
  outdated and counts as progress,
- an upstream's general word ("not ready", "failed") gives way to a pod's precise fault,
- ready is only what the upstream calls ready and the pods do not contradict: where pods are or were seen, the current
  ones must be ready,
- a refusal or a claim's trouble that an event told is outdated once upstream and pods are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airunway.plugins.contract import Component, Observation, State
from airunway.resource import Resource, condition_of, dig
from airunway.runtime.report import Report, fault_of, record_of_service
from airunway.status import Category, Fault, Phase, category_of
from airunway.status.evidence import Evidence, PodFacts, Reported, parse_moment
from airunway.status.pods import POD_SHOWN, PodCounts, count_pods
from airunway.status.rootcause import RootCause, Symptom, find_symptoms, root_cause_of

__all__ = ["ABSENCE_PATIENCE", "PODS", "STALE_AFTER", "Diagnosis", "applied_at", "diagnose", "is_ready"]

PODS = "Pods"

STALE_AFTER = timedelta(minutes=5)
"""Silence of an upstream about a change after which its status counts as unknown (spec/status.md, "Stale")."""

ABSENCE_PATIENCE = timedelta(minutes=1)
"""How long an upstream may be ready without pods where some were seen before; then they are thought to be elsewhere."""

_GENERAL = frozenset({"Starting", "Progressing", "UpstreamFailed", "Unknown"})
"""Words that say no more than that something is not ready."""

_LOST = "PodsNotReady"
"""Reason of ``PodsReady`` where pods of this generation were ready and are not any more."""

_NAMED = 3
"""Pods that a message names."""

_NOT_YET = "Starting"
"""Reason of ``PodsReady`` as long as no pod of the deployment was seen to be anything but starting."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The outcome. `report` has the components as they are to be shown; `faults` are in order of what to say first."""

    report: Report
    faults: tuple[Fault, ...]
    root_cause: RootCause | None = None
    wake_after: float | None = None


def diagnose(
    report: Report,
    evidence: Evidence | None,
    *,
    deployment: Resource,
    previous: RootCause | None,
    now: datetime,
) -> Diagnosis:
    """What is wrong, and why. `deployment` has the status as it stands, `previous` is its root cause.

    Without `evidence` (pods may not be read, or nothing exists yet) the upstream's words count as they are.
    """
    observation = report.observation
    if observation is None:
        symptoms = find_symptoms(_with_reports(evidence, report, ()), now=now, previous=previous)
        return Diagnosis(
            report=report,
            faults=report.faults,
            root_cause=root_cause_of(symptoms, now=now, previous=previous),
        )
    ready = is_ready(observation)
    counts = count_pods(evidence.pods) if evidence is not None else PodCounts()
    if evidence is not None and ready and counts.ready and counts.ready == counts.living:
        evidence = replace(evidence, events=tuple(e for e in evidence.events if e.kind == "Pod"))
    shown = find_symptoms(evidence, now=now, previous=previous) if evidence is not None else ()
    components = tuple(_believed(component, counts, shown) for component in observation.components)
    lost = evidence is not None and _is_lost(report, deployment, counts, evidence)
    pods, absent = None, None
    if evidence is not None:
        unready = _listed(pod.name for pod in evidence.pods if pod.alive and not pod.ready)
        pods, absent = _pods(shown, counts, report, deployment, now, ready=ready, lost=lost, unready=unready)
    stale, stale_in = _stale(report, observation, now)
    told = observation.components
    if stale is not None:  # what it said of an older state is not known to hold
        components = tuple(
            replace(component, state=State.UNKNOWN, reason=stale.reason, message=stale.message) for component in told
        )
        told = ()
    faults = [
        *report.faults,
        *_pod_faults(shown, evidence, ready=ready, lost=lost),
        *([stale] if stale is not None else ()),
        *_words(components if told else (), told, shown, pods if not shown else None),
    ]
    if not report.rolled_out:
        faults.append(
            Fault(component="Revision", reason="Progressing", message="Pods of the newest revision are not there yet")
        )
    symptoms = find_symptoms(_with_reports(evidence, report, faults), now=now, previous=previous)
    if pods is not None:
        components = (*components, pods)
    return Diagnosis(
        report=replace(report, observation=replace(observation, components=components)),
        faults=tuple(faults),
        root_cause=root_cause_of(symptoms, now=now, previous=previous),
        wake_after=min((seconds for seconds in (absent, stale_in) if seconds is not None), default=None),
    )


def is_ready(observation: Observation) -> bool:
    """Whether the upstream says that the newest spec is served."""
    return observation.current and all(c.state is State.READY for c in observation.components)


def applied_at(primary: Resource, manager: str) -> datetime | None:
    """When we changed the object last: the time of our entry in its managedFields; else when it was made."""
    entries = dig(primary, "metadata", "managedFields")
    times = [
        parse_moment(entry.get("time"))
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and entry.get("manager") == manager and not entry.get("subresource")
    ]
    known = [moment for moment in times if moment is not None]
    return max(known, default=None) or parse_moment(dig(primary, "metadata", "creationTimestamp"))


# ------------------------------------------------------------------------------------------------------ components


def _believed(component: Component, counts: PodCounts, shown: Sequence[Symptom]) -> Component:
    """The component as it may be shown, next to what the pods show."""
    if component.state is State.READY or component.reason not in POD_SHOWN or not counts.living:
        return component
    if any(symptom.reason == component.reason for symptom in shown):
        return component
    text = "The upstream has not noticed yet that no pod shows its fault any more"
    if component.message:
        text += f": {component.message}"
    return replace(component, state=State.PROGRESSING, reason="Progressing", message=text)


def _explained(component: Component, shown: Sequence[Symptom]) -> bool:
    """Whether the pods say more precisely what the component says."""
    if not shown:
        return False
    if component.reason in POD_SHOWN:
        return True
    # What is only out of reach is waited for (debounced): meanwhile "not ready" is all that is certain.
    return component.reason in _GENERAL and category_of(shown[0].reason) is not Category.CONNECTIVITY


def _is_lost(report: Report, deployment: Resource, counts: PodCounts, evidence: Evidence) -> bool:
    """Whether pods that were ready for this very generation are not any more: that is no progress.

    None of them is, or one of those that are not has been before; else it is a further one that starts.
    """
    record = record_of_service(report, deployment.get("status") or {})
    if record is None or record.get("observedGeneration") != dig(deployment, "metadata", "generation"):
        return False
    return counts.ready == 0 or any(pod.alive and pod.unready_again for pod in evidence.pods)


def _pods(
    shown: Sequence[Symptom],
    counts: PodCounts,
    report: Report,
    deployment: Resource,
    now: datetime,
    *,
    ready: bool,
    lost: bool,
    unready: str,
) -> tuple[Component | None, float | None]:
    """The component of the pods, and after how many seconds it changes by itself. None: nothing is known of pods.

    `unready` names the pods that are not ready.
    """
    replicas = report.observation.replicas if report.observation is not None else None
    if shown:
        first = shown[0]
        return Component(name=PODS, state=State.DEGRADED, reason=first.reason, message=first.message), None
    if counts.living and counts.ready == counts.living:
        text = f"{counts.ready} of {counts.living} pods are ready"
        return Component(name=PODS, state=State.READY, reason="PodsReady", message=text), None
    if lost and counts.living:
        return _gone(f"{counts.ready} of {counts.living} pods are ready (not ready: {unready})"), None
    condition = condition_of(deployment, f"{PODS}Ready")
    seen_before = condition is not None and condition.get("reason") != _NOT_YET
    if counts.living and (counts.ready or seen_before):
        return _starting("Progressing", f"{counts.ready} of {counts.living} pods are ready"), None
    if replicas is not None and replicas.desired == 0:
        return None, None
    if lost and not counts.seen and not seen_before:
        return None, None  # it has served, and no pod was ever there to be seen: the upstream's word is all there is
    if lost and (counts.seen or not ready):
        return _gone("No pod is ready"), None
    if not ready or counts.seen:
        # One text for everything up to the first ready pod: steps of a start are no news to write down.
        return _starting("Progressing" if seen_before else _NOT_YET, "No pod is ready yet"), None
    if not seen_before:
        return None, None
    since = parse_moment((condition or {}).get("lastTransitionTime")) if condition is not None else None
    gone = since if condition is not None and condition.get("status") != "True" and since is not None else now
    left = (gone + ABSENCE_PATIENCE - now).total_seconds()
    if left <= 0:
        return None, None
    # Pods that were there a moment ago may be about to come back, or be served elsewhere.
    broken = lost and dig(deployment, "status", "phase") == Phase.DEGRADED.value
    return _gone("No pod is ready") if broken else _starting("Progressing", "No pod is there"), left


def _listed(names: Iterable[str]) -> str:
    known = sorted(names)
    return ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")


def _gone(message: str) -> Component:
    return Component(name=PODS, state=State.DEGRADED, reason=_LOST, message=message)


def _starting(reason: str, message: str) -> Component:
    return Component(name=PODS, state=State.PROGRESSING, reason=reason, message=message)


# ----------------------------------------------------------------------------------------------------------- faults


def _words(
    components: Sequence[Component], told: Sequence[Component], shown: Sequence[Symptom], pods: Component | None
) -> list[Fault]:
    """The faults of components that say more than the pods show, and that of the pods where they show no precise one.

    `told` are the components as the upstream told them. A precise word comes before pods that are not ready any more,
    those before a general word; what no pod confirms comes last.
    """
    precise: list[Fault] = []
    general: list[Fault] = []
    outdated: list[Fault] = []
    for component, original in zip(components, told, strict=True):
        if component.state is State.READY or _explained(component, shown):
            continue
        group = outdated if component is not original else general if component.reason in _GENERAL else precise
        group.append(fault_of(component, None))
    if pods is None or pods.state is State.READY:
        return [*precise, *general, *outdated]
    if pods.reason == _LOST:
        message = "; ".join([pods.message, *(fault.message for fault in precise if fault.message)])
        return [*precise, Fault(component=PODS, reason=_LOST, message=message, partial=True), *general, *outdated]
    return [*precise, *general, Fault(component=PODS, reason=pods.reason, message=pods.message), *outdated]


def _pod_faults(shown: Sequence[Symptom], evidence: Evidence | None, *, ready: bool, lost: bool) -> list[Fault]:
    """One fault for each reason that the pods show, in their order of precedence.

    What is only out of reach is waited for, but not where it has cost pods that served.
    """
    faults: dict[str, Fault] = {}
    for symptom in shown:
        partial = _serves_beside(symptom, evidence.pods if evidence is not None else (), ready=ready)
        known = faults.get(symptom.reason)
        if known is None:
            costs = lost and category_of(symptom.reason) is Category.CONNECTIVITY
            faults[symptom.reason] = Fault(
                component=PODS,
                reason=symptom.reason,
                message=symptom.message,
                since=symptom.since,
                category=Category.WORKLOAD if costs else None,
                partial=partial or costs,
            )
        elif known.partial and not partial:
            faults[symptom.reason] = replace(known, partial=False)
    return list(faults.values())


def _serves_beside(symptom: Symptom, pods: Iterable[PodFacts], *, ready: bool) -> bool:
    """Whether other pods do the same work: of the same controller, or of any while the upstream is ready."""
    kind, _, name = symptom.object.partition("/")
    name = name.rpartition("/")[2]
    serving = [pod for pod in pods if pod.alive and pod.ready]
    if ready:
        return bool(serving)
    owner = next((pod.owner for pod in pods if pod.name == name), None) if kind == "Pod" else (kind, name)
    return any(pod.owner == owner for pod in serving)


def _stale(report: Report, observation: Observation, now: datetime) -> tuple[Fault | None, float | None]:
    """The upstream has not looked at the newest spec for too long; or in how many seconds that will be so."""
    if observation.current or report.applied is None or report.primary is None:
        return None, None
    conditions = dig(report.primary, "status", "conditions")
    signs = [
        parse_moment(c.get("lastTransitionTime"))
        for c in (conditions if isinstance(conditions, list) else [])
        if isinstance(c, dict)
    ]
    last = max([report.applied, *(sign for sign in signs if sign is not None)])
    left = (last + STALE_AFTER - now).total_seconds()
    if left > 0:
        return None, left
    name, kind = report.resource or ("", "upstream object")
    text = f"The controller of {kind} '{name}' has not reported on its newest state for five minutes"
    return Fault(component="Upstream", reason="StaleStatus", message=text, since=last), None


def _with_reports(evidence: Evidence | None, report: Report, faults: Iterable[Fault]) -> Evidence:
    """The evidence with everybody else's words: the runtime's faults and the upstream's that still count."""
    reported = [
        Reported(reason=fault.reason, object=report.subject, message=fault.message, since=fault.since)
        for fault in dict.fromkeys([*report.faults, *faults])
        if fault.component != PODS
    ]
    return replace(evidence or Evidence(), reports=tuple(reported))
