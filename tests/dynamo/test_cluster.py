"""A graph's life with real pods, on Deployments and on Grove: scheduler, workload controllers and nodes are there."""

from __future__ import annotations

import asyncio

import pytest
from tests.dynamo.conftest import BETA, CLIQUE, pods_of
from tests.support.deployed_operator import edit

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, Client
from airunway.resource import Resource, dig, uid_of
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import Deploy, gone, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def summary(found: Resource) -> str:
    return str(dig(found, "status", "replicas", "summary"))


async def test_a_life(playing: str, make: Deploy, client: Client) -> None:
    """Made, edited, scaled to three, one, none and one again, split and put together, suspended, changed by hand."""
    key = await make(resources={"gpu": {"count": 1}, "memory": "1Gi"})
    await until(client, key, running_at(1))
    graph = await client.get(BETA, key)
    assert len(await pods_of(client, key, "worker")) == 1
    for replicas in (3, 1, 0, 1):
        found = await until(client, key, running_at(await edit(client, key, {"scaling": {"replicas": replicas}})))
        assert summary(found) == f"{replicas}/{replicas}"
        assert len(await pods_of(client, key, "worker")) == replicas
    generation = await edit(client, key, {"engine": {"contextLength": 4096}})
    await until(client, key, running_at(generation))
    async with asyncio.timeout(PATIENCE):
        while len(await pods_of(client, key, "worker")) > 1:
            await asyncio.sleep(0.05)
    (worker,) = await pods_of(client, key, "worker")
    assert "--max-model-len=4096" in worker["spec"]["containers"][0]["args"]
    assert uid_of(await client.get(BETA, key)) == uid_of(graph), "all that was in place"

    await client.merge_patch(BETA, key, {"spec": {"backendFramework": "sglang"}}, manager="somebody")
    async with asyncio.timeout(PATIENCE):
        while (await client.get(BETA, key))["spec"]["backendFramework"] != "vllm":
            await asyncio.sleep(0.05)

    roles = {"replicas": 1, "gpu": {"count": 1}, "memory": "1Gi"}
    split = {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": roles, "decode": {**roles, "replicas": 2}}}
    found = await until(client, key, running_at(await edit(client, key, {"resources": None, **split})))
    assert summary(found) == "3/3"
    assert uid_of(await client.get(BETA, key)) != uid_of(graph), "what has other components is another graph"
    assert [len(await pods_of(client, key, role)) for role in ("worker", "prefill", "decode")] == [0, 1, 2]

    await edit(client, key, {"suspend": True})
    await until(client, key, lambda d: dig(d, "status", "reason") == "Suspended", what="suspension")
    await gone(client, BETA, key)
    await until(client, key, running_at(await edit(client, key, {"suspend": False})))
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)
    await gone(client, BETA, key)


async def test_pods_come_by_the_way_that_is_there(playing: str, make: Deploy, client: Client) -> None:
    key = await make()
    await until(client, key, running_at(1))
    deployments = await client.list_all(DEPLOYMENT, namespace=key.namespace)
    if playing == "grove":
        cliques = {clique["metadata"]["name"] for clique in await client.list_all(CLIQUE, namespace=key.namespace)}
        assert cliques == {"llama-0-frontend", "llama-0-worker"}
        assert deployments == []
    else:
        assert len(deployments) == 2


async def test_an_adapters_workers_and_a_planner_leave_it_running(playing: str, make: Deploy, client: Client) -> None:
    """Others write into the graph what is theirs: it is left alone, and what it waits for is not our deployment's."""
    key = await make(overrides={"scalingAdapter": True})
    await until(client, key, running_at(1))
    main = {"name": "main", "image": "registry.example/planner:1.3.1", "command": ["sleep"], "args": ["infinity"]}
    broken = {"metadata": {"annotations": {OUTCOME: "NotReady"}}, "spec": {"containers": [main]}}
    theirs = [
        {"name": "worker", "replicas": 2},
        {"name": "Planner", "type": "planner", "replicas": 1, "podTemplate": broken},
    ]
    graph = {
        "apiVersion": BETA.api_version,
        "kind": BETA.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"components": theirs},
    }
    await client.apply(BETA, graph, manager="planner")
    await until(client, key, lambda found: summary(found) == "2/2", what="the adapter's second worker")
    async with asyncio.timeout(PATIENCE):
        while not any(dig(pod, "spec", "nodeName") for pod in await pods_of(client, key, "planner")):
            await asyncio.sleep(0.05)
    await until(client, key, lambda found: dig(found, "status", "phase") == "Running", what="Running all the same")
    live = await client.get(BETA, key)
    assert {component["name"]: component.get("replicas") for component in live["spec"]["components"]} == {
        "Frontend": 1,
        "worker": 2,
        "Planner": 1,
    }
    assert dig(live, "status", "state") == "pending", "the planner is not ready, and the operator says so"
