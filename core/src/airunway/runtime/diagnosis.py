"""Combines what the upstream reports with what the pods show: components, faults, root cause. Pure.

One table, `RULES`, decides how the pods are shown; the first row that fits counts. Who is believed:

- what a living pod shows (`POD_SHOWN`) is read from the pods alone; an upstream's word for it that no pod confirms is
  outdated and counts as progress, unless the upstream has it from the engine at first hand,
- an upstream's general word ("not ready", "failed") gives way to a pod's precise fault,
- ready is only what the upstream calls ready and the pods do not contradict: of as many serving pods as are wanted each
  must be ready; pods beyond that (an autoscaler's) contradict nothing,
- a refusal or a claim's trouble that an event told is outdated once upstream and pods are ready,
- of groups of pods that hold each other's nodes none serves: LeaderWorkerSet makes all leaders first, and their workers
  then find no room (recorded).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum

from airunway.plugins.contract import Component, Finding, Observation
from airunway.resource import Resource, condition_of, dig
from airunway.runtime.memory import Memory, previous_cause
from airunway.runtime.report import Report, fault_of, located, provider_status, record_of_service
from airunway.status import Category, Fault, Phase, Rollup, category_of
from airunway.status.codes import CODES
from airunway.status.evidence import Evidence, PodFacts, Reported, parse_moment
from airunway.status.rootcause import RootCause, Symptom, find_symptoms, root_cause_of
from airunway.status.serving_pods import POD_SHOWN, PodCounts, count_pods, shortage_of

__all__ = [
    "ABSENCE_PATIENCE",
    "LOST",
    "NOT_YET",
    "PODS",
    "RULES",
    "STALE_AFTER",
    "WORKER",
    "Diagnosis",
    "PodSummary",
    "conclude",
    "diagnose",
    "faults_of",
    "is_ready",
    "rule_of",
    "shown_as",
    "waits_for_pods",
    "with_advice",
]

# ---------------------------------------------------------------------------------------------- how the pods are shown


PODS = "Pods"


LOST = "PodsNotReady"
"""Reason of ``PodsReady`` where pods of this generation were ready and are not any more."""


NOT_YET = "Starting"
"""Reason of ``PodsReady`` as long as no pod of the deployment was seen to be anything but starting."""


@dataclass(frozen=True, kw_only=True)
class PodSummary:
    """The facts about a deployment's pods that decide which condition describes them."""

    shown: Sequence[Symptom]
    """What is wrong with the pods."""
    counts: PodCounts
    """Counts of the serving pods."""
    short: int
    """Number of ready pods that are missing."""
    wanted: int | None
    """Number of pods that the upstream wants; None if it is unknown."""
    unready: str
    """Names of pods that are not ready."""
    ready: bool
    """Whether the upstream reports ready."""
    only_degrades: bool
    """Whether the upstream reports that the rest serves without what is not ready."""
    lost: bool
    """Whether pods that were ready for this generation are not ready any more."""
    seen_before: bool
    """Whether an earlier pass saw a pod do more than start."""
    degraded: bool
    """Whether the upstream reports a degradation."""
    absent: float | None
    """Seconds for which the absence of pods that existed is still taken for temporary; None if none is absent."""
    helping: frozenset[str] = frozenset()
    """Roles without whose pods the rest still serves."""
    bereft: tuple[str, ...] = ()
    """Roles without which no request is answered, and which have no ready pod."""

    @property
    def summary_text(self) -> str:
        return f"{self.counts.ready} of {self.counts.living} pods are ready"

    @property
    def missed(self) -> str:
        """What is lost, where some pods live."""
        if self.bereft and self.counts.ready:
            text = f"No {' and no '.join(self.bereft)} pod is ready, so no request is answered; {self.summary_text}"
        else:
            text = self.summary_text
        return f"{text} (not ready: {self.unready})" if self.unready else text


_Rule = tuple[str, Callable[[PodSummary], bool], Callable[[PodSummary], Component | None]]
"""A rule: its name, whether it applies to a summary, and the component that describes the pods then."""


