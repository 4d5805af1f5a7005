"""Core, airunway-kaito and the simulated KAITO on a cluster: StatefulSets, scheduler and garbage collector are real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, is_deleting, labels_of
from airunway_testing.operator import Deploy, deployments, playing

SPEC: Resource = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "image": "registry.example/team/vllm:1.0",
    "resources": {"gpu": {"count": 1}},
    "provider": {"name": "kaito"},
}

Pods: TypeAlias = Callable[[ObjectKey], Awaitable[list[Resource]]]


@pytest.fixture
async def kaito_operator(kubeconfig: Path, client: Client, kaito: ProviderHost) -> AsyncIterator[None]:
    async with playing(kubeconfig, client, kaito, level="cluster"):
        yield


@pytest.fixture
def manifest_of(namespace: str) -> Callable[..., Resource]:
    """A model on one GPU, as a pod template; keyword arguments are fields of the spec, None leaves one out."""

    def make(name: str = "llama", **spec: Any) -> Resource:
        fields = {**SPEC, **spec}
        return {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {key: value for key, value in fields.items() if value is not None},
        }

    return make


@pytest.fixture
async def deploy(kaito_operator: None, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates such a deployment; all are deleted after the test, and leave nothing."""
    async with deployments(client, namespace, SPEC) as create:
        yield create


@pytest.fixture
def pods(client: Client) -> Pods:
    """KAITO's pods of a deployment that are not on their way out."""

    async def pods_(key: ObjectKey) -> list[Resource]:
        found = await client.list_all(POD, namespace=key.namespace)
        labels = ("kaito.sh/workspace", "inferenceset.kaito.sh/created-by")
        return [pod for pod in found if not is_deleting(pod) and key.name in map(labels_of(pod).get, labels)]

    return pods_
