"""The stage of Dynamo's tests: the simulated operator, and every component of ours under an account of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, key_of
from airunway_testing.controlplane import Cluster
from airunway_testing.operator import install_definitions, remove_leftovers
from airunway_testing.simulators import load_simulator
from airunway_testing.stage import Stage, staged

ALPHA, BETA = (
    Kind("nvidia.com", version, "DynamoGraphDeployment", "dynamographdeployments")
    for version in ("v1alpha1", "v1beta1")
)

Deploy: TypeAlias = Callable[..., Awaitable[ObjectKey]]


@pytest.fixture(scope="session")
def dynamo() -> ProviderHost:
    return load("dynamo")


@pytest.fixture
async def stage(control_plane: Cluster, client: Client, namespace: str, audit_log: Path) -> AsyncIterator[Stage]:
    """The core runs; the provider comes with ``await stage.provider(dynamo)``.

    After every test: nothing is written at rest, nobody was refused a right, and the deployments go.
    """
    await install_definitions(client, load_simulator("dynamo").custom_resource_definitions())
    await remove_leftovers(client)

    async def clean() -> None:
        assert await found.at_rest(BETA) == [], "at rest nothing is written"
        for deployment in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await client.delete(MODEL_DEPLOYMENT, key_of(deployment))
        async with asyncio.timeout(30):
            while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                await asyncio.sleep(0.05)

    async with staged(control_plane, client, namespace=namespace, audit_log=audit_log, clean=clean) as found:
        yield found


@pytest.fixture
def deploy(stage: Stage) -> Deploy:
    """Creates a Llama on one GPU for Dynamo; keyword arguments are fields of the spec."""

    async def create(name: str = "llama", *, overrides: dict[str, Any] | None = None, **spec: Any) -> ObjectKey:
        return await stage.deploy(
            name,
            model={"id": "meta-llama/Llama-3.1-8B-Instruct"},
            provider={"name": "dynamo", **({"overrides": overrides} if overrides else {})},
            **{"env": [], **spec},
        )

    return create
