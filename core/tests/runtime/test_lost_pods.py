"""A deployment that served and does not any more, next to one that has never come up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airunway.plugins.contract import Component, Observation, Replicas
from airunway.resource import Resource, condition_of, format_time
from airunway.runtime.diagnosis import ABSENCE_PATIENCE, conclude
from airunway.runtime.memory import Memory
from airunway.runtime.report import Report
from airunway.status.evidence import ContainerFacts, Ending, EventFacts, Evidence, PodFacts, Unscheduled

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MADE = NOW - timedelta(hours=2)


def pod(name: str = "llama-0", *, ready: bool = True, **fields: Any) -> PodFacts:
    """A pod that has run for an hour; unready, it has been so since just now."""
    started = fields.pop("started", NOW - timedelta(hours=1))
    base: dict[str, Any] = {
        "namespace": "ml",
        "name": name,
        "uid": name,
        "created": started,
        "phase": "Running",
        "node": "gpu-0",
        "ready": ready,
        "ready_since": NOW,
        "owner": ("StatefulSet", "llama"),
        "containers": (ContainerFacts(name="model", ready=ready, running=True, started=started),),
    }
    return PodFacts(**{**base, **fields})


def fresh(name: str = "llama-0") -> PodFacts:
    """A pod whose containers run and that has not been ready yet."""
    return pod(name, ready=False, started=NOW, created=NOW)


READY = (True, "Ready", "")
SAYS_NOT_READY = (False, "UpstreamFailed", "Inference workload is not ready")


def says(ready: bool, reason: str, message: str, *, desired: int = 1) -> Report:
    component = Component(name="ProviderResource", ready=ready, reason=reason, message=message)
    observation = Observation(components=(component,), replicas=Replicas(desired=desired))
    return Report(
        observation=observation,
        resource={"kind": "Workspace", "metadata": {"name": "llama", "creationTimestamp": format_time(MADE)}},
        subject="Workspace/ml/llama",
    )


def follow(
    deployment: Resource,
    report: Report,
    *pods: PodFacts,
    events: tuple[EventFacts, ...] = (),
    now: datetime = NOW,
    memory: Memory | None = None,
) -> Resource:
    """The deployment after a pass."""
    evidence = Evidence(pods=pods, events=events, served=True)
    status, *_ = conclude(report, evidence, deployment=deployment, memory=memory or Memory(), now=now)
    return {**deployment, "status": status}


def running(generation: int = 1) -> Resource:
    """A deployment that serves, an hour after its object was made."""
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": generation}, "status": {}}
    deployment = follow(start, says(*READY), pod(), now=MADE + timedelta(hours=1))
    assert deployment["status"]["phase"] == "Running"
    return deployment


def shown(deployment: Resource) -> tuple[str, str, str]:
    status = deployment["status"]
    return status["phase"], status["reason"], status["message"]


def test_what_is_ready_as_soon_as_it_is_made_has_served_although_the_pass_began_before() -> None:
    """A pass has one moment for all it tells, and an API server says when it made an object in whole seconds."""
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    deployment = follow(start, says(*READY), now=MADE - timedelta(milliseconds=300))
    assert deployment["status"]["phase"] == "Running"
    unwell = follow(deployment, says(False, "ServerError", "the upstream answers 500"), now=MADE + timedelta(seconds=5))
    assert shown(unwell) == ("Running", "ServerError", "the upstream answers 500"), "no pods are waited for"


def test_a_pod_that_is_not_ready_any_more_degrades_at_once_and_the_upstream_adds_nothing() -> None:
    lost = follow(running(), says(*READY), pod(ready=False))
    assert shown(lost) == ("Degraded", "PodsNotReady", "0 of 1 pods are ready (not ready: llama-0)")
    ready = condition_of(lost, "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("False", "PodsNotReady")
    assert shown(follow(lost, says(*SAYS_NOT_READY), pod(ready=False))) == shown(lost)
    back = follow(lost, says(*READY), pod())
    assert shown(back) == ("Running", "Ready", "Workspace llama is ready")
    assert (condition_of(back, "Served") or {})["lastTransitionTime"] == format_time(MADE + timedelta(hours=1))


@pytest.mark.parametrize(
    ("unready", "named"),
    [
        ("c", "c"),
        ("cab", "a, b, c"),
        ("dcba", "a, b, c and 1 more"),
        ("edcba", "a, b, c and 2 more"),
    ],
)
def test_three_pods_are_named_in_order_and_the_others_counted(unready: str, named: str) -> None:
    """The caches' order is any: another text would be another write."""
    count = len(unready) + 1
    several = says(*READY, desired=count)
    lost = follow(running(), several, *(pod(name, ready=False) for name in unready), pod("z"))
    assert (condition_of(lost, "PodsReady") or {})["message"] == f"1 of {count} pods are ready (not ready: {named})"


