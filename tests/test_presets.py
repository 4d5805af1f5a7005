"""A plan of two objects, KAITO's preset and its ConfigMap, on a real API server: order, pruning, refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.proxied_requests import ProxiedRequest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, uid_of
from airunway_testing.expectations import condition_is, running_at
from airunway_testing.operator import gone, running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]


def preset(make: Make, **spec: object) -> Resource:
    """A model whose image and arguments are KAITO's matter."""
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
    parts = {"engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}, "image": None, **spec}
    return make("llama", model=model, **parts)


@pytest.fixture
async def proxy(kubeconfig: Path, installed: None, kaito: ProviderHost) -> AsyncIterator[FaultProxy]:
    """Everything runs; the provider is behind the proxy."""
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        yield proxy


def is_write(request: ProxiedRequest) -> bool:
    return request.verb == "apply" and request.subresource == "" and "dryRun" not in request.query


async def configs_of(client: Client, key: ObjectKey) -> list[str]:
    found = await client.list_all(CONFIG_MAP, namespace=key.namespace)
    return [c["metadata"]["name"] for c in found if c["metadata"]["name"].startswith(f"{key.name}-inference-config-")]


async def test_a_first_creation_is_not_rehearsed_and_the_others_come_before_the_primary(
    proxy: FaultProxy, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(preset(manifest))
    await until(client, key, running_at(1))
    applied = [r for r in proxy.requests if r.namespace == key.namespace and r.verb == "apply"]
    applied = [r for r in applied if r.resource in ("configmaps", "workspaces")]
    assert [r.resource for r in applied] == ["configmaps", "workspaces"]
    assert not any("dryRun" in r.query for r in applied)  # nothing serves yet, and Strict guards each object
    (config,) = await configs_of(client, key)
    assert dig(await client.get(WORKSPACE, key), "inference", "config") == config


async def test_what_an_earlier_generation_needed_is_deleted_once_the_primary_does_without(
    proxy: FaultProxy, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(preset(manifest))
    await until(client, key, running_at(1))
    workspace, (before,) = await client.get(WORKSPACE, key), await configs_of(client, key)
    passed = len(proxy.requests)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"engine": {"contextLength": 4096}}}, manager="user")
    await until(client, key, running_at(2))
    await gone(client, CONFIG_MAP, ObjectKey(key.namespace, before))
    changed = [r for r in proxy.requests[passed:] if r.verb == "apply" and r.resource in ("configmaps", "workspaces")]
    # What is there may be harmed: all of it is rehearsed before the first write (again, if a pass was interrupted).
    rehearsed = ["dryRun" in r.query for r in changed]
    assert rehearsed == sorted(rehearsed, reverse=True)
    assert {r.resource for r in changed[: rehearsed.count(True)]} == {"configmaps", "workspaces"}
    assert [r.resource for r in changed[rehearsed.count(True) :]] == ["configmaps", "workspaces"]
    (after,) = await configs_of(client, key)
    assert after != before
    live = await client.get(WORKSPACE, key)
    assert (uid_of(live), dig(live, "inference", "config")) == (uid_of(workspace), after)
    deeds = [(r.verb, r.resource) for r in proxy.requests[passed:] if is_write(r) or r.verb == "delete"]
    deeds = [deed for deed in deeds if deed[1] in ("configmaps", "workspaces")]
    assert deeds == [("apply", "configmaps"), ("apply", "workspaces"), ("delete", "configmaps")]


async def test_a_refusal_that_names_the_new_config_is_tried_again_in_silence_at_first(
    proxy: FaultProxy, client: Client, manifest: Make, create: Create
) -> None:
    """KAITO's webhook knows of a ConfigMap only a moment after it was made: that is nobody's fault, unless it lasts."""
    key = await create(preset(manifest))
    await until(client, key, running_at(1))
    (config,) = await configs_of(client, key)  # the name follows from the content: the next one has it too
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)
    text = f'admission webhook "w" denied the request: ConfigMap "{config}" not found'
    refusal = Fault("status", status=400, reason="BadRequest", message=text, resource="workspaces", verb="apply")
    proxy.inject(replace(refusal, count=None))
    passed = len(proxy.requests)
    await create(preset(manifest))
    told = await until(client, key, condition_is("ResourceCreated", "False"))
    attempts = sum(1 for r in proxy.requests[passed:] if r.fault and is_write(r))
    assert attempts > 3
    assert text in (condition_of(told, "ResourceCreated") or {})["message"]
    assert await configs_of(client, key) == [config]
    proxy.clear()
    running = await until(client, key, running_at(1))
    assert (condition_of(running, "ResourceCreated") or {})["status"] == "True"
