"""A live deployment goes from one provider to another and back: never two workloads, and events tell the story."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, EVENT, POD, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, dig
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

WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")


@pytest.fixture
async def both(kubeconfig: Path, client: Client, kaito: ProviderHost) -> AsyncIterator[None]:
    """The core, both providers, and a simulated KAITO whose pods really run."""
    await install_definitions(client, load_simulator("kaito").custom_resource_definitions())
    await remove_leftovers(client)
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito),
        running_provider(kubeconfig, load("vllm")),
        running_simulator(kubeconfig, kaito, level="cluster"),
    ):
        yield


def served_by(provider: str, generation: int) -> Callable[[Resource], bool]:
    def holds(deployment: Resource) -> bool:
        status = deployment.get("status") or {}
        return (
            dig(status, "provider", "name") == provider
            and status.get("phase") == "Running"
            and status.get("observedGeneration") == generation
        )

    return holds


async def watch_workloads(client: Client, namespace: str, seen: list[set[str]]) -> None:
    """The sets of workloads that were there at one time, each kept; one look is a moment, so pods count as well."""
    while True:
        found = set()
        for kind, name in ((WORKSPACE, "kaito"), (DEPLOYMENT, "vllm")):
            if await client.list_all(kind, namespace=namespace):
                found.add(name)
        owners = {
            str(dig(pod, "metadata", "ownerReferences")[0]["kind"])
            for pod in await client.list_all(POD, namespace=namespace)
        }
        seen.append(found | owners)
        await asyncio.sleep(0.02)


async def test_kaito_to_vllm_and_back_never_runs_two_workloads(both: None, client: Client, namespace: str) -> None:
    key, seen = ObjectKey(namespace, "gemma"), list[set[str]]()
    spec = {
        "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
        "engine": {"type": "llamacpp"},
        "provider": {"name": "kaito"},
        "resources": {"memory": "16Gi", "cpu": "8"},
        "image": "registry.example/llama-cpp-runner:1",
    }
    metadata = {"name": key.name, "namespace": namespace}
    watching = asyncio.create_task(watch_workloads(client, namespace, seen))
    body = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}
    await client.create(MODEL_DEPLOYMENT, body)
    await until(client, key, served_by("kaito", 1))
    for provider in ("vllm", "kaito"):
        patch = {"spec": {"provider": {"name": provider}}}
        after = await client.merge_patch(MODEL_DEPLOYMENT, key, patch, manager="tests")
        await until(client, key, served_by(provider, after["metadata"]["generation"]), what=f"Running with {provider}")
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching

    assert {"kaito"} | {"StatefulSet"} in seen, "each workload was seen"
    assert {"vllm"} | {"ReplicaSet"} in seen
    assert [both_there for both_there in seen if {"kaito", "vllm"} <= both_there] == []
    assert [pods for pods in seen if {"StatefulSet", "ReplicaSet"} <= pods] == []
    events = await client.list_all(EVENT, namespace=namespace)
    ours = [event for event in events if dig(event, "regarding", "kind") == "ModelDeployment"]
    story = [str(event["note"]) for event in sorted(ours, key=lambda event: str(event["eventTime"]))]
    assert [said for said in dict.fromkeys(story) if "engine" not in said] == [
        "Selected provider 'kaito': explicit provider selection",
        "Created Workspace 'gemma'",
        "Selected provider 'vllm': explicit provider selection",
        "Created Deployment 'gemma' with Service 'gemma'",
    ]
    assert story.count("Created Workspace 'gemma'") == 2, "made anew on the way back"
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)
