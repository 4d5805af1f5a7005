"""What users brought to other projects and waited for in vain, on the real scheduler, quota and admission.

Each test is named after its report; the words are tested in ``core/tests/status/test_waiting_for_nodes.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from tests.support.cluster_fixtures import RESOURCE_QUOTA, gpu_quota
from tests.support.faults import has_cause
from tests.vllm.conftest import Pods

from airunway.kube import POD, Client, Kind
from airunway.resource import ObjectKey, Resource, dig, format_time, key_of, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

OLDER_EVENT = Kind(group="", version="v1", kind="Event", plural="events")
LIMIT_RANGE = Kind(group="", version="v1", kind="LimitRange", plural="limitranges")
POLICIES = "admissionregistration.k8s.io"
POLICY = Kind(
    group=POLICIES, version="v1", kind="MutatingAdmissionPolicy", plural="mutatingadmissionpolicies", namespaced=False
)
BINDING = Kind(
    group=POLICIES,
    version="v1",
    kind="MutatingAdmissionPolicyBinding",
    plural="mutatingadmissionpolicybindings",
    namespaced=False,
)


def made(kind: Kind, name: str, namespace: str = "", **fields: Resource) -> Resource:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def message(deployment: Resource) -> str:
    return str(dig(deployment, "status", "message", default=""))


def says(*words: str) -> Callable[[Resource], bool]:
    return lambda deployment: all(word in message(deployment) for word in words)


def autoscaler_says(pod: Resource, reason: str, note: str) -> Resource:
    """The event of an autoscaler about a pod, as the older API of events has it."""
    now, key = format_time(datetime.now(UTC)), key_of(pod)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{key.name}.{reason.lower()}", "namespace": key.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid_of(pod),
        },
        "type": "Normal",
        "reason": reason,
        "message": note,
        "source": {"component": "cluster-autoscaler"},
        "firstTimestamp": now,
        "lastTimestamp": now,
    }


async def until_it_gates(client: Client, namespace: str) -> None:
    """Wait until the API server applies the admission policy to pods."""
    pod = made(POD, "probe", namespace, spec={"containers": [{"name": "x", "image": "x"}]})
    async with asyncio.timeout(PATIENCE):
        while not dig(await client.create(POD, pod, dry_run=True), "spec", "schedulingGates"):
            await asyncio.sleep(0.2)


async def test_field_case_08_a_quota_on_cpu_limits_names_what_to_write(
    deploy: Deploy, client: Client, namespace: str
) -> None:
    hard = {"limits.cpu": "64", "requests.nvidia.com/gpu": "8"}
    await client.create(RESOURCE_QUOTA, made(RESOURCE_QUOTA, "team", namespace, spec={"hard": hard}))
    key = await deploy("chat", resources={"gpu": {"count": 1}, "cpu": "8", "memory": "32Gi"})
    found = await until(client, key, has_cause("Unschedulable.Quota"), what="the quota")
    for words in ("failed quota: team", "must specify limits.cpu", "spec.resources.limits.cpu", "LimitRange"):
        assert words in message(found)
    assert "Ask for less" not in message(found)


async def test_field_case_08_sibling_limit_ranges_are_named(deploy: Deploy, client: Client, namespace: str) -> None:
    limits = [{"type": "Container", "default": {"cpu": "4"}, "max": {"memory": "16Gi"}}]
    await client.create(LIMIT_RANGE, made(LIMIT_RANGE, "team", namespace, spec={"limits": limits}))
    above = await deploy("above-default", resources={"gpu": {"count": 1}, "cpu": "8"})
    found = await until(client, above, has_cause("Provider.Rejected"), what="the default limit")
    assert "must be less than or equal to cpu limit of 4" in message(found)
    assert "spec.resources.limits.cpu" in message(found)
    larger = await deploy("above-maximum", resources={"gpu": {"count": 1}, "cpu": "2", "memory": "32Gi"})
    found = await until(client, larger, has_cause("Provider.Rejected"), what="the maximum")
    assert "maximum memory usage per Container is 16Gi" in message(found)
    assert "kubectl describe limitrange" in message(found)


async def test_field_case_11_what_autoscalers_do_is_in_the_message(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy("scale", nodeSelector={"pool": "h200"})
    found = await until(client, key, has_cause("Unschedulable.TaintOrSelector"), what="no node")
    (pod,) = await pods(key)
    for reason, note, wanted in (
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached", "Raise the maximum"),
        ("TriggeredScaleUp", "pod triggered scale-up: [{gpu-h200 0->1 (max: 4)}]", "a node is on its way"),
    ):
        await asyncio.sleep(1)  # an event has whole seconds: the later one is to be newer
        await client.create(OLDER_EVENT, autoscaler_says(pod, reason, note))
        found = await until(client, key, says(note, wanted), what=reason)
    assert (dig(found, "status", "phase"), dig(found, "status", "reason")) == ("Deploying", "PendingResources")
    assert "rootCause" not in found["status"]
    assert "selector" not in message(found)


async def test_a_gated_pod_names_the_gate(deploy: Deploy, client: Client, namespace: str) -> None:
    gate = 'Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: "kueue.x-k8s.io/admission"}]}}'
    name = f"gates-{namespace}"
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        },
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": gate}}],
    }
    await client.create(POLICY, made(POLICY, name, spec=spec))
    await client.create(BINDING, made(BINDING, name, spec={"policyName": name}))
    try:
        await until_it_gates(client, namespace)
        key = await deploy("queued")
        found = await until(client, key, has_cause("Unschedulable.Gated"), what="the gate")
        assert (dig(found, "status", "phase"), dig(found, "status", "reason")) == ("Deploying", "SchedulingGated")
        assert "kueue.x-k8s.io/admission" in message(found)
        assert f"kubectl describe workloads -n {namespace}" in message(found)
    finally:
        await client.delete(BINDING, ObjectKey("", name))
        await client.delete(POLICY, ObjectKey("", name))


async def test_a_quota_that_takes_the_pod_of_a_served_model_degrades_it_at_once(
    deploy: Deploy, client: Client, namespace: str, pods: Pods
) -> None:
    key = await deploy("served")
    await until(client, key, running_at(1))
    await gpu_quota(client, namespace, 0)
    for pod in await pods(key):
        await client.delete(POD, key_of(pod))
    found = await until(client, key, has_cause("Unschedulable.Quota"), what="the quota")
    assert (dig(found, "status", "phase"), dig(found, "status", "reason")) == ("Degraded", "QuotaExceeded")
