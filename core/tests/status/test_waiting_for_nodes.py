"""Pods without a node, and workloads without pods: gates, autoscalers, quotas and limits of the namespace."""

from __future__ import annotations

import pytest
from tests.support.evidence import NOW, at, event, evidence, pod, refusal, unschedulable

from airunway.resource import Resource
from airunway.status.rootcause import RootCause, Symptom, find_root_cause, find_symptoms

SELECTOR = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
GPUS = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: "
SCALE_UP = "pod triggered scale-up: [{gpu-h200 0->1 (max: 4)}]"
NO_SCALE_UP = "pod didn't trigger scale-up: 1 max node group size reached"
MISFIT = "pod didn't trigger scale-up: 2 node(s) didn't match Pod's node affinity/selector"
NOMINATED = "Pod should schedule on: nodeclaim/gpu-abc"
KARPENTER = 'Failed to schedule pod, incompatible with nodepool "gpu", no instance type met the requirements'
KUEUE = "kueue.x-k8s.io/admission"


def first(*told: Resource, message: str = SELECTOR) -> Symptom:
    """The worst symptom of a pod without a node, with these events about it."""
    return find_symptoms(evidence(pod(**unschedulable(message)), events=told), now=NOW)[0]


def cause_of(*told: Resource, message: str = SELECTOR) -> RootCause:
    cause = find_root_cause(evidence(pod(**unschedulable(message)), events=told), now=NOW)
    assert cause is not None
    return cause


def gated(*gates: str, name: str = "llama-0", queue: str = "") -> Resource:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "is blocked"}
    spec = {"nodeName": None, "schedulingGates": [{"name": gate} for gate in gates]}
    made = pod(name, spec=spec, conditions=[{**condition, "lastTransitionTime": at(40)}])
    if queue:
        made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), "kueue.x-k8s.io/queue-name": queue}
    return made


# ---------------------------------------------------------------------------------------------------------- autoscalers


@pytest.mark.parametrize(
    ("reason", "note", "names"),
    [("TriggeredScaleUp", SCALE_UP, "gpu-h200"), ("Nominated", NOMINATED, "nodeclaim/gpu-abc")],
)
@pytest.mark.parametrize("message", [SELECTOR, f"{GPUS}3 No preemption victims found for incoming pod."])
def test_field_case_11_a_node_that_comes_is_said_and_nothing_is_to_be_done(
    message: str, reason: str, note: str, names: str
) -> None:
    found = first(event(reason, note), message=message)
    assert (found.reason, found.code) == ("PendingResources", "")
    assert "a node is on its way" in found.message
    assert names in found.message
    assert "selector" not in found.message


def test_field_case_11_the_autoscaler_s_reason_stands_after_the_scheduler_s() -> None:
    cause = cause_of(event("NotTriggerScaleUp", NO_SCALE_UP))
    assert cause.reason == "FailedScheduling"
    assert cause.evidence.index("didn't match") < cause.evidence.index("1 max node group size reached")
    assert "Raise the maximum of the node group" in cause.message
    assert "correct the node selector" not in cause.message


@pytest.mark.parametrize(
    ("reason", "note", "advice"),
    [
        ("NotTriggerScaleUp", MISFIT, "add a node group or NodePool"),
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 1 in backoff after failed scale-up",
            "asks again by itself",
        ),
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 1 max cluster cpu, memory limit reached",
            "Raise the maximum",
        ),
        ("FailedScheduling", KARPENTER, "add a node group or NodePool"),
        ("FailedScheduling", "Failed to schedule pod, all available instance types exceed limits", "Raise the maximum"),
        (
            "FailedScaleUp",
            "Node scale up in zones a associated with this pod failed: out of resources.",
            "asks again by itself",
        ),
    ],
)
def test_field_case_11_sibling_each_refusal_of_an_autoscaler_has_its_own_advice(
    reason: str, note: str, advice: str
) -> None:
    cause = cause_of(event(reason, note), message=f"{GPUS}3 No preemption victims found for incoming pod.")
    assert cause.code == "Unschedulable.InsufficientGPU"
    assert note.partition(", ")[0].removesuffix(".") in cause.evidence
    assert advice in cause.message


def test_field_case_11_sibling_the_newest_word_of_an_autoscaler_counts() -> None:
    comes, stays = event("TriggeredScaleUp", SCALE_UP, ago=30), event("NotTriggerScaleUp", NO_SCALE_UP, ago=200)
    assert first(comes, stays).reason == first(stays, comes).reason == "PendingResources"
    later = event("NotTriggerScaleUp", NO_SCALE_UP, ago=5)
    assert first(comes, later).reason == "FailedScheduling"


