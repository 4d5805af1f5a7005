"""Putting together what the upstream says and what the pods show: components, faults, root cause. Pure.

Who is believed:

- what a living pod shows (`POD_SHOWN`) is read from the pods alone; an upstream's word for it that no pod confirms is
  outdated and counts as progress, unless the upstream has it from the engine at first hand,
- an upstream's general word ("not ready", "failed") gives way to a pod's precise fault,
- ready is only what the upstream calls ready and the pods do not contradict: of as many serving pods as are wanted each
  must be ready; pods beyond that (an autoscaler's) contradict nothing,
- a refusal or a claim's trouble that an event told is outdated once upstream and pods are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum

from airunway.plugins.contract import Component, Observation
from airunway.resource import Resource, condition_of, dig
from airunway.runtime.memory import Memory, previous_cause
from airunway.runtime.report import Report, fault_of, provider_status, record_of_service
from airunway.runtime.scene import LOST, NOT_YET, PODS, Scene, faults_of, shown_as, waits_for_pods
from airunway.status import Category, Fault, Phase, Verdict, category_of
from airunway.status.evidence import Evidence, Reported, parse_moment
from airunway.status.pods import POD_SHOWN, PodCounts, count_pods, shortage_of
from airunway.status.rootcause import RootCause, Symptom, find_symptoms, root_cause_of

__all__ = ["ABSENCE_PATIENCE", "STALE_AFTER", "Diagnosis", "applied_at", "conclude", "diagnose", "is_ready"]

STALE_AFTER = timedelta(minutes=5)
"""Silence of an upstream about a change after which its status counts as unknown (spec/status.md, "Stale")."""

ABSENCE_PATIENCE = timedelta(minutes=1)
"""How long an upstream may be ready without pods where some were seen before; then they are thought to be elsewhere."""

_GENERAL = frozenset({"Starting", "Progressing", "UpstreamFailed", "Unknown"})
"""Words that say no more than that something is not ready."""

_NAMED = 3
"""Pods that a message names."""


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
    now: datetime,
) -> Diagnosis:
    """What is wrong, and why. `deployment` has the status as it stands.

    Without `evidence` (pods may not be read, or nothing exists yet) the upstream's words count as they are.
    """
    observation = report.observation
    previous = previous_cause(deployment.get("status") or {})
    if observation is None:
        symptoms = find_symptoms(_with_reports(evidence, report, ()), now=now, previous=previous)
        return Diagnosis(
            report=report,
            faults=report.faults,
            root_cause=root_cause_of(symptoms, now=now, previous=previous),
        )
    scene: Scene | None = None
    if evidence is not None:
        evidence, scene = _look(report, observation, evidence, deployment=deployment, previous=previous, now=now)
    pods = shown_as(scene) if scene is not None else None
    stale, stale_in = _stale(report, observation, now)
    heard = [_heard(component, scene) for component in observation.components]
    if stale is not None:  # what it said of an older state is not known to hold
        heard = [
            _Heard(replace(c, ready=None, reason=stale.reason, message=stale.message), None)
            for c in observation.components
        ]
    faults = [
        *report.faults,
        *(faults_of(scene, evidence) if scene is not None and evidence is not None else ()),
        *([stale] if stale is not None else ()),
        *_in_order(heard, pods if scene is not None and not scene.shown else None),
    ]
    if not report.rolled_out:
        faults.append(
            Fault(component="Revision", reason="Progressing", message="Pods of the newest revision are not there yet")
        )
    symptoms = find_symptoms(_with_reports(evidence, report, faults), now=now, previous=previous)
    components = tuple(word.component for word in heard)
    if pods is not None:
        components = (*components, pods)
    waits = [observation.look_again, stale_in, scene.absent if scene is not None and waits_for_pods(scene) else None]
    return Diagnosis(
        report=replace(report, observation=replace(observation, components=components)),
        faults=tuple(faults),
        root_cause=root_cause_of(symptoms, now=now, previous=previous),
        wake_after=min((seconds for seconds in waits if seconds is not None), default=None),
    )


def conclude(
    report: Report, evidence: Evidence | None, *, deployment: Resource, memory: Memory, now: datetime
) -> tuple[Resource, Verdict, Diagnosis]:
    """The complete status that follows from a pass, the verdict that it rests on, and what is wrong, and why.

    `memory` dates what is wrong; the `wake_after` of the diagnosis is when time alone will change any of the three.
    """
    found = diagnose(report, evidence, deployment=deployment, now=now)
    begun = memory.date(found.faults, status=deployment.get("status") or {}, now=now)
    faults = tuple(replace(fault, since=begun[fault.component, fault.reason]) for fault in found.faults)
    status, verdict = provider_status(deployment, found.report, faults=faults, root_cause=found.root_cause, now=now)
    waits = [seconds for seconds in (found.wake_after, verdict.wake_after) if seconds is not None]
    return status, verdict, replace(found, faults=faults, wake_after=min(waits, default=None))


def is_ready(observation: Observation) -> bool:
    """Whether the upstream says that the newest spec is served."""
    return observation.current and all(c.ready is True for c in observation.components)


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


# ------------------------------------------------------------------------------------------------------------ pods


def _look(
    report: Report,
    observation: Observation,
    evidence: Evidence,
    *,
    deployment: Resource,
    previous: RootCause | None,
    now: datetime,
) -> tuple[Evidence, Scene]:
    """What the pods show, next to what the upstream says; and the evidence without what is outdated."""
    ready, counts = is_ready(observation), count_pods(evidence.pods)
    wanted = observation.replicas.desired if observation.replicas is not None else None
    short = shortage_of(counts, wanted)
    if ready and counts.ready and not short:
        evidence = replace(evidence, events=tuple(e for e in evidence.events if e.kind == "Pod"))
    condition = condition_of(deployment, f"{PODS}Ready")
    since = parse_moment((condition or {}).get("lastTransitionTime"))
    gone = since if condition is not None and condition.get("status") != "True" and since is not None else now
    unready_parts = [component for component in observation.components if component.ready is not True]
    unready = sorted(pod.name for pod in evidence.pods if pod.alive and pod.serves and not pod.ready)
    return evidence, Scene(
        shown=find_symptoms(evidence, now=now, previous=previous),
        counts=counts,
        short=short,
        wanted=wanted,
        unready=", ".join(unready[:_NAMED]) + (f" and {len(unready) - _NAMED} more" if len(unready) > _NAMED else ""),
        ready=ready,
        partial=bool(unready_parts) and all(part.partial and not part.role for part in unready_parts),
        lost=_is_lost(report, deployment, counts, evidence),
        seen_before=condition is not None and condition.get("reason") != NOT_YET,
        degraded=dig(deployment, "status", "phase") == Phase.DEGRADED.value,
        absent=(gone + ABSENCE_PATIENCE - now).total_seconds(),
        helping=frozenset(c.role for c in observation.components if c.partial and c.role),
    )


def _is_lost(report: Report, deployment: Resource, counts: PodCounts, evidence: Evidence) -> bool:
    """Whether pods that were ready for this very generation are not any more: that is no progress.

    None of them is, or one of those that are not has been before; else it is a further one that starts.
    """
    record = record_of_service(report, deployment.get("status") or {})
    if record is None or record.get("observedGeneration") != dig(deployment, "metadata", "generation"):
        return False
    return counts.ready == 0 or any(pod.alive and pod.serves and pod.unready_again for pod in evidence.pods)


# ---------------------------------------------------------------------------------------------------- the upstream


class _Rank(IntEnum):
    """In which order what the components say is named; pods that are lost stand between the first two."""

    PRECISE = 0
    GENERAL = 1
    OUTDATED = 2


@dataclass(frozen=True)
class _Heard:
    """A component as it may be shown, and how much its word counts as a fault (None: not at all)."""

    component: Component
    rank: _Rank | None


def _heard(component: Component, scene: Scene | None) -> _Heard:
    """The component's word next to what the pods show."""
    shown = scene.shown if scene is not None else ()
    if component.ready is True:
        return _Heard(component, None)
    if component.firsthand:
        return _Heard(component, _Rank.GENERAL if component.reason in _GENERAL else _Rank.PRECISE)
    of_pods = component.reason in POD_SHOWN and scene is not None and bool(scene.counts.living)
    if of_pods and not any(symptom.reason == component.reason for symptom in shown):
        text = "The upstream has not noticed yet that no pod shows its fault any more"
        if component.message:
            text += f": {component.message}"
        outdated = replace(component, ready=False, reason="Progressing", message=text, waits=False)
        return _Heard(outdated, None if _explained(outdated, shown) else _Rank.OUTDATED)
    if _explained(component, shown):
        return _Heard(component, None)
    return _Heard(component, _Rank.GENERAL if component.reason in _GENERAL else _Rank.PRECISE)