def _component(ready: bool, reason: str, message: str) -> Component:
    return Component(name=PODS, ready=ready, reason=reason, message=message)


def waits_for_pods(summary: PodSummary) -> bool:
    """Whether pods that were there are thought to come back: `PodSummary.absent` says for how long."""
    return rule_of(summary)[0] == "away for a moment"


RULES: tuple[_Rule, ...] = (
    (
        "a fault",
        lambda s: bool(s.shown) and bool(s.short or not s.ready),
        lambda s: _component(False, s.shown[0].reason, s.shown[0].message),
    ),
    (
        "all there",
        lambda s: bool(s.counts.living) and not s.short and bool(s.counts.ready),
        lambda s: _component(True, "PodsReady", s.summary_text),
    ),
    (
        "lost, some live",
        lambda s: s.lost and bool(s.counts.living),
        lambda s: _component(False, LOST, s.missed),
    ),
    (
        "more are starting",
        lambda s: bool(s.counts.living) and bool(s.counts.ready or s.seen_before),
        lambda s: _component(False, "Progressing", s.summary_text),
    ),
    ("none wanted", lambda s: s.wanted == 0, lambda _: None),
    # It has served, and no pod was ever there to be seen: the upstream's word is all there is.
    ("never any", lambda s: s.lost and not s.counts.seen and not s.seen_before, lambda _: None),
    (
        "lost, none lives",
        lambda s: s.lost and (s.counts.seen or not s.ready),
        lambda _: _component(False, LOST, "No pod is ready"),
    ),
    # One text for everything up to the first ready pod: steps of a start are no news to write down.
    (
        "starting",
        lambda s: not s.ready or s.counts.seen,
        lambda s: _component(False, "Progressing" if s.seen_before else NOT_YET, "No pod is ready yet"),
    ),
    ("elsewhere from the start", lambda s: not s.seen_before, lambda _: None),
    ("elsewhere by now", lambda s: s.absent is not None and s.absent <= 0, lambda _: None),
    # Pods that were there a moment ago may be about to come back, or be served elsewhere.
    (
        "away for a moment",
        lambda _: True,
        lambda s: (
            _component(False, LOST, "No pod is ready")
            if s.lost and s.degraded
            else _component(False, "Progressing", "No pod is there")
        ),
    ),
)
"""How the pods are shown: the first row that fits. None: nothing is known of pods, and the upstream's word counts."""


def rule_of(summary: PodSummary) -> _Rule:
    """The first row that fits; the last one always does."""
    return next(row for row in RULES if row[1](summary))


def shown_as(summary: PodSummary) -> Component | None:
    """The pods as one component; None where nothing is known of them."""
    return rule_of(summary)[2](summary)


def faults_of(summary: PodSummary, evidence: Evidence) -> list[Fault]:
    """One fault for each reason that the pods show, in their order of precedence.

    A connectivity fault is waited for, but not where it has cost pods that served. Failing pods beyond the wanted count
    do not degrade the deployment.
    """
    if summary.ready and not summary.short and summary.counts.ready and summary.wanted is not None:
        return []
    rest = _Rest(evidence.pods)
    faults: dict[str, Fault] = {}
    for symptom in summary.shown:
        only_degrades = _is_partial(symptom, summary, rest)
        known = faults.get(symptom.reason)
        if known is None:
            costs = summary.lost and category_of(symptom.reason) is Category.CONNECTIVITY
            faults[symptom.reason] = Fault(
                component=PODS,
                reason=symptom.reason,
                message=symptom.message,
                since=symptom.since,
                category=Category.WORKLOAD if costs else None,
                only_degrades=only_degrades or costs,
            )
        elif known.only_degrades and not only_degrades:
            faults[symptom.reason] = replace(known, only_degrades=False)
    return list(faults.values())


