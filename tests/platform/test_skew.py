"""Core and provider of different releases under one config (cases C17, C26)."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.configs.resolution import resolve
from airunway.kinds import CLUSTER_RUNTIME_CONFIG, MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator

pytestmark = pytest.mark.apiserver

CONFIGS = (RUNTIME_CONFIG, CLUSTER_RUNTIME_CONFIG)
NEWER = {"type": "object", "properties": {"mode": {"type": "string"}, "depth": {"type": "integer"}}}


@pytest.fixture
async def newer(client: Client) -> AsyncIterator[None]:
    """The config kinds have a field that this release does not know, ``spec.novelty``."""
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    await remove_leftovers(client)
    ours = {key_of(crd).name: crd for crd in custom_resource_definitions()}
    wanted = [ours[f"{kind.plural}.{kind.group}"] for kind in CONFIGS]
    for crd in wanted:
        grown = copy.deepcopy(crd)
        for version in grown["spec"]["versions"]:
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["novelty"] = NEWER
        await client.apply(CUSTOM_RESOURCE_DEFINITION, grown, manager="airunway-testing", force=True)
    yield
    for config in await client.list_all(CLUSTER_RUNTIME_CONFIG):
        await client.delete(CLUSTER_RUNTIME_CONFIG, key_of(config))
    for crd in wanted:
        await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager="airunway-testing", force=True)


def deployment(namespace: str, name: str) -> Resource:
    spec = {
        "model": {"id": "org/model"},
        "engine": {"type": "vllm"},
        "provider": {"name": "toy"},
        "resources": {"gpu": {"count": 1}},
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}


async def configure(client: Client, namespace: str, novelty: Resource, **spec: object) -> Resource:
    """A config of one or both kinds with the newer field; returns it as it is stored."""
    kind = RUNTIME_CONFIG if namespace else CLUSTER_RUNTIME_CONFIG
    metadata = {"name": "default", **({"namespace": namespace} if namespace else {})}
    body = {"apiVersion": names.API_VERSION, "kind": kind.kind, "metadata": metadata}
    wanted = {**body, "spec": {"novelty": novelty, **spec}}

    async def stored() -> Resource:
        return await client.apply(kind, wanted, manager="platform", force=True)

    found = await stored()
    while "novelty" not in found["spec"]:  # the API server prunes until it has taken the new schema
        found = await stored()
    return found


async def test_c26_a_field_that_a_release_does_not_know_counts_in_the_hash_and_nobody_waits(
    newer: None, client: Client, kubeconfig: Path, namespace: str
) -> None:
    """The hash is that of what is stored, with the unknown field in it, also where two configs are merged."""
    toy = load("toy")
    upper = await configure(client, namespace, {"mode": "a"}, inherit="Cluster", env=[{"name": "A", "value": "1"}])
    lower = await configure(client, "", {"mode": "b", "depth": 2})
    expected = resolve("default", namespaced=upper, cluster=lower).config
    without = resolve("default", namespaced={**upper, "spec": {"inherit": "Cluster"}}, cluster=None).config
    assert expected is not None
    assert without is not None
    assert expected.hash != without.hash
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, toy),
        running_simulator(kubeconfig, toy, level="api"),
    ):
        key = ObjectKey(namespace, "one")
        await client.create(MODEL_DEPLOYMENT, deployment(namespace, "one"))
        found = await until(client, key, running_at(1))
        assert dig(found, "status", "effectiveRuntimeConfig", "hash") == expected.hash
        assert dig(found, "status", "revision", "settings", "configHash") == expected.hash
        changed = await configure(client, namespace, {"mode": "c"}, inherit="Cluster")
        newest = resolve("default", namespaced=changed, cluster=lower).config
        assert newest is not None
        await until(client, key, lambda each: dig(each, "status", "effectiveRuntimeConfig", "hash") == newest.hash)
