"""Several nodes for one replica, end to end: the simulated LeaderWorkerSet controller runs real StatefulSets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import BY_HAND

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, uid_of
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    gone,
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")


@pytest.fixture
async def group_of_two(
    kubeconfig: Path, client: Client, vllm: ProviderHost, namespace: str
) -> AsyncIterator[Callable[..., Any]]:
    """Creates a deployment of 16 GPUs a replica: two nodes of eight. Deleted after the test."""
    await install_definitions(client, load_simulator("vllm").custom_resource_definitions())
    await remove_leftovers(client)
    key = ObjectKey(namespace, "large")

    async def create(**spec: Any) -> ObjectKey:
        body: Resource = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": key.name, "namespace": namespace},
            "spec": {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 16}, "memory": "64Gi"}, **spec},
        }
        await client.create(MODEL_DEPLOYMENT, body)
        return key

    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, vllm),
        running_simulator(kubeconfig, vllm, level="cluster"),
    ):
        yield create
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)


async def break_pod(client: Client, namespace: str, name: str, outcome: str | None) -> None:
    await client.merge_patch(POD, ObjectKey(namespace, name), {"metadata": {"annotations": {OUTCOME: outcome}}})


async def start_pods(client: Client, namespace: str, *, besides: Collection[str] = ()) -> set[str]:
    """Let both pods of the group run, once there are some `besides` those; returns their uids."""
    started: dict[str, str] = {}
    async with asyncio.timeout(PATIENCE):
        while len(started) < 2:
            for pod in await client.list_all(POD, namespace=namespace):
                if uid_of(pod) not in {*besides, *started.values()}:
                    await break_pod(client, namespace, key_of(pod).name, None)
                    started[key_of(pod).name] = uid_of(pod)
            await asyncio.sleep(0.05)
    return {*started.values()}


def says(text: str) -> Callable[[Resource], bool]:
    return lambda deployment: text in str(dig(deployment, "status", "message"))


async def test_a_group_runs_its_worker_s_trouble_is_the_cause_and_it_heals(
    group_of_two: Any, client: Client, namespace: str
) -> None:
    key = await group_of_two()
    running = await until(client, key, running_at(1))
    assert running["status"]["replicas"]["ready"] == 1
    live = await client.get(LEADER_WORKER_SET, ObjectKey(namespace, "large-lws"))
    assert live["status"]["replicas"] == live["spec"]["replicas"] == live["status"]["readyReplicas"]

    await break_pod(client, namespace, "large-lws-0-1", "ImagePullBackOff")
    broken = await until(client, key, says("large-lws-0-1"), what="the worker pod by name")
    assert broken["status"]["reason"] == "ImagePullBackOff"
    assert broken["status"]["phase"] != "Running"
    await break_pod(client, namespace, "large-lws-0-1", None)
    await until(client, key, running_at(1))


async def test_a_group_that_is_made_anew_is_named_with_the_pod_that_was_to_blame(
    group_of_two: Any, client: Client, namespace: str
) -> None:
    """The new pods are started by hand: were they ready at once, there might be nothing to be told any more."""
    key = await group_of_two(podTemplate={"metadata": {"annotations": BY_HAND}})
    before = await start_pods(client, namespace)
    await until(client, key, running_at(1))
    await break_pod(client, namespace, "large-lws-0-1", "CrashLoopBackOff")
    made_anew = "LeaderWorkerSet made a group anew: Worker pod large-lws-0-1 failed"
    seen = await until(client, key, lambda d: made_anew in str(condition_of(d, "ProviderResourceReady")))
    assert dig(seen, "status", "phase") != "Running"
    await start_pods(client, namespace, besides=before)
    await until(client, key, running_at(1))


async def test_it_is_ready_only_with_all_its_groups(group_of_two: Any, client: Client, namespace: str) -> None:
    """There are two nodes of eight GPUs: a second group finds no place, and the first serves on."""
    key = await group_of_two()
    await until(client, key, running_at(1))
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"scaling": {"replicas": 2}}}, manager="tests")
    short = await until(client, key, says("Insufficient nvidia.com/gpu"))
    assert short["status"]["replicas"]["ready"] == 1
    assert short["status"]["phase"] != "Running"
    after = await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"scaling": {"replicas": 1}}}, manager="tests")
    await until(client, key, running_at(after["metadata"]["generation"]))
