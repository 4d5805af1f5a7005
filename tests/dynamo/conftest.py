"""Fixtures of Dynamo's tests: the simulated operator, and every component of ours under an account of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.deployed_operator import Operator, deployed_operator

from airunway.kube import POD, Client, Kind, is_served
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, is_deleting, key_of, labels_of
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import (
    Deploy,
    deployments,
    install_definitions,
    remove_definition,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
)
from airunway_testing.simulators import load_simulator

ALPHA, BETA = (
    Kind("nvidia.com", version, "DynamoGraphDeployment", "dynamographdeployments")
    for version in ("v1alpha1", "v1beta1")
)
CLIQUE = Kind("grove.io", "v1alpha1", "PodClique", "podcliques")


@pytest.fixture(scope="session")
def dynamo() -> ProviderHost:
    return load("dynamo")


@pytest.fixture
async def operator(control_plane: Cluster, client: Client, namespace: str, audit_log: Path) -> AsyncIterator[Operator]:
    """The core runs; the provider comes with ``await operator.provider(dynamo)``.

    After every test: nothing is written at rest, nobody was refused a right, and the deployments go.
    """

    async def last(operator: Operator) -> None:
        assert await operator.at_rest(BETA) == [], "at rest nothing is written"

    definitions = load_simulator("dynamo").custom_resource_definitions()
    async with deployed_operator(
        control_plane, client, namespace=namespace, audit_log=audit_log, definitions=definitions, last=last
    ) as found:
        yield found


def provider_with(overrides: Resource | None) -> Resource:
    return {"name": "dynamo", **({"overrides": overrides} if overrides else {})}


@pytest.fixture
def deploy(operator: Operator) -> Deploy:
    """Creates a Llama on one GPU for Dynamo; keyword arguments are fields of the spec."""

    async def create(name: str = "llama", *, overrides: dict[str, Any] | None = None, **spec: Any) -> ObjectKey:
        return await operator.deploy(
            name,
            model={"id": "meta-llama/Llama-3.1-8B-Instruct"},
            provider=provider_with(overrides),
            **{"env": [], **spec},
        )

    return create


# ------------------------------------------------------------------------------------------------------- with real pods


@pytest.fixture(params=["deployments", "grove"])
async def playing(
    request: pytest.FixtureRequest, kubeconfig: Path, client: Client, dynamo: ProviderHost
) -> AsyncIterator[str]:
    """Core, provider and simulated operator on a cluster, without Grove and with it; gives the way."""
    await install_definitions(client, load_simulator("dynamo").custom_resource_definitions())
    await remove_leftovers(client)
    async with AsyncExitStack() as stack:
        if request.param == "grove":
            await stack.enter_async_context(grove_installed(client))
        for context in (
            running_core(kubeconfig),
            running_provider(kubeconfig, dynamo),
            running_simulator(kubeconfig, dynamo, level="cluster"),
        ):
            await stack.enter_async_context(context)
        yield request.param


@asynccontextmanager
async def grove_installed(client: Client) -> AsyncIterator[None]:
    """The CRD of PodCliques, for as long as the context lasts."""
    crd = yaml.safe_load((resources.files("airunway_dynamo_simulator") / "grove" / "podcliques.yaml").read_text())
    await install_definitions(client, [crd])
    async with asyncio.timeout(PATIENCE):
        while not await is_served(client, CLIQUE):
            await asyncio.sleep(0.05)
    try:
        yield
    finally:
        await remove_definition(client, key_of(crd).name)


@pytest.fixture
async def make(playing: str, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates a Llama on one GPU for Dynamo on the cluster; deleted after the test, with all that was made for it."""

    base = {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "engine": {"type": "vllm"},
        "resources": {"gpu": {"count": 1}},
    }
    async with deployments(client, namespace, base) as create:

        async def make_(name: str = "llama", *, overrides: dict[str, Any] | None = None, **spec: Any) -> ObjectKey:
            return await create(name, **{"provider": provider_with(overrides), **spec})

        yield make_


async def pods_of(client: Client, key: ObjectKey, *types: str) -> list[Resource]:
    """The pods of a deployment that are not on their way out, of these types of components (default: all)."""
    found = await client.list_all(
        POD, namespace=key.namespace, label_selector=f"nvidia.com/dynamo-graph-deployment-name={key.name}"
    )
    living = [pod for pod in found if not is_deleting(pod)]
    return [pod for pod in living if not types or labels_of(pod).get("nvidia.com/dynamo-component-type") in types]
