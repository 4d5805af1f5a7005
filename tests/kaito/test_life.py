"""A model on KAITO goes from one replica to several and to none: one Workspace, then an InferenceSet, never both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kaito.conftest import SPEC, Pods
from tests.support.deployed_operator import edit

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, POD, SERVICE, Client, Kind
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, controller_owner, dig, labels_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import has_replicas, running_at
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import Deploy, deployments, gone, playing, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")
INFERENCE_SET = Kind("kaito.sh", "v1beta1", "InferenceSet", "inferencesets")
CREATED_BY = "inferenceset.kaito.sh/created-by"


@asynccontextmanager
async def never_two_workloads(client: Client, namespace: str) -> AsyncIterator[None]:
    """All the while: where there is an InferenceSet, there is no Workspace of ours, and none of its pods."""
    seen: list[str] = []

    async def watch() -> None:
        while True:
            sets = await client.list_all(INFERENCE_SET, namespace=namespace)
            spaces = await client.list_all(WORKSPACE, namespace=namespace)
            pods = await client.list_all(POD, namespace=namespace)
            lone = [w["metadata"]["name"] for w in spaces if (controller_owner(w) or {}).get("kind") != "InferenceSet"]
            theirs = [pod["metadata"]["name"] for pod in pods if CREATED_BY not in labels_of(pod)]
            if sets and (lone or theirs):
                seen.append(f"an InferenceSet beside {lone + theirs}")
            await asyncio.sleep(0.02)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert seen == []


async def test_a_new_deployment_is_scaled_from_one_to_two_without_an_outage(
    kubeconfig: Path, client: Client, namespace: str, kubectl: Kubectl
) -> None:
    """With the provider's own settings: it starts as an InferenceSet, and an autoscaler's first step stops nothing."""
    async with (
        playing(kubeconfig, client, load("kaito"), level="cluster"),
        deployments(client, namespace, SPEC) as deploy,
    ):
        key = await deploy()
        await until(client, key, running_at(1))
        (first,) = await client.list_all(WORKSPACE, namespace=namespace)
        kubectl("scale", "md", key.name, "-n", namespace, "--replicas=2")
        await until(client, key, has_replicas(2, 2), what="two replicas")
        after = {obj["metadata"]["uid"] for obj in await client.list_all(WORKSPACE, namespace=namespace)}
        assert first["metadata"]["uid"] in after, "the first replica stayed"
        assert len(after) == 2


async def test_one_replica_becomes_three_none_and_one_again(
    deploy: Deploy, client: Client, pods: Pods, kubectl: Kubectl
) -> None:
    key = await deploy()
    first = await until(client, key, running_at(1))
    assert dig(first, "status", "provider", "resourceKind") == "Workspace"
    address = dig(first, "status", "endpoint", "url")
    uid = ""
    async with never_two_workloads(client, key.namespace):
        for count in (3, 0, 1):
            kubectl("scale", "md", key.name, "-n", key.namespace, f"--replicas={count}")
            generation = (await client.get(MODEL_DEPLOYMENT, key))["metadata"]["generation"]
            await until(client, key, has_replicas(count, count), what=f"{count} replicas")
            scaled = await until(client, key, running_at(generation), what=f"Running with {count}")
            assert dig(scaled, "status", "provider", "resourceKind") == "InferenceSet"
            assert dig(scaled, "status", "endpoint", "url") == address, "the address stays"
            async with asyncio.timeout(PATIENCE):
                while len(await pods(key)) != count:  # a Workspace's pods outlive it for a moment
                    await asyncio.sleep(0.05)
            live = await client.get(INFERENCE_SET, key)
            assert (uid := uid or live["metadata"]["uid"]) == live["metadata"]["uid"], "scaled in place"
    service = await client.get(SERVICE, key)
    (pod,) = await pods(key)
    assert service["spec"]["selector"].items() <= labels_of(pod).items()
    scale = await client.get(MODEL_DEPLOYMENT, key, subresource="scale")
    selected = await client.list_all(POD, namespace=key.namespace, label_selector=scale["status"]["selector"])
    assert [found["metadata"]["name"] for found in selected if found["metadata"].get("deletionTimestamp") is None] == [
        pod["metadata"]["name"]
    ]
    said = [event["note"] for event in await client.list_all(EVENT, namespace=key.namespace) if "note" in event]
    (note,) = [
        note for note in said if "Workspace 'llama' is deleted and made again: Workspace to InferenceSet" in note
    ]
    assert "To avoid the outage, create a second deployment" in note
    assert "with another number no model is served until" in str(dig(first, "status", "warnings"))


async def test_kaito_writes_nothing_back_into_what_the_provider_wrote(deploy: Deploy, client: Client) -> None:
    """KAITO 0.12 added ``resources: {}`` to a container without any, and both wrote every 30 seconds for ever."""
    cpu = {"engine": {"type": "llamacpp", "args": {"ggufUrl": "https://example.com/m.gguf"}}, "resources": None}
    unusual = {
        "resources": {"gpu": {"count": 1}, "cpu": "0.5", "memory": "1024Mi"},
        "env": [{"name": "A", "value": ""}],
    }
    keys = [await deploy("plain", **cpu), await deploy("unusual", **unusual)]
    for key in keys:
        await until(client, key, running_at(1))
    for kind in (WORKSPACE, INFERENCE_SET):
        ours = await client.list_all(kind, namespace=keys[0].namespace)
        assert {obj["metadata"]["generation"] for obj in ours} <= {1}


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ({}, {"image": "registry.example/team/vllm:2.0"}),
        ({"image": None, "engine": {"contextLength": 8192}}, {"engine": {"contextLength": 4096}}),
    ],
    ids=["template", "preset"],
)
async def test_a_change_that_kaito_would_give_to_new_replicas_only_makes_the_set_anew(
    deploy: Deploy, client: Client, spec: dict[str, Any], change: Resource
) -> None:
    key = await deploy(scaling={"replicas": 2}, **spec)
    await until(client, key, running_at(1))
    before = await client.get(INFERENCE_SET, key)
    await edit(client, key, change)
    running = await until(client, key, running_at(2))
    after = await client.get(INFERENCE_SET, key)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["template"] != before["spec"]["template"]
    assert has_replicas(2, 2)(running)
    workspaces = await client.list_all(WORKSPACE, namespace=key.namespace)
    assert {w["metadata"]["ownerReferences"][0]["uid"] for w in workspaces} == {after["metadata"]["uid"]}
    assert all(w["inference"] == after["spec"]["template"]["inference"] for w in workspaces), "none runs the old one"


async def test_a_workspace_deleted_by_hand_comes_back(deploy: Deploy, client: Client) -> None:
    key = await deploy(scaling={"replicas": 2})
    await until(client, key, running_at(1))
    lost = (await client.list_all(WORKSPACE, namespace=key.namespace))[0]
    await client.delete(WORKSPACE, ObjectKey(key.namespace, lost["metadata"]["name"]))
    await until(client, key, has_replicas(2, 1), what="one of two")
    await until(client, key, has_replicas(2, 2), what="both")
    assert dig(await until(client, key, running_at(1)), "status", "phase") == "Running"


async def test_suspended_and_back_with_one_replica_it_is_a_workspace(
    deploy: Deploy, client: Client, pods: Pods
) -> None:
    key = await deploy(scaling={"replicas": 2})
    await until(client, key, running_at(1))
    await edit(client, key, {"suspend": True})
    await gone(client, INFERENCE_SET, key)
    await until(client, key, lambda d: dig(d, "status", "reason") == "Suspended")
    assert await pods(key) == []
    generation = await edit(client, key, {"suspend": False, "scaling": {"replicas": 1}})
    back = await until(client, key, running_at(generation))
    assert dig(back, "status", "provider", "resourceKind") == "Workspace"
    service = await client.get(SERVICE, key)
    assert (controller_owner(service) or {}).get("kind") == "Workspace", "KAITO's own has its name again"