class _Rest:
    """The pods by what is asked of them for each symptom: there may be thousands of both."""

    def __init__(self, pods: Iterable[PodFacts]) -> None:
        self._pods = {f"Pod/{pod.namespace}/{pod.name}": pod for pod in pods}
        serving = [pod for pod in self._pods.values() if pod.alive and pod.ready and pod.serves]
        self._owners = {pod.owner for pod in serving}
        self._crews = {pod.crew for pod in serving}

    def role_of(self, object_: str) -> str | None:
        """The role of a pod, None for what is none of them."""
        pod = self._pods.get(object_)
        return None if pod is None else pod.role

    def serves_beside(self, object_: str, *, ready: bool) -> bool:
        """Whether other pods do the same work: of its controller and role, or any while the upstream is ready."""
        if ready:
            return bool(self._crews)
        kind, _, name = object_.partition("/")
        if kind != "Pod":
            return (kind, name.rpartition("/")[2]) in self._owners
        pod = self._pods.get(object_)
        return pod is not None and pod.crew in self._crews


def _is_partial(symptom: Symptom, summary: PodSummary, rest: _Rest) -> bool:
    """Whether the rest serves without what shows the symptom: by the upstream's word, or as one of several alike."""
    helps = rest.role_of(symptom.object) in summary.helping
    announced = summary.only_degrades and not summary.ready
    return helps or announced or rest.serves_beside(symptom.object, ready=summary.ready)


# --------------------------------------------------------------------------------- groups that hold each other's nodes


WORKER = "-worker"
"""Suffix of the component of pods that only compute, after that of the one of their group that serves."""


_NO_ROOM = "Unschedulable.InsufficientGPU"


def with_advice(symptoms: Sequence[Symptom], pods: Iterable[PodFacts]) -> tuple[Symptom, ...]:
    """The symptoms; of a group's pod that finds no GPUs with what would help, where groups keep each other from it."""
    if not any(symptom.code == _NO_ROOM for symptom in symptoms):
        return tuple(symptoms)
    alive = {f"Pod/{pod.namespace}/{pod.name}": pod for pod in pods if pod.alive}

    def advised(symptom: Symptom) -> Symptom:
        pod = alive.get(symptom.object)
        if symptom.code != _NO_ROOM or pod is None or not pod.role.endswith(WORKER):
            return symptom
        advice = _advice(pod.role.removesuffix(WORKER), alive.values())
        return replace(symptom, message=f"{symptom.message} {advice}") if advice else symptom

    return tuple(map(advised, symptoms))


def _advice(role: str, pods: Iterable[PodFacts]) -> str:
    """Empty where a group serves, or there is but one."""
    group = [pod for pod in pods if pod.role in (role, f"{role}{WORKER}")]
    leaders = [pod for pod in group if pod.role == role]
    if len(leaders) < 2 or any(pod.ready for pod in leaders):
        return ""
    held = sum(bool(pod.node) for pod in group)
    fitting = held // max(1, -(-len(group) // len(leaders)))
    if not fitting:
        return ""
    return (
        f"The {len(leaders)} groups wait for each other: {held} of {len(group)} pods hold their GPUs and no group is "
        f"whole. Scale to {fitting}, and that many serve."
    )


# ------------------------------------------------------------------------------------------------- which source counts


STALE_AFTER = timedelta(minutes=5)
"""Time for which an upstream may ignore a change before its status counts as unknown (spec/status.md, "Stale")."""


AWAY_AFTER = timedelta(minutes=2)
"""How long all pods may be ready before an upstream notices it; then its controller is thought to be away."""


ABSENCE_PATIENCE = timedelta(minutes=1)
"""How long an upstream may be ready without pods where some were seen before; then they are thought to be elsewhere."""


_GENERAL = frozenset({"Starting", "Progressing", "UpstreamFailed", "Unknown"})
"""Reasons that say no more than that something is not ready."""


