"""What Flux, kubectl and others see of a deployment, from the moment it is made until it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from tests.support.kstatus import Health, health

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Reflector
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true
from airunway_testing.eventually import PATIENCE
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]

KAITO: Resource = {"name": "kaito"}


async def test_nobody_takes_a_deployment_for_ready_before_it_is(
    manifest: Make, client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    """Every version of the object that a watch shows, over its whole life."""
    key = ObjectKey(namespace, "life")
    seen: list[Resource] = []
    watched = Reflector(client, MODEL_DEPLOYMENT, namespace=namespace)
    watched.add_handler(lambda _key, _old, new: seen.append(new) if new is not None else None)
    watching = asyncio.create_task(watched.run())
    await watched.synced.wait()
    made = await client.create(MODEL_DEPLOYMENT, manifest(key.name, provider=KAITO))
    assert health(made) is Health.IN_PROGRESS  # no controller runs yet
    assert made["status"]["phase"] == "Pending"
    async with running_core(kubeconfig):
        await until(client, key, lambda found: condition_of(found, "Validated") is not None)
        async with running_simulator(kubeconfig, kaito, level="api"), running_provider(kubeconfig, kaito):
            await until(client, key, lambda found: is_true(found, "Ready"))
            await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"image": "ghcr.io/sozercan/llama-cpp:next"}})
            served = await until(
                client,
                key,
                lambda found: is_true(found, "Ready") and dig(found, "status", "observedGeneration") == 2,
                what="the second generation",
            )
            await client.delete(MODEL_DEPLOYMENT, key)
            async with asyncio.timeout(PATIENCE):
                while watched.get(key) is not None:
                    await asyncio.sleep(0.02)
    watching.cancel()
    for obj in seen:
        current = health(obj) is Health.CURRENT
        told = condition_of(obj, "Ready") or {}
        generation = obj["metadata"]["generation"]
        serves = (told.get("status"), told.get("observedGeneration")) == ("True", generation)
        assert current == (serves and not dig(obj, "metadata", "deletionTimestamp")), obj["status"]
        assert not current or obj["status"]["phase"] == "Running"
    course = [verdict for verdict, _ in groupby(health(obj) for obj in seen)]
    waits, serves_it = Health.IN_PROGRESS, Health.CURRENT
    assert course == [waits, serves_it, waits, serves_it, Health.TERMINATING]
    record = condition_of(served, "Served") or {}
    assert (record["status"], record["observedGeneration"]) == ("True", 2)


async def test_kubectl_shows_and_waits_for_a_deployment_that_no_controller_has_seen(
    manifest: Make, client: Client, namespace: str, installed: None, kubectl: Kubectl
) -> None:
    await client.create(MODEL_DEPLOYMENT, manifest("unseen", provider=KAITO))
    row = kubectl("get", "md", "unseen", "-o", "wide", "-n", namespace).stdout
    assert "Pending" in row
    assert "WaitingForController" in row
    wanted = "jsonpath={.status.conditions[?(@.type=='Ready')].status}=Unknown"
    kubectl("wait", f"--for={wanted}", "md/unseen", "-n", namespace, "--timeout=10s")
    await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, "unseen"))
