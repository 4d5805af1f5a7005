"""Core and airunway-vllm on a cluster: Deployment controller, scheduler, quota and autoscaler are the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, is_deleting
from airunway.runtime.application import ProviderSettings
from airunway_testing.operator import install_definitions, remove_leftovers, running_core, running_provider

IMAGE = "registry.example/team/vllm:1.0"

Deploy: TypeAlias = Callable[..., Awaitable[ObjectKey]]
Pods: TypeAlias = Callable[[ObjectKey], Awaitable[list[Resource]]]


@pytest.fixture(scope="session")
def vllm() -> ProviderHost:
    return load("vllm")


@pytest.fixture
async def vllm_operator(kubeconfig: Path, client: Client, vllm: ProviderHost) -> AsyncIterator[None]:
    """Core and provider for the duration of the test; a node may have 16 GPUs, as far as the provider knows."""
    await install_definitions(client)
    await remove_leftovers(client)
    settings = ProviderSettings(values={"gpusPerNode": 16})
    async with running_core(kubeconfig), running_provider(kubeconfig, vllm, settings=settings):
        yield


@pytest.fixture
async def deploy(vllm_operator: None, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates a deployment of one pod; keyword arguments are fields of the spec. Deleted after the test."""
    made: list[ObjectKey] = []

    async def create(name: str = "llama", *, outcome: str = "", **spec: Any) -> ObjectKey:
        broken = {"podTemplate": {"metadata": {"annotations": {"testing.airunway.ai/outcome": outcome}}}}
        body: Resource = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
                "image": IMAGE,
                "resources": {"gpu": {"count": 1}},
                **(broken if outcome else {}),
                **spec,
            },
        }
        await client.create(MODEL_DEPLOYMENT, body)
        made.append(ObjectKey(namespace, name))
        return made[-1]

    yield create
    for found in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
        await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, found["metadata"]["name"]))
    async with asyncio.timeout(60):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await asyncio.sleep(0.1)


@pytest.fixture
def pods(client: Client) -> Pods:
    """The pods of a deployment that are not on their way out."""

    async def pods_(key: ObjectKey) -> list[Resource]:
        found = await client.list_all(
            POD, namespace=key.namespace, label_selector=f"airunway.ai/model-deployment={key.name}"
        )
        return [pod for pod in found if not is_deleting(pod)]

    return pods_
