"""The worked faults on a cluster: real scheduler, quota and StatefulSet controller; what only a kubelet can write, the
test writes in its place.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest
from tests.rootcause.worked import FAULTS

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import STATEFUL_SET, Client
from airunway.resource import Resource, condition_of, is_true
from airunway.status.reasons import CODES
from airunway_testing.cluster_fixtures import RESOURCE_QUOTA, gpu_quota, with_nodes
from airunway_testing.controlplane.nodes import gpu_node
from airunway_testing.eventually import PATIENCE
from airunway_testing.faults import has_cause, healed, is_clear, pod_of, write_pod
from airunway_testing.operator import Deploy, gone, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def tell(text: str) -> None:
    """Latencies are for the reader (``pytest -s``): machines differ, so that nothing is asserted about them."""
    print(f"\n{text}")  # noqa: T201


@pytest.mark.parametrize("name", FAULTS)
async def test_what_a_kubelet_reports(name: str, deploy: Deploy, client: Client) -> None:
    fault = FAULTS[name]
    spec: Resource = {"secrets": {"huggingFaceToken": "hf-token"}} if name == "secret-missing" else {}
    key = await deploy(name, **spec)
    pod = await pod_of(client, key)
    begun = await write_pod(client, pod, state=fault.state, last=fault.last)
    deployment = await until(client, key, has_cause(fault.code), what=fault.code)
    tell(f"{name}: {1000 * (perf_counter() - begun):.0f} ms from the pod's status to {fault.code}")

    cause = deployment["status"]["rootCause"]
    assert cause["object"] == f"Pod/{key.namespace}/{name}-0"
    for text in (f"{name}-0", "container model", *fault.says):
        assert text.format(pod=f"{name}-0") in cause["message"]
    assert cause["message"].endswith(CODES[fault.code].remedy_for(cause["object"], fault.remedy))
    assert cause.get("field", "") == ("spec.secrets.huggingFaceToken" if spec else CODES[fault.code].field)
    pods = condition_of(deployment, "PodsReady") or {}
    assert (pods["status"], pods["reason"]) == ("False", fault.reason)
    assert f"{name}-0" in pods["message"]
    assert deployment["status"]["phase"] == fault.phase
    assert deployment["status"]["message"] == cause["message"]
    assert (condition_of(deployment, "Ready") or {})["message"] == cause["message"]
    assert (condition_of(deployment, "Stalled") or {})["status"] == ("True" if fault.phase == "Failed" else "False")
    if fault.parent:

        def parent_is_false(found: Resource) -> bool:
            condition = condition_of(found, fault.parent) or {}
            return (condition.get("status"), condition.get("reason")) == ("False", fault.reason)

        await until(client, key, parent_is_false, what=f"{fault.parent}=False")
    recovered = await healed(client, key)
    assert recovered["status"]["message"] == f"All replicas are ready: Workspace {name}"
    for type_ in ("Ready", "PodsReady", "ProviderResourceReady", "Served"):
        assert is_true(recovered, type_), type_


async def test_too_many_gpus(deploy: Deploy, client: Client) -> None:
    key = await deploy("huge", gpus=16, by_hand=False)
    await pod_of(client, key, scheduled=False)
    begun = perf_counter()
    deployment = await until(client, key, has_cause("Unschedulable.InsufficientGPU"))
    tell(f"too many GPUs: seen {1000 * (perf_counter() - begun):.0f} ms after the pod")
    cause = deployment["status"]["rootCause"]
    assert cause["object"] == f"Pod/{key.namespace}/huge-0"
    assert cause["field"] == "spec.resources.gpu.count"
    assert "Insufficient nvidia.com/gpu" in cause["message"]
    assert deployment["status"]["phase"] == "Deploying"
    assert deployment["status"]["reason"] == "InsufficientCapacity"
    assert is_true(deployment, "Reconciling")
    async with with_nodes(client, gpu_node("large", gpus=16)):
        recovered = await until(client, key, is_clear, what="recovery with a node that has them")
        assert recovered["metadata"]["generation"] == deployment["metadata"]["generation"]
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)


async def test_quota_forbids_the_pod(deploy: Deploy, client: Client, namespace: str) -> None:
    quota = await gpu_quota(client, namespace, 0)
    key = await deploy("poor", by_hand=False)
    async with asyncio.timeout(PATIENCE):
        while not await client.list_all(STATEFUL_SET, namespace=namespace):
            await asyncio.sleep(0.02)
    begun = perf_counter()
    deployment = await until(client, key, has_cause("Unschedulable.Quota"))
    tell(f"quota: seen {1000 * (perf_counter() - begun):.0f} ms after the StatefulSet")
    cause = deployment["status"]["rootCause"]
    assert cause["object"] == f"StatefulSet/{namespace}/poor"
    assert "exceeded quota: gpus" in cause["message"]
    assert "poor-0" in cause["message"]
    assert (deployment["status"]["phase"], deployment["status"]["reason"]) == ("Deploying", "QuotaExceeded")
    assert (condition_of(deployment, "PodsReady") or {})["reason"] == "QuotaExceeded"
    await client.delete(RESOURCE_QUOTA, quota)
    await until(client, key, is_clear, what="recovery without the quota")