_NAMED = 3
"""Pods that a message names."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What is wrong with a deployment, and why."""

    report: Report
    """The report with its components as they are shown."""
    faults: tuple[Fault, ...]
    """The faults, the one to report first in front."""
    root_cause: RootCause | None = None
    """The root cause; None: nothing is wrong, or it is not known."""
    wake_after: float | None = None
    """Seconds after which time alone changes the diagnosis."""
    ready_pods: int | None = None
    """How many serving pods are ready, where not all are; None: all, or it is not known."""


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
        cause = _root_cause(evidence, report, (), previous=previous, now=now)
        return Diagnosis(report=report, faults=report.faults, root_cause=cause)
    summary: PodSummary | None = None
    if evidence is not None:
        evidence, summary = _look(report, observation, evidence, deployment=deployment, previous=previous, now=now)
    pods = shown_as(summary) if summary is not None else None
    stale, stale_in = _stale(report, observation, now)
    away, away_in = _away(report, observation, summary, deployment, now)
    named_faults = [
        _named_fault(replace(c, message=f"{c.message}; {away}") if away and c.ready is False else c, summary)
        for c in observation.components
    ]
    if stale is not None:  # its report on an older state may not hold any more
        named_faults = [
            _Named(replace(c, ready=None, reason=stale.reason, message=stale.message), None)
            for c in observation.components
        ]
    faults = [
        *report.faults,
        *_refused(observation),
        *(faults_of(summary, evidence) if summary is not None and evidence is not None else ()),
        *([stale] if stale is not None else ()),
        *_in_order(named_faults, pods if summary is not None and not summary.shown else None),
    ]
    if not report.rolled_out:
        faults.append(
            Fault(component="Revision", reason="Progressing", message="Pods of the newest revision are not there yet")
        )
    components = tuple(word.component for word in named_faults)
    ready_pods = None
    if pods is not None:
        components = (*components, pods)
        if evidence is not None and pods.ready is not True:
            ready_pods = sum(pod.ready and pod.alive and pod.serves for pod in evidence.pods)
    pending = [
        observation.requeue_after,
        stale_in,
        away_in,
        summary.absent if summary is not None and waits_for_pods(summary) else None,
    ]
    return Diagnosis(
        report=replace(
            report,
            observation=replace(observation, components=components),
            warnings=(*report.warnings, *_unselected(report, evidence)),
        ),
        faults=tuple(faults),
        root_cause=_root_cause(evidence, report, faults, previous=previous, now=now),
        wake_after=min((seconds for seconds in pending if seconds is not None), default=None),
        ready_pods=ready_pods,
    )


def conclude(
    report: Report, evidence: Evidence | None, *, deployment: Resource, memory: Memory, now: datetime
) -> tuple[Resource, Rollup, Diagnosis]:
    """The complete status that follows from a pass, the verdict that it rests on, and what is wrong, and why.

    `memory` dates what is wrong; the `wake_after` of the diagnosis is when time alone will change any of the three.
    """
    found = diagnose(_with_last_words(report, memory.last_words), evidence, deployment=deployment, now=now)
    begun = memory.date(found.faults, status=deployment.get("status") or {}, now=now)
    faults = tuple(replace(fault, since=begun[fault.component, fault.reason]) for fault in found.faults)
    status, verdict = provider_status(
        deployment, found.report, faults=faults, root_cause=found.root_cause, ready_pods=found.ready_pods, now=now
    )
    memory.last_words = "" if verdict.ready is True else _last_words(found.root_cause) or memory.last_words
    pending = [seconds for seconds in (found.wake_after, verdict.wake_after) if seconds is not None]
    return status, verdict, replace(found, faults=faults, wake_after=min(pending, default=None))