def _explained(component: Component, shown: Sequence[Symptom]) -> bool:
    """Whether the pods say more precisely what the component says."""
    if not shown:
        return False
    if component.reason in POD_SHOWN:
        return True
    # What is only out of reach is waited for (debounced): meanwhile "not ready" is all that is certain.
    return component.reason in _GENERAL and category_of(shown[0].reason) is not Category.CONNECTIVITY


def _in_order(heard: Sequence[_Heard], pods: Component | None) -> list[Fault]:
    """The faults of components, and that of `pods` that show no precise one: a precise word comes before pods that are
    not ready any more, those before a general word; what no pod confirms comes last.
    """
    ranked = [(float(word.rank), fault_of(word.component, None)) for word in heard if word.rank is not None]
    if pods is not None and pods.ready is not True:
        lost = pods.reason == LOST
        precise = [fault.message for rank, fault in ranked if rank == _Rank.PRECISE and fault.message]
        message = "; ".join([pods.message, *precise]) if lost else pods.message
        fault = Fault(component=PODS, reason=pods.reason, message=message, partial=lost)
        ranked.append((_Rank.PRECISE + 0.5 if lost else _Rank.GENERAL + 0.5, fault))
    return [fault for _, fault in sorted(ranked, key=lambda entry: entry[0])]


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
    kind, name = report.primary.get("kind"), dig(report.primary, "metadata", "name")
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
