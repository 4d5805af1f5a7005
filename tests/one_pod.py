"""Fixtures: core, KAITO provider and simulated KAITO on a cluster, with deployments of one pod."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import BY_HAND

from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.operator import Deploy, deployments, playing

IMAGE = "registry.example/team/vllm:1.0"


@pytest.fixture
async def cluster_operator(kubeconfig: Path, client: Client, kaito: ProviderHost) -> AsyncIterator[None]:
    async with playing(kubeconfig, client, kaito, level="cluster"):
        yield


@pytest.fixture
async def deploy(cluster_operator: None, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates a deployment of one pod; `by_hand`: the test plays that pod's kubelet. Deleted after the test.

    Further keyword arguments are fields of the spec; an image of None leaves the field out.
    """
    base: Resource = {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "engine": {"type": "vllm"},
        "provider": {"name": "kaito"},
        "image": IMAGE,
    }
    async with deployments(client, namespace, base) as create:

        async def create_(name: str, *, gpus: int = 1, by_hand: bool = True, **spec: Any) -> ObjectKey:
            resources = {"gpu": {"count": gpus}}
            return await create(name, outcome=BY_HAND[OUTCOME] if by_hand else "", **{"resources": resources, **spec})

        yield create_