def test_a_later_word_of_the_scheduler_does_not_hide_a_node_that_comes() -> None:
    scheduler = event("FailedScheduling", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", ago=1)
    assert first(event("TriggeredScaleUp", SCALE_UP, ago=60), scheduler).reason == "PendingResources"


def test_a_node_that_has_not_come_for_fifteen_minutes_is_not_waited_for() -> None:
    cause = cause_of(event("TriggeredScaleUp", SCALE_UP, ago=901))
    assert cause.reason == "FailedScheduling"
    assert "has not come for 15 minutes" in cause.evidence


def test_an_event_about_an_earlier_pod_of_the_name_brings_no_node() -> None:
    assert first(event("TriggeredScaleUp", SCALE_UP, uid="earlier")).reason == "FailedScheduling"


# ------------------------------------------------------------------------------------------------------ nodes too small


@pytest.mark.parametrize(
    ("message", "never"),
    [
        (f"{GPUS}3 Preemption is not helpful for scheduling.", True),
        (f"{GPUS}2 Preemption is not helpful for scheduling.", False),
        (f"{GPUS}1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.", False),
        (f"{GPUS}3 No preemption victims found for incoming pod.", False),
        (
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient "
            "nvidia.com/gpu. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
            True,
        ),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", False),
        (
            "0/3 nodes are available: 3 Insufficient cpu, 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are "
            "available: 3 Preemption is not helpful for scheduling.",
            False,
        ),
    ],
)
def test_more_gpus_than_any_node_has_are_told_from_gpus_that_are_taken(message: str, never: bool) -> None:
    cause = cause_of(message=message)
    assert cause.code == "Unschedulable.InsufficientGPU"
    assert ("none will ever do" in cause.message) is never
    assert ("spec.scaling.nodesPerReplica" in cause.message) is never


def test_a_device_class_that_does_not_exist_is_a_cause_of_its_own() -> None:
    told = (
        "0/3 nodes are available: request gpus: device class gpu.nvidia.com does not exist. no new claims to deallocate"
    )
    cause = cause_of(
        message=f"{told}, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    assert (cause.code, cause.field) == ("DeviceClass.NotFound", "spec.resources.gpu.deviceClass")
    assert cause.evidence.endswith("request gpus: device class gpu.nvidia.com does not exist.")


# ---------------------------------------------------------------------------------------------------------------- gates


def test_a_gated_pod_names_its_gate() -> None:
    cause = find_root_cause(evidence(gated("acme.example/budget")), now=NOW)
    assert cause is not None
    assert (cause.code, cause.reason) == ("Unschedulable.Gated", "SchedulingGated")
    assert "acme.example/budget" in cause.evidence
    assert "kubectl describe pod llama-0 -n ml" in cause.message


def test_several_gates_are_all_named_and_kueue_s_has_advice_about_the_queue() -> None:
    cause = find_root_cause(evidence(gated(KUEUE, "acme.example/budget")), now=NOW)
    assert cause is not None
    assert f"{KUEUE}, acme.example/budget" in cause.evidence
    assert "kueue.x-k8s.io/queue-name" in cause.message
    assert "kubectl describe workloads -n ml" in cause.message


def test_a_pod_in_place_of_one_that_kueue_evicted_says_why_in_one_line() -> None:
    why = "Preempted to accommodate a workload (UID: 7) due to prioritization in the ClusterQueue"
    told = event("Stopped", why, name="llama-9", uid="gone")
    (found,) = find_symptoms(evidence(gated(KUEUE, name="llama-1", queue="team"), events=(told,)), now=NOW)
    gate = f"scheduling gate {KUEUE} (queue team)"
    assert found.message == f"Pod llama-1: may not be scheduled yet: {gate}; Kueue evicted pod llama-9: {why}."
    after = event("Stopped", "missing workload", name="llama-9", uid="gone", ago=-1)
    assert find_symptoms(evidence(gated(KUEUE, name="llama-1", queue="team"), events=(after, told)), now=NOW) == (
        found,
    )
    foreign = event("Stopped", why, name="other-9", uid="gone")
    assert "evicted" not in find_symptoms(evidence(gated(KUEUE), events=(foreign,)), now=NOW)[0].message


# ----------------------------------------------------------------------------------------------- quotas and LimitRanges


REFUSED = 'create Pod llama-0 in StatefulSet llama failed error: pods "llama-0" is forbidden: '


@pytest.mark.parametrize(
    ("note", "code", "reason", "says", "advice", "not_advised"),
    [
        (
            f"{REFUSED}failed quota: team: must specify limits.cpu for: model; limits.memory for: model",
            "Unschedulable.Quota",
            "QuotaExceeded",
            "failed quota: team: must specify limits.cpu for: model",
            "spec.resources.limits.cpu",
            "Ask for less",
        ),
        (
            f"{REFUSED}exceeded quota: team, requested: limits.cpu=8, used: limits.cpu=60, limited: limits.cpu=64",
            "Unschedulable.Quota",
            "QuotaExceeded",
            "used: limits.cpu=60",
            "Ask for less",
            "LimitRange",
        ),
        (
            f"{REFUSED}maximum cpu usage per Container is 4, but limit is 8",
            "Provider.Rejected",
            "InvalidSpec",
            "per Container is 4",
            "kubectl describe limitrange -n ml",
            "the policy that refuses it",
        ),
        (
            'create Pod llama-0 in StatefulSet llama failed error: Pod "llama-0" is invalid: '
            'spec.containers[0].resources.requests: Invalid value: "8": must be less than or equal to cpu limit of 4',
            "Provider.Rejected",
            "InvalidSpec",
            "less than or equal to cpu limit of 4",
            "spec.resources.limits.cpu",
            "the policy that refuses it",
        ),
    ],
    ids=["nothing said", "too much", "above the maximum", "above the default"],
)
def test_field_case_08_each_refusal_by_quota_or_limit_range_has_its_own_advice(
    note: str, code: str, reason: str, says: str, advice: str, not_advised: str
) -> None:
    for prefix in ("", "(combined from similar events): "):
        cause = find_root_cause(evidence(events=(refusal(prefix + note),)), now=NOW)
        assert cause is not None
        assert (cause.code, cause.reason, cause.object) == (code, reason, "StatefulSet/ml/llama")
        assert says in cause.evidence
        assert "combined from" not in cause.evidence
        assert advice in cause.message
        assert not_advised not in cause.message
