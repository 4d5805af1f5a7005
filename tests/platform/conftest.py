"""Core, airunway-kaito and the simulated KAITO on a real API server, under the configs of a platform team."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from airunway.api import names
from airunway.kinds import CLUSTER_RUNTIME_CONFIG, RUNTIME_CONFIG
from airunway.kube import Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, key_of
from airunway_testing.operator import Deploy, deployments, install_definitions, playing

WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")
SPEC: Resource = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "image": "registry.example/team/vllm:1.0",
    "resources": {"gpu": {"count": 1}},
    "provider": {"name": "kaito"},
}


class Configs:
    """Writes and deletes runtime configs; the namespace is the test's."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def write(self, name: str = "default", **spec: Any) -> None:
        """Apply a RuntimeConfig with exactly this spec."""
        metadata = {"name": name, "namespace": self._namespace}
        await self._client.apply(
            RUNTIME_CONFIG,
            {"apiVersion": names.API_VERSION, "kind": RUNTIME_CONFIG.kind, "metadata": metadata, "spec": spec},
            manager="platform",
            force=True,
        )

    async def write_cluster(self, name: str = "default", **spec: Any) -> None:
        """Apply a ClusterRuntimeConfig with exactly this spec."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": CLUSTER_RUNTIME_CONFIG.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self._client.apply(CLUSTER_RUNTIME_CONFIG, body, manager="platform", force=True)

    async def delete(self, name: str = "default") -> None:
        """Delete the RuntimeConfig."""
        await self._client.delete(RUNTIME_CONFIG, ObjectKey(self._namespace, name))

    async def clear(self) -> None:
        """Delete all cluster configs: other tests must not follow them."""
        for config in await self._client.list_all(CLUSTER_RUNTIME_CONFIG):
            try:
                await self._client.delete(CLUSTER_RUNTIME_CONFIG, key_of(config))
            except NotFound:
                continue


@pytest.fixture
async def operator(kubeconfig: Path, client: Client, kaito: ProviderHost) -> AsyncIterator[None]:
    """Core, provider and simulated upstream for the duration of the test."""
    async with playing(kubeconfig, client, kaito, level="api"):
        yield


@pytest.fixture
async def configs(client: Client, namespace: str) -> AsyncIterator[Configs]:
    await install_definitions(client)
    found = Configs(client, namespace)
    await found.clear()
    yield found
    await found.clear()


@pytest.fixture
async def deploy(operator: None, configs: Configs, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates a deployment of one pod, as a pod template; keyword arguments are fields of the spec."""
    async with deployments(client, namespace, SPEC) as create:
        yield create
