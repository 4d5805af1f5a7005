"""A provider's refusal is a verdict, on the real API server: the next candidate is chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airunway import sdk
from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time, labels_of
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    install_definitions,
    remove_leftovers,
    running_core,
    running_simulator,
    running_together,
    until,
)
from airunway_testing.simulators import load_simulator
from airunway_testing.toy.names import TOY
from airunway_testing.toy.provider import MANIFEST, TRANSFORMERS
from airunway_testing.toy.provider import provider as toy

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]


def refusing(name: str, *, above: int, priority: int) -> ProviderHost:
    """A toy of that name that refuses more than `above` replicas, in words that all of them share."""

    def can_handle(deployment: sdk.ModelDeployment, context: sdk.Context[object]) -> sdk.Compatibility:
        if deployment.spec.scaling.replicas <= above:
            return sdk.Compatibility()
        return sdk.Compatibility(blockers=(sdk.blocker("spec.scaling.replicas", "too many replicas: ask for fewer"),))

    rule = sdk.SelectionRule(condition="true", priority=priority)
    manifest = replace(MANIFEST, name=name, selection=sdk.SelectionMode.AUTO, selection_rules=(rule,))
    plugin = sdk.Provider(
        manifest,
        TRANSFORMERS,
        can_handle=can_handle,
        translate_spec=toy.translate_spec,
        translate_status=toy.translate_status,
    )
    return host_of(name, plugin, origin="test")


@pytest.fixture
def hosts() -> list[ProviderHost]:
    """The second one has more room and a lower score."""
    return [refusing("small", above=1, priority=9), refusing("large", above=2, priority=1)]


@pytest.fixture
async def both(kubeconfig: Path, client: Client, hosts: list[ProviderHost]) -> AsyncIterator[None]:
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    await remove_leftovers(client)
    async with running_simulator(kubeconfig, hosts[0], level="api"), running_together(kubeconfig, hosts):
        yield


async def created(client: Client, deployment: Resource) -> ObjectKey:
    await client.create(MODEL_DEPLOYMENT, deployment)
    return ObjectKey(deployment["metadata"]["namespace"], deployment["metadata"]["name"])


def chosen(provider: str) -> Callable[[Resource], bool]:
    """Whether a deployment is given to that provider."""
    return lambda obj: bool(dig(obj, "status", "provider", "name") == provider)


def refusal_of(deployment: Resource, provider: str) -> Resource:
    found = [c for c in dig(deployment, "status", "selection", "candidates", default=[]) if c["name"] == provider]
    return dig(found[0], "refusal", default={}) if found else {}


async def test_the_next_provider_runs_what_the_first_one_refused(both: None, client: Client, manifest: Make) -> None:
    one = await created(client, manifest("one"))
    two = await created(client, manifest("two", scaling={"replicas": 2}))
    first = await until(client, one, running_at(1))
    second = await until(client, two, running_at(1))
    assert [dig(obj, "status", "provider", "name") for obj in (first, second)] == ["small", "large"]
    assert refusal_of(first, "small") == {}
    assert refusal_of(second, "small")["message"] == "spec.scaling.replicas: too many replicas: ask for fewer"
    compatible = condition_of(second, "ProviderCompatible") or {}
    assert compatible["status"] == "True", "nothing of the first one's words is left"
    toys = {obj["metadata"]["name"]: obj for obj in await client.list_all(TOY, namespace=two.namespace)}
    assert {name: labels_of(obj)["airunway.ai/provider"] for name, obj in toys.items()} == {
        "one": "small",
        "two": "large",
    }


async def test_where_all_refuse_the_best_one_speaks_and_all_are_asked_anew_for_another_spec(
    both: None, client: Client, manifest: Make
) -> None:
    key = await created(client, manifest("three", scaling={"replicas": 3}))

    def settled(obj: Resource) -> bool:
        refused = all(refusal_of(obj, name) for name in ("small", "large"))
        return (
            refused and dig(obj, "status", "provider", "name") == "small" and dig(obj, "status", "phase") == "Pending"
        )

    found = await until(client, key, settled)
    assert dig(found, "status", "message") == "spec.scaling.replicas: too many replicas: ask for fewer"
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"scaling": {"replicas": 2}}})
    found = await until(client, key, running_at(2))
    assert dig(found, "status", "provider", "name") == "large"


async def test_two_refusals_that_do_not_differ_are_two(kubeconfig: Path, client: Client, manifest: Make) -> None:
    """The second provider repeats the first one's words within its second: no value changes, only who owns it.

    The test writes what the providers write, so that the order of the writes is the one that matters.
    """
    await install_definitions(client)
    await remove_leftovers(client)
    for name, priority in (("small", 9), ("large", 1)):
        await registered(client, name, priority=priority)
    async with running_core(kubeconfig):
        key = await created(client, manifest("same", scaling={"replicas": 3}))
        for name in ("small", "large"):
            await until(client, key, chosen(name), what=name)
            await client.apply(
                MODEL_DEPLOYMENT, refusal(key), manager=names.provider_manager(name), subresource="status", force=True
            )
        await until(client, key, lambda obj: all(refusal_of(obj, name) for name in ("small", "large")), what="both")
        found = await until(client, key, chosen("small"), what="the best")
        assert dig(found, "status", "message") == "too many replicas"
    await remove_leftovers(client)


async def registered(client: Client, name: str, *, priority: int) -> None:
    """A provider that is ready, of which nothing runs."""
    config = {
        "apiVersion": INFERENCE_PROVIDER_CONFIG.api_version,
        "kind": INFERENCE_PROVIDER_CONFIG.kind,
        "metadata": {"name": name},
        "spec": {
            "capabilities": {"engines": [{"name": "llamacpp", "servingModes": ["aggregated"], "cpuSupport": True}]},
            "selectionRules": [{"condition": "true", "priority": priority}],
        },
    }
    await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="test")
    alive = {"ready": True, "lastHeartbeat": format_time(datetime.now(UTC))}
    await client.apply(INFERENCE_PROVIDER_CONFIG, {**config, "status": alive}, manager="test", subresource="status")


def refusal(key: ObjectKey) -> Resource:
    """What a provider writes that refuses; the same for each one."""
    said = {"reason": "IncompatibleConfiguration", "message": "too many replicas"}
    condition = {
        "type": "ProviderCompatible",
        "status": "False",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        **said,
    }
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "status": {"phase": "Pending", "observedGeneration": 1, **said, "conditions": [condition]},
    }


async def test_a_refusal_after_something_was_made_moves_nothing(both: None, client: Client, manifest: Make) -> None:
    key = await created(client, manifest("four"))
    await until(client, key, running_at(1))
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"scaling": {"replicas": 2}}})

    def refused(obj: Resource) -> bool:
        condition = condition_of(obj, "ProviderCompatible") or {}
        return condition.get("status") == "False" and condition.get("observedGeneration") == 2

    found = await until(client, key, refused)
    assert dig(found, "status", "provider", "name") == "small"
    (toy_object,) = await client.list_all(TOY, namespace=key.namespace)
    assert labels_of(toy_object)["airunway.ai/provider"] == "small"
