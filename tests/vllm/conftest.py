"""Core and airunway-vllm on a cluster: Deployment controller, scheduler, quota and autoscaler are the real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource
from airunway.runtime.application import ProviderSettings
from airunway_testing.operator import (
    Deploy,
    deployments,
    install_definitions,
    pods_of,
    remove_leftovers,
    running_core,
    running_provider,
)

IMAGE = "registry.example/team/vllm:1.0"
BASE: Resource = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "image": IMAGE,
    "resources": {"gpu": {"count": 1}},
}

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
    async with deployments(client, namespace, BASE) as create:
        yield create


@pytest.fixture
def pods(client: Client) -> Pods:
    """The pods of a deployment that are not on their way out."""

    return partial(pods_of, client)
