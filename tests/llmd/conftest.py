"""Core and airunway-llmd on a cluster, the provider with the rights of docs/reference/llmd-roles.yaml."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.support.rights import granted

from airunway.kube import Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.rbac.rights import provider_rights
from airunway.resource import ObjectKey, Resource
from airunway.runtime.application import ProviderSettings
from airunway_testing.controlplane import Cluster
from airunway_testing.operator import (
    Deploy,
    deployments,
    install_definitions,
    pods_of,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
)
from airunway_testing.simulators import load_simulator

POOL = Kind("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools")
ROLE = {"replicas": 1, "gpu": {"count": 1}, "memory": "1Gi"}
APART: Resource = {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": ROLE, "decode": ROLE}, "resources": {}}

Pods: TypeAlias = Callable[[ObjectKey], Awaitable[list[Resource]]]


@pytest.fixture(scope="session")
def llmd() -> ProviderHost:
    return load("llmd")


@pytest.fixture
def account(namespace: str) -> str:
    """The user that the provider runs as."""
    return f"system:serviceaccount:{namespace}:airunway-provider-llmd"


@pytest.fixture
async def llmd_operator(
    request: pytest.FixtureRequest,
    kubeconfig: Path,
    client: Client,
    cluster: Cluster,
    llmd: ProviderHost,
    namespace: str,
    account: str,
) -> AsyncIterator[None]:
    """Core, provider and simulated upstreams, with Inference Extension and LeaderWorkerSet installed."""
    await installed(client)
    async with (
        granted(client, provider_rights(llmd.manifest), user=account, namespace=namespace),
        running_core(kubeconfig),
        running_provider(cluster.kubeconfig_for(account), llmd, settings=settings_of(request)),
        running_simulator(kubeconfig, llmd, level="cluster"),
    ):
        yield


def definitions() -> list[Resource]:
    """The CRDs of Inference Extension and LeaderWorkerSet."""
    return [crd for name in ("llmd", "vllm") for crd in load_simulator(name).custom_resource_definitions()]


async def installed(client: Client) -> None:
    await install_definitions(client, definitions())
    await remove_leftovers(client)


def settings_of(request: pytest.FixtureRequest) -> ProviderSettings:
    """The provider's settings: the parameter of the fixture `llmd_operator`, where a test gives one."""
    return ProviderSettings(values=getattr(request, "param", {}))


@pytest.fixture
async def deploy(llmd_operator: None, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates a deployment of one server; keyword arguments are fields of the spec. Deleted after the test."""

    base = {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "provider": {"name": "llmd"},
        "resources": {"gpu": {"count": 1}},
    }
    async with deployments(client, namespace, base) as create:
        yield create


@pytest.fixture
def pods(client: Client) -> Pods:
    """The pods of a deployment that are not on their way out, its picker's too."""

    return partial(pods_of, client)
