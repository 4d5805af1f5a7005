"""Decides how the pods of a deployment are shown: one component, one fault for each reason, and advice for groups.

`RULES` decides; the first row that applies counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from airunway.plugins.contract import Component
from airunway.plugins.rules import PODS
from airunway.status.evidence import Evidence, PodCounts, PodFacts
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import Fault
from airunway.status.rootcause import Symptom

# ---------------------------------------------------------------------------------------------- how the pods are shown


LOST = "PodsNotReady"
"""Reason of ``PodsReady`` where pods of this generation were ready and are not any more."""

NOT_YET = "Starting"
"""Reason of ``PodsReady`` as long as no pod of the deployment was seen to be anything but starting."""


@dataclass(frozen=True, kw_only=True)
class PodSummary:
    """The facts about a deployment's pods that decide which condition describes them."""

    shown: Sequence[Symptom]
    """The symptoms of the pods."""
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
    optional_roles: frozenset[str] = frozenset()
    """Roles without whose pods the rest still serves."""
    out: bool = False
    """Whether it has served, and no request is answered now."""
    missing_roles: tuple[str, ...] = ()
    """Roles without which no request is answered, and which have no ready pod."""

    @property
    def summary_text(self) -> str:
        return f"{self.counts.ready} of {self.counts.living} pods are ready"

    @property
    def missed(self) -> str:
        """The message about lost pods while others live."""
        if self.missing_roles and self.counts.ready:
            text = (
                f"No {' and no '.join(self.missing_roles)} pod is ready, so no request is answered; {self.summary_text}"
            )
        else:
            text = self.summary_text
        return f"{text} (not ready: {self.unready})" if self.unready else text


ABSENT = "away for a moment"
"""Name of the rule for pods that are expected to come back; `PodSummary.absent` is the time for which."""

_Rule = tuple[str, Callable[[PodSummary], bool], Callable[[PodSummary], Component | None]]
"""A rule: its name, whether it applies to a summary, and the component that then describes the pods."""


def _component(ready: bool, reason: str, message: str) -> Component:
    return Component(name=PODS, ready=ready, reason=reason, message=message)


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
    # Only the upstream's report is left.
    ("served, and no pod was ever found", lambda s: s.lost and not s.counts.seen and not s.seen_before, lambda _: None),
    (
        "lost, none lives",
        lambda s: s.lost and (s.counts.seen or not s.ready),
        lambda _: _component(False, LOST, "No pod is ready"),
    ),
    # One text until the first pod is ready: the steps of a start are not worth a status write each.
    (
        "starting",
        lambda s: not s.ready or s.counts.seen,
        lambda s: _component(False, "Progressing" if s.seen_before else NOT_YET, "No pod is ready yet"),
    ),
    ("ready without a pod from the start", lambda s: not s.seen_before, lambda _: None),
    ("ready without a pod for too long", lambda s: s.absent is not None and s.absent <= 0, lambda _: None),
    # Pods that existed a moment ago may come back, or the model may be served elsewhere.
    (
        ABSENT,
        lambda _: True,
        lambda s: (
            _component(False, LOST, "No pod is ready")
            if s.lost and s.degraded
            else _component(False, "Progressing", "No pod is there")
        ),
    ),
)
"""How the pods are shown: the first row that applies. None: no pods are known, and the upstream's report counts."""


def rule_of(summary: PodSummary) -> _Rule:
    """The first rule that applies; the last one always does."""
    return next(row for row in RULES if row[1](summary))


def faults_of_pods(summary: PodSummary, evidence: Evidence) -> list[Fault]:
    """One fault for each reason that the pods show, in their order of precedence.

    What is debounced or waited for (connectivity, capacity, progress) degrades at once where pods that served are lost,
    or where nothing answers any more. Failing pods beyond the wanted count do not degrade the deployment.
    """
    if summary.ready and not summary.short and summary.counts.ready and summary.wanted is not None:
        return []
    ready_pods = _ReadyPods(evidence.pods, summary)
    faults: dict[str, Fault] = {}
    for symptom in summary.shown:
        only_degrades = ready_pods.serves_despite(symptom)
        known = faults.get(symptom.reason)
        if known is None:
            costs = category_of(symptom.reason) in _costly(summary)
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


def _costly(summary: PodSummary) -> frozenset[Category]:
    """The categories of faults that do not wait: of what has served, they are an outage."""
    found = {Category.CONNECTIVITY} if summary.lost else set()
    if summary.out:
        found |= {Category.CONNECTIVITY, Category.CAPACITY}
    if summary.out and summary.lost:
        found.add(Category.PROGRESS)
    return frozenset(found)


class _ReadyPods:
    """Indexes of the pods for the questions about each symptom: there may be thousands of both."""

    def __init__(self, pods: Iterable[PodFacts], summary: PodSummary) -> None:
        self._summary = summary
        self._pods = {f"Pod/{pod.namespace}/{pod.name}": pod for pod in pods}
        serving = [pod for pod in self._pods.values() if pod.alive and pod.ready and pod.serves]
        self._owners = {pod.owner for pod in serving}
        self._groups = {pod.replica_group for pod in serving}

    def serves_despite(self, symptom: Symptom) -> bool:
        """Whether the deployment still serves: the upstream reports so, or other pods do the same work. These are the
        ones of the same controller and role, or any serving pod while the upstream is ready.
        """
        summary, pod = self._summary, self._pods.get(symptom.object)
        if (pod is not None and pod.role in summary.optional_roles) or (summary.only_degrades and not summary.ready):
            return True
        if summary.ready:
            return bool(self._groups)
        kind, _, name = symptom.object.partition("/")
        if kind != "Pod":
            return (kind, name.rpartition("/")[2]) in self._owners
        return pod is not None and pod.replica_group in self._groups


# --------------------------------------------------------------------------------- groups that hold each other's nodes


_WORKER = "-worker"
"""Suffix of the component of pods that only compute; the prefix is the component of their group's leader."""

_NO_ROOM = "Unschedulable.InsufficientGPU"


def with_advice(symptoms: Sequence[Symptom], pods: Iterable[PodFacts]) -> tuple[Symptom, ...]:
    """The symptoms, with advice on unschedulable pods if groups of pods block each other."""
    if not any(symptom.code == _NO_ROOM for symptom in symptoms):
        return tuple(symptoms)
    alive = {f"Pod/{pod.namespace}/{pod.name}": pod for pod in pods if pod.alive}

    def advised(symptom: Symptom) -> Symptom:
        pod = alive.get(symptom.object)
        if symptom.code != _NO_ROOM or pod is None or not pod.role.endswith(_WORKER):
            return symptom
        advice = _advice(pod.role.removesuffix(_WORKER), alive.values())
        return replace(symptom, message=f"{symptom.message} {advice}") if advice else symptom

    return tuple(map(advised, symptoms))


def _advice(role: str, pods: Iterable[PodFacts]) -> str:
    """The advice; empty if a leader is ready or there is only one group."""
    group = [pod for pod in pods if pod.role in (role, f"{role}{_WORKER}")]
    leaders = [pod for pod in group if pod.role == role]
    if len(leaders) < 2 or any(pod.ready for pod in leaders):
        return ""
    held = sum(bool(pod.node) for pod in group)
    fitting = held // max(1, -(-len(group) // len(leaders)))
    if not fitting:
        return ""
    counts = f"spec.scaling.{role}" if role in ("prefill", "decode") else "spec.scaling"
    return (
        f"The {len(leaders)} groups wait for each other: {held} of {len(group)} pods hold their GPUs and no group is "
        f"whole. Set {counts}.replicas to {fitting}; then {fitting} of them can serve."
    )
