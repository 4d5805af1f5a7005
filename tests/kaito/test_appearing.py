"""InferenceSets come to a cluster, and go again: what runs as a Workspace is not touched by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.audit import AuditReader
from tests.support.rights import granted

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.rbac.rights import provider_rights
from airunway.resource import ObjectKey, Resource, condition_of, key_of
from airunway_testing.controlplane import Cluster
from airunway_testing.expectations import has_replicas, reason_is, running_at
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

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")
INFERENCE_SET = Kind("kaito.sh", "v1beta1", "InferenceSet", "inferencesets")

Manifest = Callable[..., Resource]


async def state_of(client: Client, key: ObjectKey) -> tuple[str, str, list[str]]:
    """What must stay: the Workspace as we wrote it, and its pod."""
    live = await client.get(WORKSPACE, key)
    pods = await client.list_all(POD, namespace=key.namespace, label_selector=f"kaito.sh/workspace={key.name}")
    return live["metadata"]["uid"], live["metadata"]["generation"], [pod["metadata"]["uid"] for pod in pods]


async def test_what_runs_as_a_workspace_stays_one_and_scaling_works_from_then_on(
    kubeconfig: Path, client: Client, kaito: ProviderHost, namespace: str, manifest_of: Manifest
) -> None:
    definitions = load_simulator("kaito").custom_resource_definitions()
    (of_sets,) = [crd for crd in definitions if crd["spec"]["names"]["kind"] == "InferenceSet"]
    await install_definitions(client, [crd for crd in definitions if crd is not of_sets])
    await remove_leftovers(client)
    await remove_definition(client, key_of(of_sets).name)
    key, other = ObjectKey(namespace, "llama"), ObjectKey(namespace, "wide")
    async with running_core(kubeconfig), running_simulator(kubeconfig, kaito, level="cluster"):
        async with running_provider(kubeconfig, kaito):
            await client.create(MODEL_DEPLOYMENT, manifest_of("llama"))
            await client.create(MODEL_DEPLOYMENT, manifest_of("wide", scaling={"replicas": 2}))
            await until(client, key, running_at(1))
            refused = await until(client, other, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
            assert "does not serve InferenceSet" in (condition_of(refused, "ProviderCompatible") or {})["message"]
            before = await state_of(client, key)

            await install_definitions(client, [of_sets])
            await until(client, other, running_at(1), what="what was refused, running")
            assert await state_of(client, key) == before, "the kind appeared"
        async with running_provider(kubeconfig, kaito):  # an upgrade of ours starts the provider anew
            await until(client, other, has_replicas(2, 2))
            await asyncio.sleep(2)
            assert await state_of(client, key) == before, "the provider was started anew"
            await client.delete(MODEL_DEPLOYMENT, other)
            await gone(client, MODEL_DEPLOYMENT, other)
            await remove_definition(client, key_of(of_sets).name)
            await asyncio.sleep(2)
            assert await state_of(client, key) == before, "the kind went"
            await client.delete(MODEL_DEPLOYMENT, key)
            await gone(client, MODEL_DEPLOYMENT, key)


async def test_the_rights_that_are_granted_are_enough_and_all_of_them_are_used(
    cluster: Cluster,
    kubeconfig: Path,
    client: Client,
    kaito: ProviderHost,
    namespace: str,
    manifest_of: Manifest,
    audit_log: Path,
) -> None:
    user = f"system:serviceaccount:{namespace}:airunway-provider-kaito"
    await install_definitions(client, load_simulator("kaito").custom_resource_definitions())
    await remove_leftovers(client)
    key = ObjectKey(namespace, "llama")
    audit = AuditReader(audit_log)
    async with (
        granted(client, provider_rights(kaito.manifest), user=user, namespace=namespace),
        running_core(kubeconfig),
        running_simulator(kubeconfig, kaito, level="cluster"),
        running_provider(cluster.kubeconfig_for(user), kaito),
    ):
        await client.create(MODEL_DEPLOYMENT, manifest_of("llama", image=None, engine={"contextLength": 4096}))
        await until(client, key, running_at(1))
        edits: tuple[Resource, ...] = (
            {"scaling": {"replicas": 2}},
            {"scaling": {"replicas": 1}},
            {"engine": {"contextLength": 2048}},
            {"suspend": True},
            {"suspend": False},
        )
        for generation, spec in enumerate(edits, start=2):
            await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": spec}, manager="tests")
            reached = running_at(generation) if not spec.get("suspend") else reason_is("Ready", "Suspended")
            await until(client, key, reached, what=str(spec))
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)
    ours = [request for request in audit.read(watches=True) if request.user == user]
    assert [f"{r.verb} {r.resource} {r.namespace}/{r.name}" for r in ours if r.code == 403] == []
    used = {(r.resource, r.verb) for r in ours}
    for plural in ("workspaces", "inferencesets", "services"):
        wanted = {(plural, verb) for verb in ("list", "watch", "patch", "delete")}
        assert wanted <= used, f"granted, never used: {wanted - used}"
