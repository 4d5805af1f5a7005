"""The core says on a provider's registration where that one has deployments, before the provider can act on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from airunway.api import names
from airunway.controller import guarded
from airunway.controller.application import CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is
from airunway_testing.operator import running_core, until

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]


@pytest.fixture
async def acme(client: Client, installed: None, namespace: str) -> AsyncIterator[ObjectKey]:
    """A provider that is registered and ready; nothing else acts as it."""
    name = namespace.replace("test-", "acme-")
    engines = [{"name": "vllm", "servingModes": ["aggregated"], "gpuSupport": True, "cpuSupport": True}]
    config = {
        "apiVersion": names.API_VERSION,
        "kind": INFERENCE_PROVIDER_CONFIG.kind,
        "metadata": {"name": name},
        "spec": {"capabilities": {"engines": engines}},
    }
    await client.create(INFERENCE_PROVIDER_CONFIG, config)
    ready = {"status": {"ready": True}}
    await client.merge_patch(INFERENCE_PROVIDER_CONFIG, ObjectKey("", name), ready, subresource="status")
    yield ObjectKey("", name)
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", name))


async def noted(client: Client, acme: ObjectKey, wanted: dict[str, str]) -> None:
    """Returns once exactly that is noted."""
    last: object = None
    try:
        async with asyncio.timeout(PATIENCE):
            while (
                last := dig(await client.get(INFERENCE_PROVIDER_CONFIG, acme), "status", "namespaces") or {}
            ) != wanted:
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise AssertionError(f"noted is {last}, not {wanted}") from error


def model(namespace: str, acme: ObjectKey, name: str = "llama", **spec: object) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"id": "org/model"},
            "engine": {"type": "vllm"},
            "resources": {"gpu": {"count": 1}},
            "provider": {"name": acme.name},
            **spec,
        },
    }


def chosen(live: Resource) -> bool:
    return bool(dig(live, "status", "provider", "name"))


async def test_a_note_comes_before_the_verdict_and_goes_after_the_deployment(
    client: Client, control_plane: Cluster, namespace: str, acme: ObjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded, "REST", 0.2)
    monkeypatch.setattr(guarded, "KEPT", 1.0)
    home = namespace.replace("test-", "home-")
    settings = CoreSettings(guard_parameters=home, namespaces=(namespace,))
    key = ObjectKey(namespace, "llama")
    async with running_core(control_plane.kubeconfig, settings=settings):
        for number in range(5):  # at the moment of the verdict the note is there, each time
            one = await client.create(MODEL_DEPLOYMENT, model(namespace, acme, serviceAccountName=f"models-{number}"))
            live = await until(client, key, chosen, what="a provider")
            assert live["metadata"]["uid"] == one["metadata"]["uid"]
            config = await client.get(INFERENCE_PROVIDER_CONFIG, acme)
            assert f"models-{number}" in dig(config, "status", "namespaces", namespace, default="").split()
            await client.delete(MODEL_DEPLOYMENT, key)
        await noted(client, acme, {})

        held = model(namespace, acme)
        held["metadata"]["finalizers"] = [names.provider_finalizer(acme.name), "example.com/held"]
        await client.create(MODEL_DEPLOYMENT, held)
        await until(client, key, chosen, what="a provider")
        await noted(client, acme, {namespace: ""})
        await client.delete(MODEL_DEPLOYMENT, key)
        await asyncio.sleep(2)  # several looks for what nobody needs
        await noted(client, acme, {namespace: ""})
        patch = {"metadata": {"finalizers": None}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, patch)
        await noted(client, acme, {})


async def test_a_note_that_is_lost_comes_back(
    client: Client, control_plane: Cluster, namespace: str, acme: ObjectKey
) -> None:
    settings = CoreSettings(guard_parameters="home", namespaces=(namespace,))
    await client.create(MODEL_DEPLOYMENT, model(namespace, acme, serviceAccountName="models"))
    async with running_core(control_plane.kubeconfig, settings=settings):
        await noted(client, acme, {namespace: "models"})
        lost = {"status": {"namespaces": None}}
        await client.merge_patch(INFERENCE_PROVIDER_CONFIG, acme, lost, subresource="status")
        await noted(client, acme, {namespace: "models"})
        forged = {"status": {"namespaces": {namespace: "admin"}}}
        await client.merge_patch(INFERENCE_PROVIDER_CONFIG, acme, forged, subresource="status", manager="somebody")
        await noted(client, acme, {namespace: "models"})
    # Another core begins to lead: nothing is lost, and what went meanwhile is taken out.
    await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, "llama"))
    await client.create(MODEL_DEPLOYMENT, model(namespace, acme, "other"))
    async with running_core(control_plane.kubeconfig, settings=settings):
        await noted(client, acme, {namespace: ""})


async def test_cores_with_namespaces_of_their_own_leave_each_other_s_notes(
    client: Client, control_plane: Cluster, namespace: str, acme: ObjectKey
) -> None:
    elsewhere = {"status": {"namespaces": {"of-another-core": "models"}}}
    body = {"apiVersion": names.API_VERSION, "kind": INFERENCE_PROVIDER_CONFIG.kind, "metadata": {"name": acme.name}}
    await client.apply(
        INFERENCE_PROVIDER_CONFIG, {**body, **elsewhere}, manager=names.guard_manager("other"), subresource="status"
    )
    await client.create(MODEL_DEPLOYMENT, model(namespace, acme))
    settings = CoreSettings(guard_parameters="home", namespaces=(namespace,))
    async with running_core(control_plane.kubeconfig, settings=settings):
        await noted(client, acme, {namespace: "", "of-another-core": "models"})


async def test_what_the_policy_refuses_brings_no_account(
    client: Client, control_plane: Cluster, namespace: str, acme: ObjectKey, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{serviceAccounts: [models]}]")
    settings = CoreSettings(guard_parameters="home", namespaces=(namespace,), policy=PolicyFile(policy))
    key = ObjectKey(namespace, "llama")
    await client.create(MODEL_DEPLOYMENT, model(namespace, acme, serviceAccountName="models"))
    async with running_core(control_plane.kubeconfig, settings=settings):
        await noted(client, acme, {namespace: "models"})
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"serviceAccountName": "admin"}})
        await until(client, key, condition_is("Validated", "False"), what="a verdict")
        config = await client.get(INFERENCE_PROVIDER_CONFIG, acme)
        assert "admin" not in dig(config, "status", "namespaces", namespace).split()
