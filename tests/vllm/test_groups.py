"""Several nodes for one replica, on a real API server with LeaderWorkerSet's own CRD; its controller is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.audit import AuditReader

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, SERVICE, Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import reason_is
from airunway_testing.operator import (
    gone,
    install_definitions,
    remove_definition,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")


@pytest.fixture(params=["v0.7.0", "v0.10.0"])
async def definition(request: pytest.FixtureRequest, recordings: Path, client: Client) -> AsyncIterator[Resource]:
    """The CRD of one release, not installed yet; gone after the test."""
    path = recordings / "upstream-crds" / "lws" / request.param / "leaderworkersets.yaml"
    text = path.read_text(encoding="utf-8")
    crd: Resource = next(doc for doc in yaml.load_all(text, Loader=yaml.CSafeLoader) if doc)
    await remove_definition(client, key_of(crd).name)
    yield crd
    await remove_definition(client, key_of(crd).name)


@pytest.fixture
async def operator_without_simulator(kubeconfig: Path, client: Client, vllm: ProviderHost) -> AsyncIterator[None]:
    await install_definitions(client)
    await remove_leftovers(client)
    async with running_core(kubeconfig), running_provider(kubeconfig, vllm):
        yield


async def exists(client: Client, kind: Kind, key: ObjectKey) -> Resource:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await client.get(kind, key)
            except NotFound:
                await asyncio.sleep(0.05)


async def test_a_group_is_written_once_leaderworkerset_is_there_and_gives_way_to_one_node(
    definition: Resource,
    operator_without_simulator: None,
    kubeconfig: Path,
    vllm: ProviderHost,
    client: Client,
    namespace: str,
) -> None:
    key, group = ObjectKey(namespace, "large"), ObjectKey(namespace, "large-lws")
    spec: dict[str, Any] = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 16}, "memory": "64Gi"}}
    await client.create(
        MODEL_DEPLOYMENT,
        {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": "ModelDeployment",
            "metadata": {"name": key.name, "namespace": namespace},
            "spec": {**spec, "env": [{"name": "EMPTY", "value": ""}]},
        },
    )
    refused = await until(client, key, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
    assert "LeaderWorkerSet, which is not installed" in refused["status"]["message"]
    await install_definitions(client, [definition])
    live = await exists(client, LEADER_WORKER_SET, group)
    assert live["spec"]["leaderWorkerTemplate"]["size"] == 2
    labels = live["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["labels"]
    assert labels["airunway.ai/component"] == "server-worker"
    service = await exists(client, SERVICE, key)
    assert service["spec"]["selector"]["airunway.ai/component"] == "server"
    waiting = await until(client, key, lambda d: dig(d, "status", "phase") == "Deploying")
    assert dig(waiting, "status", "provider", "resourceKind") in (None, "LeaderWorkerSet")

    async with running_simulator(kubeconfig, vllm, level="api"):
        running = await until(client, key, lambda d: dig(d, "status", "phase") == "Running")
    assert running["status"]["endpoint"]["service"] == key.name
    settled = await client.get(LEADER_WORKER_SET, group)
    await client.merge_patch(
        MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {"airunway.ai/look": "again"}}}, manager="tests"
    )
    await asyncio.sleep(1)
    again = await client.get(LEADER_WORKER_SET, group)
    assert again["metadata"]["resourceVersion"] == settled["metadata"]["resourceVersion"], "no write at rest"

    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"resources": {"gpu": {"count": 8}}}}, manager="tests")
    await gone(client, LEADER_WORKER_SET, group)
    server = await exists(client, DEPLOYMENT, key)
    assert server["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert (await client.get(SERVICE, key))["metadata"]["uid"] == service["metadata"]["uid"], "the address stays"
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)


@pytest.fixture
async def groups_installed(operator_without_simulator: None, client: Client) -> None:
    await install_definitions(client, load_simulator("vllm").custom_resource_definitions())


async def made(client: Client, namespace: str, name: str, gpus: int) -> ObjectKey:
    body: Resource = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"id": "o/m"}, "resources": {"gpu": {"count": gpus}}},
    }
    await client.create(MODEL_DEPLOYMENT, body)
    return ObjectKey(namespace, name)


async def is_absent(client: Client, kind: Kind, key: ObjectKey) -> bool:
    try:
        await client.get(kind, key)
    except NotFound:
        return True
    return False


async def test_real_llmd_6_a_service_that_has_the_name_of_a_group_s_own_is_a_conflict_before_the_group_is_made(
    groups_installed: None, client: Client, namespace: str, audit_log: Path
) -> None:
    """LeaderWorkerSet takes whatever Service is there, and its pods never find each other (recorded)."""
    other = await made(client, namespace, "co-lws", 8)
    await exists(client, DEPLOYMENT, other)
    service = await exists(client, SERVICE, other)
    key, group = await made(client, namespace, "co", 16), ObjectKey(namespace, "co-lws")
    refused = await until(client, key, reason_is("ResourceCreated", "ResourceConflict"))
    message = refused["status"]["message"]
    assert (
        f"Service {group} exists but is not managed by this ModelDeployment (owned by ModelDeployment/co-lws)"
        in message
    )
    assert "the LeaderWorkerSet of that name needs a Service of its own" in message
    assert await is_absent(client, LEADER_WORKER_SET, group)
    assert (await client.get(SERVICE, group))["metadata"]["uid"] == service["metadata"]["uid"]
    # It heals by itself once the name is free.
    await client.delete(MODEL_DEPLOYMENT, other)
    await gone(client, MODEL_DEPLOYMENT, other)
    await gone(client, SERVICE, group)
    await exists(client, LEADER_WORKER_SET, group)
    asked = [r for r in AuditReader(audit_log).read() if (r.verb, r.resource) == ("get", "services")]
    assert len([r for r in asked if "airunway" in r.agent]) <= 6, "asked only where a group is to be made"
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)


async def test_real_llmd_6_what_serves_on_one_node_goes_on_where_its_group_cannot_have_its_service(
    groups_installed: None, client: Client, namespace: str
) -> None:
    key, group = await made(client, namespace, "fo", 8), ObjectKey(namespace, "fo-lws")
    before = await exists(client, DEPLOYMENT, key)
    spec = {"selector": {"app": "theirs"}, "ports": [{"port": 80}]}
    metadata = {"name": group.name, "namespace": namespace}
    await client.create(SERVICE, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"resources": {"gpu": {"count": 16}}}}, manager="tests")
    refused = await until(client, key, reason_is("ResourceCreated", "ResourceConflict"))
    assert f"Service {group} exists but is not managed" in refused["status"]["message"]
    live = await client.get(DEPLOYMENT, key)
    assert live["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in live["metadata"]
    await client.delete(SERVICE, group)
    await exists(client, LEADER_WORKER_SET, group)
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)