def _with_last_words(report: Report, last_words: str) -> Report:
    """The report with what a pod said last, for an upstream that deletes the pods which fail (``RestartLoop``).

    Their status and logs are gone with them.
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
    """What a pod says of its end; empty where the root cause is nothing of that kind."""
    if cause is None or not (cause.of_pods and cause.object.startswith("Pod/") and cause.code.startswith("Engine.")):
        return ""
    advice = f" {CODES[cause.code].remedy_for(cause.object)} See {cause.remedy}"
    return cause.message.removesuffix(advice).removesuffix(".")


def is_ready(observation: Observation) -> bool:
    """Whether the upstream says that the newest spec is served."""
    return observation.up_to_date and all(c.ready is True for c in observation.components)


def _look(
    report: Report,
    observation: Observation,
    evidence: Evidence,
    *,
    deployment: Resource,
    previous: RootCause | None,
    now: datetime,
) -> tuple[Evidence, PodSummary]:
    """What the pods show, next to what the upstream says; and the evidence without what is outdated."""
    ready, bereft = is_ready(observation), _bereft(observation, evidence)
    wanted = observation.replicas.desired if observation.replicas is not None else None
    counts = count_pods(evidence.pods)
    short = max(shortage_of(counts, wanted), len(bereft))
    lost = _is_lost(report, deployment, counts, evidence, bereft=bereft)
    if ready and counts.ready and not short:
        evidence = replace(evidence, events=tuple(e for e in evidence.events if e.kind == "Pod"))
    condition = condition_of(deployment, f"{PODS}Ready")
    since = parse_moment((condition or {}).get("lastTransitionTime"))
    gone = since if condition is not None and condition.get("status") != "True" and since is not None else now
    unready_parts = [component for component in observation.components if component.ready is not True]
    unready = sorted(pod.name for pod in evidence.pods if pod.alive and pod.serves and not pod.ready)
    return evidence, PodSummary(
        shown=with_advice(find_symptoms(evidence, now=now, previous=previous), evidence.pods),
        counts=counts,
        short=short,
        wanted=wanted,
        unready=", ".join(unready[:_NAMED]) + (f" and {len(unready) - _NAMED} more" if len(unready) > _NAMED else ""),
        ready=ready,
        only_degrades=bool(unready_parts) and all(part.only_degrades and not part.role for part in unready_parts),
        lost=lost,
        bereft=bereft,
        seen_before=condition is not None and condition.get("reason") != NOT_YET,
        degraded=dig(deployment, "status", "phase") == Phase.DEGRADED.value,
        absent=(gone + ABSENCE_PATIENCE - now).total_seconds(),
        helping=frozenset(c.role for c in observation.components if c.only_degrades and c.role),
    )


def _is_lost(
    report: Report, deployment: Resource, counts: PodCounts, evidence: Evidence, *, bereft: Sequence[str]
) -> bool:
    """Whether pods that were ready for this very generation are not any more: that is no progress.

    None of them is, none of a role that is needed is (`bereft`), or one of those that are not has been before; else it
    is a further one that starts.
    """
    record = record_of_service(report, deployment.get("status") or {})
    if record is None or record.get("observedGeneration") != dig(deployment, "metadata", "generation"):
        return False
    if counts.ready == 0 or bereft:
        return True
    return any(pod.alive and pod.serves and pod.unready_again for pod in evidence.pods)


def _bereft(observation: Observation, evidence: Evidence) -> tuple[str, ...]:
    """The roles that are needed and have no ready pod, whatever pods other roles have.

    A component that is ready without any pod of its role wants none, or runs elsewhere.
    """
    needed = [component for component in observation.components if component.role and not component.only_degrades]
    if not needed:
        return ()
    ready = {pod.role for pod in evidence.pods if pod.alive and pod.ready}
    there = {pod.role for pod in evidence.pods}
    return tuple(c.role for c in needed if c.role not in ready and (c.ready is not True or c.role in there))


class _Rank(IntEnum):
    """In which order what the components say is named; pods that are lost stand between the first two."""

    PRECISE = 0
    GENERAL = 1
    OUTDATED = 2


@dataclass(frozen=True)
class _Named:
    """A component as it may be shown, and how much its word counts as a fault (None: not at all)."""

    component: Component
    rank: _Rank | None


def _named_fault(component: Component, summary: PodSummary | None) -> _Named:
    """The component's word next to what the pods show."""
    shown = summary.shown if summary is not None else ()
    if component.ready is True:
        return _Named(component, None)
    if component.authoritative:
        return _Named(component, _Rank.GENERAL if component.reason in _GENERAL else _Rank.PRECISE)
    of_pods = component.reason in POD_SHOWN and summary is not None and bool(summary.counts.living)
    if of_pods and not any(symptom.reason == component.reason for symptom in shown):
        text = "The upstream has not noticed yet that no pod shows its fault any more"
        if component.message:
            text += f": {component.message}"
        outdated = replace(component, ready=False, reason="Progressing", message=text, pending=False)
        return _Named(outdated, None if _explained(outdated, shown) else _Rank.OUTDATED)
    if _explained(component, shown):
        return _Named(component, None)
    return _Named(component, _Rank.GENERAL if component.reason in _GENERAL else _Rank.PRECISE)


