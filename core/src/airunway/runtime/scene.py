"""How the pods of a deployment are shown: one component for all of them, and the faults that they stand for. Pure.

One table, `ROWS`, decides; the first row that fits counts. `diagnosis` sets the scene and weighs the upstream's word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from airunway.plugins.contract import Component
from airunway.status import Category, Fault, category_of
from airunway.status.evidence import Evidence, PodFacts
from airunway.status.pods import PodCounts
from airunway.status.rootcause import Symptom

__all__ = ["LOST", "NOT_YET", "PODS", "ROWS", "Scene", "faults_of", "row_of", "shown_as", "waits_for_pods"]

PODS = "Pods"

LOST = "PodsNotReady"
"""Reason of ``PodsReady`` where pods of this generation were ready and are not any more."""

NOT_YET = "Starting"
"""Reason of ``PodsReady`` as long as no pod of the deployment was seen to be anything but starting."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything about the pods that decides how they are shown.

    `shown` is what they show to be wrong; `counts` are of the serving ones, `short` how many ready ones are missing,
    `wanted` how many are demanded (None: nobody says). `ready` is the upstream's word, `partial` that by its word the
    rest serves without what is not ready, `lost` that pods which were ready for this very generation are not any more,
    `seen_before` that an earlier pass saw a pod do more than start. `absent` is for how many seconds more the absence
    of pods that were there is thought to pass. `helping` are the roles of pods without which the rest serves.
    """

    shown: Sequence[Symptom]
    counts: PodCounts
    short: int
    wanted: int | None
    unready: str
    ready: bool
    partial: bool
    lost: bool
    seen_before: bool
    degraded: bool
    absent: float | None
    helping: frozenset[str] = frozenset()

    @property
    def said(self) -> str:
        return f"{self.counts.ready} of {self.counts.living} pods are ready"


_Row = tuple[str, Callable[[Scene], bool], Callable[[Scene], Component | None]]
"""A case in words, whether a scene is one of it, and what is shown then."""


def _component(ready: bool, reason: str, message: str) -> Component:
    return Component(name=PODS, ready=ready, reason=reason, message=message)


def waits_for_pods(scene: Scene) -> bool:
    """Whether pods that were there are thought to come back: `Scene.absent` says for how long."""
    return row_of(scene)[0] == "away for a moment"


ROWS: tuple[_Row, ...] = (
    (
        "a fault",
        lambda s: bool(s.shown) and bool(s.short or not s.ready),
        lambda s: _component(False, s.shown[0].reason, s.shown[0].message),
    ),
    (
        "all there",
        lambda s: bool(s.counts.living) and not s.short and bool(s.counts.ready),
        lambda s: _component(True, "PodsReady", s.said),
    ),
    (
        "lost, some live",
        lambda s: s.lost and bool(s.counts.living),
        lambda s: _component(False, LOST, f"{s.said} (not ready: {s.unready})"),
    ),
    (
        "more are starting",
        lambda s: bool(s.counts.living) and bool(s.counts.ready or s.seen_before),
        lambda s: _component(False, "Progressing", s.said),
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


def row_of(scene: Scene) -> _Row:
    """The first row that fits; the last one always does."""
    return next(row for row in ROWS if row[1](scene))


def shown_as(scene: Scene) -> Component | None:
    """The pods as one component; None where nothing is known of them."""
    return row_of(scene)[2](scene)


def faults_of(scene: Scene, evidence: Evidence) -> list[Fault]:
    """One fault for each reason that the pods show, in their order of precedence.

    What is only out of reach is waited for, but not where it has cost pods that served. Where enough serve, a pod
    beyond them is nobody's loss.
    """
    if scene.ready and not scene.short and scene.counts.ready and scene.wanted is not None:
        return []
    rest = _Rest(evidence.pods)
    faults: dict[str, Fault] = {}
    for symptom in scene.shown:
        partial = _is_partial(symptom, scene, rest)
        known = faults.get(symptom.reason)
        if known is None:
            costs = scene.lost and category_of(symptom.reason) is Category.CONNECTIVITY
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


def _is_partial(symptom: Symptom, scene: Scene, rest: _Rest) -> bool:
    """Whether the rest serves without what shows the symptom: by the upstream's word, or as one of several alike."""
    helps = rest.role_of(symptom.object) in scene.helping
    told = scene.partial and not scene.ready
    return helps or told or rest.serves_beside(symptom.object, ready=scene.ready)
