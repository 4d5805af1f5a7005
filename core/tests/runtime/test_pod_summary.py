"""How pods are shown: each row of the table by a case of its own, roles, and the order of what is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airunway.plugins.contract import Component, Observation, Replicas
from airunway.resource import Resource, format_time
from airunway.runtime.diagnosis import Diagnosis, conclude
from airunway.runtime.memory import Memory
from airunway.runtime.pod_summary import RULES, PodSummary, rule_of
from airunway.runtime.report import Report
from airunway.status.evidence import ContainerFacts, Evidence, PodCounts, PodFacts, count_pods
from airunway.status.rootcause import Symptom, find_symptoms

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HEAD, WORKER = "head", "worker"


def pod(name: str, *, ready: bool = True, role: str = "", serves: bool = True, crash: bool = False) -> PodFacts:
    broken = ContainerFacts(name="model", waiting="CrashLoopBackOff", restarts=3)
    return PodFacts(
        namespace="ml",
        name=name,
        uid=name,
        created=NOW - timedelta(minutes=5),
        phase="Running",
        node="gpu-0",
        ready=ready and not crash,
        owner=("RayCluster", "llama"),
        role=role,
        serves=serves,
        containers=(broken if crash else ContainerFacts(name="model", ready=ready, running=True),),
    )


def symptom() -> Symptom:
    (found,) = find_symptoms(Evidence(pods=(pod("a", crash=True),)), now=NOW, previous=None)
    return found


SUMMARY = PodSummary(
    shown=(),
    counts=PodCounts(),
    short=1,
    wanted=1,
    unready="llama-0",
    ready=True,
    only_degrades=False,
    lost=False,
    seen_before=True,
    degraded=False,
    absent=30.0,
)
LIVING = PodCounts(living=1)
GOING = PodCounts(leaving=1)

CASES: list[tuple[str, dict[str, Any], tuple[bool, str] | None]] = [
    ("a fault", {"shown": (symptom(),), "counts": LIVING}, (False, "CrashLoopBackOff")),
    ("a fault", {"shown": (symptom(),), "short": 0, "ready": False}, (False, "CrashLoopBackOff")),
    ("all there", {"counts": PodCounts(living=1, ready=1), "short": 0}, (True, "PodsReady")),
    (
        "all there",
        {"shown": (symptom(),), "counts": PodCounts(living=2, ready=1), "short": 0},
        (True, "PodsReady"),
    ),
    ("lost, some live", {"lost": True, "counts": LIVING}, (False, "PodsNotReady")),
    ("more are starting", {"counts": LIVING}, (False, "Progressing")),
    (
        "more are starting",
        {"counts": PodCounts(living=2, ready=1), "seen_before": False},
        (False, "Progressing"),
    ),
    ("none wanted", {"wanted": 0, "short": 0}, None),
    ("served, and no pod was ever found", {"lost": True, "seen_before": False}, None),
    ("lost, none lives", {"lost": True, "counts": GOING}, (False, "PodsNotReady")),
    ("lost, none lives", {"lost": True, "ready": False}, (False, "PodsNotReady")),
    ("starting", {"counts": LIVING, "seen_before": False}, (False, "Starting")),
    ("starting", {"ready": False}, (False, "Progressing")),
    ("starting", {"ready": False, "seen_before": False}, (False, "Starting")),
    ("ready without a pod from the start", {"seen_before": False}, None),
    ("ready without a pod for too long", {"absent": 0.0}, None),
    ("away for a moment", {}, (False, "Progressing")),
    ("away for a moment", {"lost": True, "degraded": True}, (False, "PodsNotReady")),
    ("away for a moment", {"lost": True}, (False, "Progressing")),
]


@pytest.mark.parametrize(("row", "changes", "shown"), CASES, ids=lambda value: str(value)[:60])
def test_each_row_shows_the_pods_in_its_way(row: str, changes: dict[str, Any], shown: tuple[bool, str] | None) -> None:
    name, _, show = rule_of(replace(SUMMARY, **changes))
    component = show(replace(SUMMARY, **changes))
    assert name == row
    assert (None if component is None else (component.ready, component.reason)) == shown


def test_every_row_has_its_case_and_the_last_one_takes_everything() -> None:
    assert [name for name, *_ in RULES] == list(dict.fromkeys(name for name, *_ in CASES))
    assert RULES[-1][1](SUMMARY)


# ---------------------------------------------------------------------------------------------------- roles (G10)


def looked(
    *components: Component, pods: tuple[PodFacts, ...], desired: int | None = 1, **live: Any
) -> tuple[Resource, Diagnosis]:
    replicas = Replicas(desired=desired) if desired is not None else None
    observation = Observation(components=components, replicas=replicas)
    report = Report(
        observation=observation,
        resource={"metadata": {"creationTimestamp": format_time(NOW - timedelta(hours=1))}},
        subject="RayService/ml/llama",
    )
    deployment = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": live}
    status, _, found = conclude(report, Evidence(pods=pods), deployment=deployment, memory=Memory(), now=NOW)
    return status, found


READY = Component(name="Server", ready=True, reason="Ready")
UNREADY = Component(name="Server", ready=False, reason="Progressing", message="not yet")


def test_g10_only_serving_pods_count() -> None:
    workers = [pod(f"w-{n}", role=WORKER, serves=False, ready=n == 0) for n in range(3)]
    counts = count_pods([pod("h", role=HEAD), *workers])
    assert (counts.living, counts.ready) == (1, 1)


def test_g10_a_worker_that_is_not_ready_contradicts_no_ready_upstream() -> None:
    worker = pod("w-0", role=WORKER, serves=False, ready=False)
    assert looked(READY, pods=(pod("h", role=HEAD), worker))[0]["phase"] == "Running"
    head = pod("h", role=HEAD, ready=False)
    assert looked(READY, pods=(head, pod("w-0", role=WORKER, serves=False)))[0]["phase"] == "Deploying"


def test_g10_a_head_that_serves_does_not_stand_in_for_a_worker() -> None:
    """They share a controller; each does a work of its own."""
    head, worker = pod("h", role=HEAD), pod("w-0", role=WORKER, serves=False, crash=True)
    status, _ = looked(UNREADY, pods=(head, worker))
    assert (status["phase"], status["reason"]) == ("Failed", "CrashLoopBackOff")
    same_role, _ = looked(UNREADY, pods=(pod("w-1", role=WORKER), replace(worker, serves=True)))
    assert same_role["phase"] == "Degraded"


def test_g10_a_failed_worker_is_no_history_because_a_head_is_newer() -> None:
    worker = pod("w-0", role=WORKER, serves=False, crash=True)
    head = replace(pod("h", role=HEAD), created=NOW, revision="2")
    status, found = looked(UNREADY, pods=(replace(worker, revision="1"), head))
    assert found.root_cause is not None
    assert status["rootCause"]["object"] == "Pod/ml/w-0"


# ---------------------------------------------------------------------------------- components (G13), and the order


def test_g13_what_the_rest_serves_without_degrades_and_never_fails() -> None:
    picker = Component(name="Picker", ready=False, reason="UpstreamFailed", message="no picker")
    failed, _ = looked(READY, picker, pods=(pod("a"),))
    assert failed["phase"] == "Failed"
    degraded, _ = looked(READY, replace(picker, only_degrades=True), pods=(pod("a"),))
    assert (degraded["phase"], degraded["message"]) == ("Degraded", "no picker")


def test_pods_of_a_part_that_the_rest_serves_without_degrade_and_never_fail() -> None:
    picker = Component(
        name="Picker", ready=False, reason="Progressing", message="not yet", only_degrades=True, role="picker"
    )
    broken = pod("p", role="picker", serves=False, crash=True)
    for main, ready in ((READY, True), (UNREADY, False)):
        status, _ = looked(main, picker, pods=(pod("a", ready=ready), replace(broken, owner=("ReplicaSet", "p"))))
        assert (status["phase"], status["reason"]) == ("Degraded", "CrashLoopBackOff")
        assert status["rootCause"]["object"] == "Pod/ml/p"
    alone, _ = looked(UNREADY, replace(picker, role=""), pods=(pod("a", ready=False), broken))
    assert alone["phase"] == "Failed", "nothing says whose pod it is"


def test_g13_a_component_of_which_nothing_is_known_keeps_the_phase() -> None:
    unknown = Component(name="Picker", ready=None, reason="Unknown")
    for phase in ("Running", "Degraded", "Deploying"):
        assert looked(READY, unknown, pods=(pod("a"),), phase=phase)[0]["phase"] == phase


def said(*components: Component, pods: tuple[PodFacts, ...], **live: Any) -> list[str]:
    return [fault.component for fault in looked(*components, pods=pods, **live)[1].faults]


GENERAL = Component(name="General", ready=False, reason="UpstreamFailed", message="not ready")
PRECISE = Component(name="Precise", ready=False, reason="SecretNotFound", message="no secret")
OUTDATED = Component(name="Outdated", ready=False, reason="ImageNotFound", message="as of an hour ago")
SERVED = {"type": "Served", "status": "True", "reason": "Served", "observedGeneration": 1,
          "lastTransitionTime": format_time(NOW - timedelta(minutes=30))}  # fmt: skip


def test_a_precise_word_comes_before_a_general_one_and_pods_that_start_after_both() -> None:
    order = said(OUTDATED, GENERAL, PRECISE, pods=(pod("a", ready=False),))
    assert order == ["Precise", "General", "Pods", "Outdated"]


def test_lost_pods_stand_between_the_precise_and_the_general_word() -> None:
    order = said(OUTDATED, GENERAL, PRECISE, pods=(pod("a", ready=False),), phase="Running", conditions=[SERVED])
    assert order == ["Precise", "Pods", "General", "Outdated"]


def test_a_pod_s_precise_fault_comes_first_and_explains_the_general_and_the_outdated_word() -> None:
    assert said(OUTDATED, GENERAL, PRECISE, pods=(pod("a", crash=True),)) == ["Pods", "Precise"]