def test_the_upstream_s_precise_word_is_added() -> None:
    nodes = says(False, "PendingResources", "Not enough Nodes are ready")
    lost = follow(running(), nodes, pod(ready=False))
    assert shown(lost) == (
        "Degraded",
        "PodsNotReady",
        "0 of 1 pods are ready (not ready: llama-0); Not enough Nodes are ready",
    )


def test_a_pod_that_is_replaced_is_lost_until_the_new_one_is_ready() -> None:
    course = [running()]
    for pods in ((pod(deleting=True),), (), (fresh(),)):
        course.append(follow(course[-1], says(*SAYS_NOT_READY), *pods))
    assert [shown(step)[:2] for step in course[1:]] == [("Degraded", "PodsNotReady")] * 3


def test_pods_that_vanish_under_a_ready_upstream_may_be_elsewhere() -> None:
    vanished = follow(running(), says(*READY))
    assert shown(vanished) == ("Deploying", "Progressing", "No pod is there")
    after = follow(vanished, says(*READY), now=NOW + ABSENCE_PATIENCE)
    assert shown(after)[0] == "Running"
    ending = follow(running(), says(*READY), pod(deleting=True))
    assert shown(ending)[:2] == ("Degraded", "PodsNotReady")
    assert shown(follow(ending, says(*READY)))[:2] == ("Degraded", "PodsNotReady")
    assert shown(follow(ending, says(*READY, desired=0)))[0] == "Running"  # scaled to nothing: nobody misses them


def test_one_pod_more_is_progress_and_one_lost_of_several_is_not() -> None:
    two = says(*READY, desired=2)
    grown = follow(running(), two, pod(), fresh("llama-1"))
    assert shown(grown) == ("Deploying", "Progressing", "1 of 2 pods are ready")
    lost = follow(running(), two, pod(), pod("llama-1", ready=False))
    assert shown(lost) == ("Degraded", "PodsNotReady", "1 of 2 pods are ready (not ready: llama-1)")


def test_g14_pods_beyond_the_demand_contradict_nothing() -> None:
    """An autoscaler's further pod that starts, crashes or goes is no news while as many serve as are wanted."""
    crashing = pod("llama-1", ready=False, containers=(ContainerFacts(name="model", waiting="CrashLoopBackOff"),))
    for further in (fresh("llama-1"), crashing, pod("llama-1", deleting=True), pod("llama-1", ready=False)):
        found = follow(running(), says(*READY), pod(), further)
        assert shown(found) == ("Running", "Ready", "Workspace llama is ready")
        assert (condition_of(found, "PodsReady") or {})["status"] == "True"
    # Without a demand nobody can tell which pod is beyond it: all of them count.
    anything = says(*READY)
    assert anything.observation is not None
    anything = replace(anything, observation=replace(anything.observation, replicas=None))
    assert shown(follow(running(), anything, pod(), crashing))[:2] == ("Degraded", "CrashLoopBackOff")


def test_the_message_names_some_of_many() -> None:
    pods = [pod(f"llama-{number}", ready=False) for number in range(5)]
    told = shown(follow(running(), says(*READY), *pods))[2]
    assert told == "0 of 5 pods are ready (not ready: llama-0, llama-1, llama-2 and 2 more)"


