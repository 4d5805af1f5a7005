"""Core, KAITO provider and simulated KAITO on a cluster: real scheduler, quota and workload controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource
from airunway_testing.faults import BY_HAND
from airunway_testing.operator import install_definitions, running_core, running_provider, running_simulator
from airunway_testing.simulators import load_simulator

IMAGE = "registry.example/team/vllm:1.0"

Deploy = Callable[..., Awaitable[ObjectKey]]


@pytest.fixture
async def cluster_operator(kubeconfig: Path, client: Client, kaito: ProviderHost) -> AsyncIterator[None]:
    await install_definitions(client, load_simulator("kaito").custom_resource_definitions())
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="cluster"),
    ):
        yield


@pytest.fixture
async def deploy(cluster_operator: None, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates a deployment of one pod; `by_hand`: the test plays that pod's kubelet. Deleted after the test.

    Further keyword arguments are fields of the spec; an image of None leaves the field out.
    """
    made: list[ObjectKey] = []

    async def create(name: str, *, gpus: int = 1, by_hand: bool = True, **spec: Any) -> ObjectKey:
        template = {"podTemplate": {"metadata": {"annotations": BY_HAND}}} if by_hand else {}
        base: Resource = {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "engine": {"type": "vllm"},
            "provider": {"name": "kaito"},
            "image": IMAGE,
            "resources": {"gpu": {"count": gpus}},
            **template,
            **spec,
        }
        body: Resource = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {field: value for field, value in base.items() if value is not None},
        }
        await client.create(MODEL_DEPLOYMENT, body)
        made.append(ObjectKey(namespace, name))
        return made[-1]

    yield create
    for key in made:
        await client.delete(MODEL_DEPLOYMENT, key)
    async with asyncio.timeout(60):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await asyncio.sleep(0.1)
