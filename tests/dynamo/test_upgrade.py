"""Dynamo is upgraded under graphs that serve: another version, an unknown schema, and back. None of them notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from tests.dynamo.conftest import ALPHA, pods_of
from tests.support.cluster_fixtures import with_gpus
from tests.support.deployed_operator import Operator, deployed_operator

from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, copy_of, dig, key_of, uid_of
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    Deploy,
    install_definitions,
    remove_definition,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

COUNT = 20


def crd_of(recordings: Path, release: str) -> Resource:
    path = recordings / "upstream-crds" / "dynamo" / release / "dynamographdeployments.yaml"
    if not path.exists():
        pytest.skip(f"not beside the checkout: {path.parent}")
    crd: Resource = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return crd


def unknown(crd: Resource) -> Resource:
    """The same with a field that nobody knows, as a patch release might bring it."""
    found = copy_of(crd)
    for version in found["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["novelty"] = {"type": "string"}
    return found


@pytest.fixture
async def operator(
    cluster: Cluster, client: Client, namespace: str, audit_log: Path, recordings: Path
) -> AsyncIterator[Operator]:
    """The core runs, Dynamo 1.1 is installed; afterwards the simulator's own CRDs are there again."""
    other, minimal = load_simulator("dynamo").custom_resource_definitions()
    # In whatever version: what it stores cannot be taken over by another.
    await remove_definition(client, key_of(minimal).name)
    definitions = [other, crd_of(recordings, "v1.1.0-cut")]
    async with (
        with_gpus(client, COUNT),
        deployed_operator(cluster, client, namespace=namespace, audit_log=audit_log, definitions=definitions) as found,
    ):
        yield found
    await remove_definition(client, key_of(minimal).name)


async def seen(client: Client, *, version: str, reason: str) -> None:
    """Waits until the provider has noticed what is served now."""

    def noticed(config: Resource) -> bool:
        supported = condition_of(config, "SchemaSupported") or {}
        served = str(dig(config, "status", "upstreamCRDVersion"))
        return served.endswith(version) and supported.get("reason") == reason

    async with asyncio.timeout(PATIENCE):
        while not noticed(await client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "dynamo"))):
            await asyncio.sleep(0.05)


async def test_an_upgrade_under_twenty_graphs_touches_none(
    operator: Operator,
    deploy: Deploy,
    kubeconfig: Path,
    client: Client,
    dynamo: ProviderHost,
    recordings: Path,
    namespace: str,
) -> None:
    user = await operator.provider(dynamo, simulated=False)
    async with running_simulator(kubeconfig, dynamo, level="cluster"):
        keys = [await deploy(f"m{number}") for number in range(COUNT)]
        for key in keys:
            await until(client, key, running_at(1))

        async def state() -> dict[str, tuple[object, ...]]:
            graphs = await client.list_all(ALPHA, namespace=namespace)
            return {
                key_of(graph).name: (
                    uid_of(graph),
                    dig(graph, "metadata", "generation"),
                    annotations_of(graph)["airunway.ai/transformer"],
                    *sorted((uid_of(pod), key_of(pod).name) for pod in await pods_of(client, key_of(graph))),
                )
                for graph in graphs
            }

        before = await state()
        assert len(before) == COUNT
        assert {found[2] for found in before.values()} == {"v1alpha1-1.1-r3"}
        newer = crd_of(recordings, "v1.2.0-cut")
        for crd, version, reason in (
            (newer, "v1beta1", "SchemaSupported"),
            (unknown(newer), "v1beta1", "UnverifiedSchema"),
            (crd_of(recordings, "v1.1.0-cut"), "v1alpha1", "SchemaSupported"),
        ):
            operator.writes(user)  # what was written so far
            await install_definitions(client, [crd])
            await seen(client, version=version, reason=reason)
            await operator.at_rest()
            assert await state() == before
            for key in keys:
                found = await client.get(MODEL_DEPLOYMENT, key)
                assert found["status"]["phase"] == "Running", (key, found["status"])
        written = [write for write in operator.writes(user) if "dynamographdeployments" in write]
        assert sorted(written) == sorted(f"patch dynamographdeployments {key.name}" for key in keys)
        await operator.clear()