def test_after_an_edit_pods_that_are_not_ready_are_progress() -> None:
    edited = running()
    edited["metadata"]["generation"] = 2
    assert shown(follow(edited, says(*READY), pod(ready=False)))[:2] == ("Deploying", "Progressing")
    assert shown(follow(edited, says(*SAYS_NOT_READY), fresh()))[:2] == ("Degraded", "UpstreamFailed")


def test_an_evicted_pod_has_no_grace_when_it_was_the_one_that_served() -> None:
    evicted = pod(ready=False, phase="Failed", reason="Evicted", message="The node was low on resource: memory. ")
    lost = follow(running(), says(*READY), evicted)
    assert shown(lost)[:2] == ("Degraded", "PodEvicted")
    assert "memory." in shown(lost)[2]
    assert ".." not in shown(lost)[2]
    pulls = ContainerFacts(name="model", image="i", waiting="ErrImagePull", message="dial tcp: no such host")
    beside = follow(running(), says(*READY, desired=2), pod(), pod("llama-1", ready=False, containers=(pulls,)))
    assert shown(beside)[:2] == ("Running", "DNSFailure")  # informational, within its grace


def test_real_llmd_5_what_a_pod_said_last_is_told_where_its_upstream_deletes_those_that_fail() -> None:
    """LeaderWorkerSet deletes the group with the pod: there is no log to read any more."""
    said = Ending(code=1, reason="Error", message="NCCL error: no route", finished=NOW)
    crashed = pod(ready=False, containers=(ContainerFacts(name="model", restarts=2, running=True, last=said),))
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    memory = Memory()
    starts = follow(start, says(False, "Progressing", "0 of 1 replicas"), crashed, memory=memory)
    assert shown(starts)[2].startswith("Pod llama-0, container model: ended with exit code 1: NCCL error: no route")
    loop = says(False, "RestartLoop", "0 of 1 replicas are ready; LeaderWorkerSet made groups anew: llama-0 failed")
    for _ in range(2):
        looping = follow(starts, loop, fresh(), memory=memory)
        assert shown(looping)[1] == "RestartLoop"
        assert (
            "llama-0 failed; Pod llama-0, container model: ended with exit code 1: NCCL error: no" in shown(looping)[2]
        )
        assert "--previous" not in shown(looping)[2]
        assert "<pod>" not in shown(looping)[2]
    follow(looping, says(*READY), pod(), memory=memory)
    assert "NCCL" not in shown(follow(looping, loop, fresh(), memory=memory))[2], "that was before it served"


def apart(*, decode: bool, desired: int = 2) -> Report:
    """Decode, without which nothing is answered, and prefill, without which decode serves."""
    told = (True, "Ready", "") if decode else (False, "Progressing", "decode: 0 of 1 replicas are ready")
    components = (
        Component(name="Decode", ready=told[0], reason=told[1], message=told[2], role="decode"),
        Component(name="Prefill", ready=True, reason="Ready", only_degrades=True, role="prefill"),
    )
    report = says(*READY)
    return replace(report, observation=Observation(components=components, replicas=Replicas(desired=desired)))


def of(role: str, make: Callable[..., PodFacts] = pod, **fields: Any) -> PodFacts:
    return replace(make(f"llama-{role}"), role=role, owner=("ReplicaSet", f"llama-{role}"), **fields)


