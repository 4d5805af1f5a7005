"""Models on KubeRay where pods are real objects: scheduler and quota are Kubernetes' own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kuberay.conftest import KUBERAY
from tests.support.cluster_fixtures import RESOURCE_QUOTA, gpu_quota
from tests.support.deployed_operator import Operator, deployed_operator
from tests.support.faults import has_cause, is_clear

from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import condition_of
from airunway_testing.controlplane import Cluster
from airunway_testing.expectations import has_replicas, running_at
from airunway_testing.operator import until
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
async def operator(cluster: Cluster, client: Client, namespace: str, audit_log: Path) -> AsyncIterator[Operator]:
    definitions = load_simulator("kuberay").custom_resource_definitions()
    async with deployed_operator(
        cluster, client, namespace=namespace, audit_log=audit_log, definitions=definitions, level="cluster"
    ) as found:
        yield found


async def test_a_quota_that_forbids_a_worker_is_the_root_cause(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    """KubeRay tells of it in its RayCluster's status and in Events; the head runs and must not hide it."""
    await operator.provider(kuberay)
    key = operator.key()
    quota = await gpu_quota(client, key.namespace, 1)
    await operator.deploy(**KUBERAY, resources={"gpu": {"count": 2}})
    found = await until(client, key, has_cause("Unschedulable.Quota"), what="a root cause")
    status = found["status"]
    assert (status["phase"], status["reason"]) == ("Deploying", "QuotaExceeded")
    assert "exceeded quota: gpus" in status["rootCause"]["message"]
    assert status["message"] == status["rootCause"]["message"]
    assert (condition_of(found, "Ready") or {})["status"] == "False"
    enough = {"spec": {"hard": {"requests.nvidia.com/gpu": "4"}}}
    await client.merge_patch(RESOURCE_QUOTA, quota, enough, manager="tests")
    await until(client, key, is_clear, what="recovery")


async def test_a_quota_that_leaves_room_for_one_of_two_workers_is_told_while_that_one_serves(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    quota = await gpu_quota(client, key.namespace, 1)
    generation = await operator.edit(key, scaling={"replicas": 2})
    found = await until(client, key, has_cause("Unschedulable.Quota"), what="a root cause")
    assert found["status"]["phase"] == "Deploying", "lack of capacity is waited for"
    assert found["status"]["endpoint"]["service"] == "llama-serve-svc"
    assert has_replicas(2, 1)(found)
    await client.delete(RESOURCE_QUOTA, quota)
    await until(client, key, running_at(generation))