def _explained(component: Component, shown: Sequence[Symptom]) -> bool:
    """Whether the pods say more precisely what the component says."""
    if not shown:
        return False
    if component.reason in POD_SHOWN:
        return True
    # A connectivity fault is debounced: meanwhile "not ready" is all that is certain.
    return component.reason in _GENERAL and category_of(shown[0].reason) is not Category.CONNECTIVITY


def _in_order(named_faults: Sequence[_Named], pods: Component | None) -> list[Fault]:
    """The faults of components, and that of `pods` that show no precise one: a precise word comes before pods that are
    not ready any more, those before a general word; what no pod confirms comes last.
    """
    ranked = [(float(word.rank), fault_of(word.component, None)) for word in named_faults if word.rank is not None]
    if pods is not None and pods.ready is not True:
        lost = pods.reason == LOST
        precise = [fault.message for rank, fault in ranked if rank == _Rank.PRECISE and fault.message]
        message = "; ".join([pods.message, *precise]) if lost else pods.message
        fault = Fault(component=PODS, reason=pods.reason, message=message, only_degrades=lost)
        ranked.append((_Rank.PRECISE + 0.5 if lost else _Rank.GENERAL + 0.5, fault))
    return [fault for _, fault in sorted(ranked, key=lambda entry: entry[0])]


def _refused(observation: Observation) -> list[Fault]:
    """The newest spec is refused: what serves of the one before goes on, so that it degrades, whatever the reason."""
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
    """A warning where pods count as ready that ``status.selector`` does not select: an autoscaler sees none of them.

    The selector that follows from the manifest asks for a role, and a pod without one serves all the same.
    """
    if evidence is None or "," not in report.selector or (report.observation and report.observation.selector):
        return ()
    pods = sorted(pod.name for pod in evidence.pods if pod.alive and pod.ready and pod.serves and not pod.role)
    if not pods:
        return ()
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    text = (
        f"pod {pods[0]}{more} is ready, and the selector {report.selector} does not select it: an autoscaler does not "
        "count it. The provider is to label it, or to report a selector"
    )
    return (Finding(path="", reason="PodsNotSelected", message=text),)


def _stale(report: Report, observation: Observation, now: datetime) -> tuple[Fault | None, float | None]:
    """The fault of an upstream that does not report on the newest spec; or the seconds until that counts."""
    if observation.up_to_date or observation.refused or report.applied is None or report.primary is None:
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


def _away(
    report: Report, observation: Observation, summary: PodSummary | None, deployment: Resource, now: datetime
) -> tuple[str, float | None]:
    """The message on an upstream that has not noticed that all pods are ready; or the seconds until that counts.

    Where its controller does not run, its status does not change.
    """
    if summary is None or not observation.up_to_date or report.primary is None:
        return "", None  # that it has not looked at the newest spec is said of its own (`_stale`)
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


def _root_cause(
    evidence: Evidence | None, report: Report, faults: Iterable[Fault], *, previous: RootCause | None, now: datetime
) -> RootCause | None:
    """The root cause by the evidence, by what the runtime itself says, and by the upstream's words that still count."""
    reported = [
        Reported(reason=fault.reason, object=report.subject, message=fault.message, since=fault.since)
        for fault in dict.fromkeys([*report.faults, *faults])
        if fault.component != PODS
    ]
    reported_evidence = replace(evidence or Evidence(), reports=tuple(reported))
    symptoms = with_advice(find_symptoms(reported_evidence, now=now, previous=previous), reported_evidence.pods)
    return root_cause_of(symptoms, now=now, previous=previous)
