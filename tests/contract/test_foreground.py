"""On a cluster: a workload that is gone has let go of its GPUs, whoever holds its pods."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.deployed_operator import deployed_operator

from airunway.kube import DEPLOYMENT, POD, Client
from airunway.plugins.registry import load
from airunway.resource import is_deleting, key_of, uid_of
from airunway_testing.controlplane import Cluster
from airunway_testing.expectations import running_at
from airunway_testing.operator import gone, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def test_g1_g17_a_deployment_is_gone_when_its_pods_are_and_only_then_another_is_made(
    cluster: Cluster, client: Client, namespace: str, audit_log: Path
) -> None:
    async with deployed_operator(cluster, client, namespace=namespace, audit_log=audit_log) as operator:
        user = await operator.provider(load("vllm"), simulated=False)
        key = await operator.deploy(provider={"name": "vllm"}, image="registry.example/team/vllm:1.0", env=[])
        await until(client, key, running_at(1))
        before = await client.get(DEPLOYMENT, key)
        [pod] = await client.list_all(POD, namespace=namespace)
        hold = {"metadata": {"finalizers": ["testing.airunway.ai/hold"]}}
        await client.merge_patch(POD, key_of(pod), hold, manager="tests")
        await operator.edit(key, model={"id": "org/other"})
        await operator.exists(POD, key_of(pod), is_deleting, what="the deletion of its pod")
        await asyncio.sleep(1)  # as long as a Deployment deleted in the background is gone long since
        assert uid_of(await client.get(DEPLOYMENT, key)) == uid_of(before), "its pod still holds the GPU"
        assert len(await client.list_all(POD, namespace=namespace)) == 1, "never two workloads"
        await client.merge_patch(POD, key_of(pod), {"metadata": {"finalizers": None}}, manager="tests")
        await gone(client, DEPLOYMENT, key)
        await until(client, key, running_at(2))
        history = operator.writes(user)
        assert history.count("delete deployments llama") == 1
        assert history.count("patch deployments llama") == 2