@pytest.mark.parametrize(
    ("noticed", "pods"),
    [
        pytest.param(True, (), id="none is there"),
        *(
            pytest.param(noticed, (found,), id=f"{what}, {'seen' if noticed else 'not seen'} by its Deployment")
            for noticed in (True, False)
            for what, found in (
                ("the next one starts", of("decode", fresh)),
                ("it is going", of("decode", deleting=True)),
            )
        ),
    ],
)
@pytest.mark.parametrize("beside", [1, 2])
def test_real_llmd_2_a_needed_role_without_a_ready_pod_is_degraded_whatever_other_roles_have(
    noticed: bool, pods: tuple[PodFacts, ...], beside: int
) -> None:
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    serves = follow(start, apart(decode=True), of("decode"), of("prefill"), now=MADE + timedelta(hours=1))
    assert serves["status"]["phase"] == "Running"
    prefill = [replace(of("prefill"), name=f"llama-prefill-{number}") for number in range(beside)]
    lost = follow(serves, apart(decode=not noticed), *pods, *prefill)
    assert shown(lost)[:2] == ("Degraded", "PodsNotReady")
    assert "No decode pod is ready, so no request is answered" in shown(lost)[2]
    assert "(not ready: )" not in shown(lost)[2]
    back = follow(lost, apart(decode=True), of("decode"), of("prefill"))
    assert shown(back)[0] == "Running"


def test_real_llmd_2_a_role_that_the_rest_serves_without_is_no_outage() -> None:
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    serves = follow(start, apart(decode=True), of("decode"), of("prefill"))
    lost = follow(serves, apart(decode=True), of("decode"), of("prefill", fresh))
    assert "no request is answered" not in shown(lost)[2]


def test_real_llmd_2_before_it_has_served_a_needed_role_that_starts_is_progress() -> None:
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    assert shown(follow(start, apart(decode=False), of("decode", fresh), of("prefill")))[0] == "Deploying"
    nothing = follow(start, apart(decode=True, desired=1), of("prefill"))
    assert shown(nothing)[0] == "Running", "a role that wants no pod misses none"


def test_missing_capacity_for_a_lost_pod_stays_waiting_and_has_its_code() -> None:
    told = Unscheduled(reason="Unschedulable", message="3 Insufficient nvidia.com/gpu.", since=NOW)
    pending = pod(ready=False, phase="Pending", node="", containers=(), unscheduled=told)
    found = follow(running(), says(*SAYS_NOT_READY), pending)
    assert shown(found)[:2] == ("Deploying", "InsufficientCapacity")
    assert found["status"]["rootCause"]["code"] == "Unschedulable.InsufficientGPU"


@pytest.mark.parametrize("anew", [False, True], ids=["the object that served", "a new object"])
def test_a_crash_fails_what_has_not_served_since_its_object_was_made(anew: bool) -> None:
    crashing = pod(ready=False, containers=(ContainerFacts(name="model", waiting="CrashLoopBackOff", restarts=3),))
    report = says(*SAYS_NOT_READY)
    if anew:
        report = replace(report, resource={"metadata": {"creationTimestamp": format_time(NOW)}})
    lost = follow(running(), report, pod(deleting=True))  # the phase is not Running any more
    found = follow(lost, report, crashing)
    assert shown(found)[:2] == ("Failed" if anew else "Degraded", "CrashLoopBackOff")
    assert (condition_of(found, "Served") is None) == anew


def test_refused_credentials_and_then_a_crash_never_served() -> None:
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    message = "failed to resolve reference: unexpected status: 401 Unauthorized"
    refused = pod(
        ready=False, containers=(ContainerFacts(name="model", waiting="ErrImagePull", image="i", message=message),)
    )
    degraded = follow(start, says(False, "Progressing", "starts"), refused)
    assert shown(degraded)[:2] == ("Degraded", "AuthFailed")
    crashing = pod(ready=False, containers=(ContainerFacts(name="model", waiting="CrashLoopBackOff", restarts=3),))
    assert shown(follow(degraded, says(False, "Progressing", "starts"), crashing))[0] == "Failed"


def test_an_engine_that_loads_again_may_fail_its_probes() -> None:
    told = EventFacts(
        kind="Pod", namespace="ml", name="llama-0", reason="Unhealthy", note="Readiness probe failed: refused", last=NOW
    )
    loads = follow(running(), says(*SAYS_NOT_READY), fresh(), events=(told,))
    assert "rootCause" not in loads["status"]
    hangs = follow(running(), says(*SAYS_NOT_READY), pod(ready=False), events=(told,))
    assert hangs["status"]["rootCause"]["code"] == "Probe.Timeout"


