"""Why one replica of several does not run: its pod says so, and KAITO's counter alone would not."""

from __future__ import annotations

import pytest
from tests.kaito.conftest import Pods
from tests.support.cluster_fixtures import gpu_quota
from tests.support.faults import has_cause, is_clear

from airunway.kube import POD, Client
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.expectations import has_replicas, running_at
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def fare(client: Client, pod: Resource, outcome: str | None) -> None:
    key = ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
    await client.merge_patch(POD, key, {"metadata": {"annotations": {OUTCOME: outcome}}})


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("ImagePullBackOff", ""),
        ("CrashLoopBackOff", "Engine.CrashLoop"),
        ("OOMKilled", "Engine.OutOfMemory"),
    ],
)
async def test_one_of_three_broken_degrades_and_heals(
    deploy: Deploy, client: Client, pods: Pods, outcome: str, code: str
) -> None:
    key = await deploy(scaling={"replicas": 3})
    await until(client, key, running_at(1))
    pod = (await pods(key))[0]
    await fare(client, pod, outcome)

    def degraded(deployment: Resource) -> bool:
        caused = not code or has_cause(code)(deployment)
        return dig(deployment, "status", "phase") == "Degraded" and has_replicas(3, 2)(deployment) and caused

    found = await until(client, key, degraded, what="Degraded with two of three")
    assert pod["metadata"]["name"] in str(found["status"].get("rootCause") or found["status"]["message"])
    assert dig(found, "status", "endpoint", "service") == key.name, "what is left still serves"
    await fare(client, pod, None)
    await until(client, key, is_clear, what="recovery")
    await until(client, key, has_replicas(3, 3), what="all three")


async def test_a_replica_without_a_gpu_left_says_so_while_the_others_serve(deploy: Deploy, client: Client) -> None:
    key = await deploy(resources={"gpu": {"count": 8}}, scaling={"replicas": 9})
    found = await until(client, key, has_cause("Unschedulable.InsufficientGPU"), what="a root cause")
    assert "Insufficient nvidia.com/gpu" in found["status"]["message"]
    assert found["status"]["phase"] == "Deploying"
    assert found["status"]["replicas"]["desired"] == 9


async def test_a_quota_that_leaves_room_for_one(deploy: Deploy, client: Client, namespace: str) -> None:
    await gpu_quota(client, namespace, 1)
    key = await deploy(scaling={"replicas": 2})
    found = await until(client, key, lambda d: dig(d, "status", "reason") == "QuotaExceeded", what="the quota")
    assert "exceeded quota: gpus" in found["status"]["message"]


async def test_a_missing_token_is_told_in_kaitos_words(deploy: Deploy, client: Client) -> None:
    """KAITO makes no pod before it has read the Secret: only the Workspaces know (fact 31 of the recordings)."""
    key = await deploy(image=None, scaling={"replicas": 2}, secrets={"huggingFaceToken": "no-such"})
    found = await until(client, key, has_cause("Secret.NotFound"), what="a root cause")
    assert 'Secret "no-such" not found' in found["status"]["message"]
