"""The whole operator against a real API server: core, KAITO provider, simulated KAITO, in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.one_workspace import kaito_of_workspaces

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import (
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
)
from airunway_testing.simulators import load_simulator

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make: TypeAlias = Callable[..., Resource]


@pytest.fixture(scope="session")
def kaito() -> ProviderHost:
    """KAITO whose deployments are Workspaces. With its own settings a new one is an InferenceSet (tests/kaito)."""
    return kaito_of_workspaces()


@pytest.fixture
async def installed(client: Client) -> None:
    """Our CRDs and the simulated upstream's are there, and nothing that earlier tests registered."""
    await install_definitions(client, load_simulator("kaito").custom_resource_definitions())
    await remove_leftovers(client)


@pytest.fixture
async def operator(kubeconfig: Path, installed: None, kaito: ProviderHost) -> AsyncIterator[None]:
    """Core, provider and an upstream that answers at once, for the duration of the test."""
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        yield


@pytest.fixture
async def home(namespace: str, kubectl: Kubectl) -> AsyncIterator[str]:
    """The operator's namespace."""
    name = namespace.replace("test-", "home-")
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def manifest(namespace: str) -> Make:
    """A CPU deployment that KAITO can run; keyword arguments replace parts of its spec."""

    def make(name: str = "gemma", *, annotations: dict[str, str] | None = None, **spec: Any) -> Resource:
        base: Resource = {
            "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
            "engine": {"type": "llamacpp"},
            "resources": {"memory": "16Gi", "cpu": "8"},
            "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
        }
        return {
            "apiVersion": "airunway.ai/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": namespace, **({"annotations": annotations} if annotations else {})},
            "spec": {key: value for key, value in {**base, **spec}.items() if value is not None},
        }

    return make


@pytest.fixture
async def create(client: Client) -> Callable[[Resource], Any]:
    """Create a deployment; returns its key."""

    async def create_(deployment: Resource) -> ObjectKey:
        await client.create(MODEL_DEPLOYMENT, deployment)
        return ObjectKey(deployment["metadata"]["namespace"], deployment["metadata"]["name"])

    return create_