def test_what_the_upstream_has_not_noticed_is_not_the_first_thing_said() -> None:
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    outdated = says(False, "ImageNotFound", "image pull failed")
    starts = follow(start, outdated, fresh())
    assert shown(starts) == ("Deploying", "Starting", "No pod is ready yet")
    told = (condition_of(starts, "ProviderResourceReady") or {})["message"]
    assert told == "The upstream still reports a fault that no pod shows any more: image pull failed"
    assert shown(follow(starts, outdated, pod())) == ("Deploying", "Progressing", told)


def test_where_no_pod_ever_shows_the_upstreams_word_is_enough_to_be_back() -> None:
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    served = follow(start, says(*READY), now=MADE + timedelta(hours=1))
    assert served["status"]["phase"] == "Running"

    broken = follow(served, says(*SAYS_NOT_READY))
    assert broken["status"]["phase"] != "Running"
    assert "UpstreamFailed" in {condition["reason"] for condition in broken["status"]["conditions"]}

    again = follow(follow(broken, says(*SAYS_NOT_READY)), says(*READY))
    assert again["status"]["phase"] == "Running"


def test_real_llmd_11_an_upstream_that_does_not_notice_that_all_pods_are_ready_is_named() -> None:
    """LeaderWorkerSet's manager was away: its status stood still, and nothing said why."""
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    pending = says(False, "Progressing", "0 of 1 replicas are ready")
    ready = follow(start, pending, pod())
    assert "controller" not in str(condition_of(ready, "ProviderResourceReady"))
    later = follow(ready, pending, pod(), now=NOW + timedelta(minutes=3))
    assert "see whether the controller of Workspace runs" in shown(later)[2]
    assert shown(later)[:2] == ("Deploying", "Progressing")


def test_of_an_upstream_with_a_reason_of_its_own_the_controller_is_not_suspected() -> None:
    """An InferencePool that another writer had edited: its message ended with doubts about an operator."""
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    edited = says(False, "ResourceConflict", "a label was added by another writer")
    later = follow(follow(start, edited, pod()), edited, pod(), now=NOW + timedelta(minutes=3))
    assert (condition_of(later, "ProviderResourceReady") or {})["message"] == "a label was added by another writer"


def member(name: str, role: str, *, node: str) -> PodFacts:
    told = None if node else Unscheduled(reason="Unschedulable", message="2 Insufficient nvidia.com/gpu.", since=NOW)
    base = pod(name, ready=False, phase="Running" if node else "Pending", node=node, started=NOW, created=NOW)
    containers = base.containers if node else ()
    return replace(base, role=role, serves=role == "server", unscheduled=told, containers=containers)


@pytest.mark.parametrize(
    ("leaders", "workers", "says_"),
    [
        (("a", "b"), ("", ""), "The 2 groups wait for each other: 2 of 4 pods hold their GPUs and no group is whole."),
        (("a", "b", "c", "d"), ("", "", "", ""), "Set spec.scaling.replicas to 2; then 2 of them can serve."),
        (("a",), ("",), ""),
    ],
    ids=["two groups, room for one", "four groups, room for two", "one group"],
)
def test_real_llmd_7_groups_that_keep_each_other_from_their_gpus_are_told_what_would_help(
    leaders: tuple[str, ...], workers: tuple[str, ...], says_: str
) -> None:
    start: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}
    pods = [member(f"l-{i}", "server", node=node) for i, node in enumerate(leaders)]
    pods += [member(f"l-{i}-1", "server-worker", node=node) for i, node in enumerate(workers)]
    found = follow(start, says(False, "Progressing", "0 replicas", desired=len(leaders)), *pods)
    assert shown(found)[:2] == ("Deploying", "InsufficientCapacity")
    assert says_ in shown(found)[2]
    assert ("wait for each other" in shown(found)[2]) is bool(says_)
    serving = [replace(pods[0], ready=True), *pods[1:]]
    served = follow(start, says(False, "Progressing", "1 replica", desired=len(leaders)), *serving)
    assert "wait for each other" not in shown(served)[2]
