"""Why a model without an operator does not run: phase, reason and root cause come from the pods and the Deployment."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.cluster_fixtures import RESOURCE_QUOTA, gpu_quota
from tests.support.faults import BACK_OFF, ended, has_cause, is_clear, waiting, write_pod
from tests.vllm.conftest import Pods

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = "registry.example/team/vllm:1.0"


async def pod_with_node(pods: Pods, key: ObjectKey) -> Resource:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = [pod for pod in await pods(key) if dig(pod, "spec", "nodeName")]
            if found:
                return found[0]
            await asyncio.sleep(0.02)


async def test_sixteen_gpus_that_no_node_has(deploy: Deploy, client: Client) -> None:
    key = await deploy("large", resources={"gpu": {"count": 16}})
    found = await until(client, key, has_cause("Unschedulable.InsufficientGPU"), what="a root cause")
    status = found["status"]
    assert (status["phase"], status["reason"]) == ("Deploying", "InsufficientCapacity")
    assert "nvidia.com/gpu" in status["message"]
    assert "none will ever do" in status["message"], "the scheduler says that preemption would help on no node"
    generation = (
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"resources": {"gpu": {"count": 8}}}}, manager="tests")
    )["metadata"]["generation"]
    await until(client, key, running_at(generation))


async def test_a_quota_that_leaves_no_room(deploy: Deploy, client: Client, namespace: str) -> None:
    quota = await gpu_quota(client, namespace, 1)
    key = await deploy("greedy", resources={"gpu": {"count": 2}})
    found = await until(client, key, lambda d: dig(d, "status", "reason") == "QuotaExceeded", what="the quota")
    assert "exceeded quota: gpus" in found["status"]["message"]
    await client.merge_patch(RESOURCE_QUOTA, quota, {"spec": {"hard": {"requests.nvidia.com/gpu": "4"}}})
    await until(client, key, is_clear, what="recovery")


async def test_an_image_that_is_not_there(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy("typo", outcome="ByHand")
    text = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": {IMAGE}: not found'
    await write_pod(client, await pod_with_node(pods, key), state=waiting("ErrImagePull", text))
    found = await until(client, key, has_cause("ImagePull.NotFound"), what="a root cause")
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "ImageNotFound")
    assert IMAGE in found["status"]["message"]
    parent = await until(client, key, lambda d: (condition_of(d, "ConfigValid") or {}).get("status") == "False")
    assert parent["status"]["rootCause"]["code"] == "ImagePull.NotFound"


async def test_a_crash_loop_is_told_by_the_engines_last_words_and_heals(
    deploy: Deploy, client: Client, pods: Pods
) -> None:
    key = await deploy("flags", outcome="ByHand")
    words = "api_server.py: error: unrecognized arguments: --no-such-flag"
    pod = await pod_with_node(pods, key)
    await write_pod(client, pod, state=BACK_OFF, last=ended(2, "Error", words))
    found = await until(client, key, lambda d: "rootCause" in d["status"], what="a root cause")
    assert found["status"]["phase"] in ("Failed", "Degraded")
    assert "--no-such-flag" in found["status"]["message"]
    name = ObjectKey(key.namespace, pod["metadata"]["name"])
    await client.merge_patch(POD, name, {"metadata": {"annotations": {OUTCOME: None}}})
    await until(client, key, is_clear, what="recovery")


async def test_one_of_two_broken_degrades(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy("pair", scaling={"replicas": 2})
    await until(client, key, running_at(1))
    pod = (await pods(key))[0]
    name = ObjectKey(key.namespace, pod["metadata"]["name"])
    await client.merge_patch(POD, name, {"metadata": {"annotations": {OUTCOME: "OOMKilled"}}})

    def degraded(deployment: Resource) -> bool:
        return (dig(deployment, "status", "phase"), dig(deployment, "status", "replicas", "ready")) == ("Degraded", 1)

    found = await until(client, key, degraded, what="Degraded with one of two")
    assert dig(found, "status", "endpoint", "service") == key.name, "what is left still serves"
    await client.merge_patch(POD, name, {"metadata": {"annotations": {OUTCOME: None}}})
    await until(client, key, is_clear, what="recovery")
