"""What a user of kubectl expects of any workload: `scale`, `wait`, and an autoscaler that finds its target."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Invalid, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, is_true
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import running_provider, until

AUTOSCALER = Kind(group="autoscaling", version="v2", kind="HorizontalPodAutoscaler", plural="horizontalpodautoscalers")

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Gone = Callable[[Kind, ObjectKey], Awaitable[None]]
Seen = Callable[[Kind, ObjectKey, Callable[[Resource], bool]], Awaitable[Resource]]


def running_at(generation: int) -> Callable[[Resource], bool]:
    def holds(deployment: Resource) -> bool:
        status = deployment.get("status") or {}
        return (status.get("phase"), status.get("observedGeneration")) == ("Running", generation)

    return holds


@pytest.mark.apiserver
async def test_kubectl_scale_changes_the_upstream_in_place_and_shows_in_the_scale_subresource(
    operator: None,
    client: Client,
    kubeconfig: Path,
    kubectl: Kubectl,
    tiny: ProviderHost,
    thing: Kind,
    manifest: Make,
    create: Create,
    gone: Gone,
) -> None:
    async with running_provider(kubeconfig, tiny):
        key = await create(manifest(provider={"name": "tiny"}))
        await until(client, key, running_at(1))
        for generation, count in enumerate((3, 0, 1), start=2):
            kubectl("scale", f"md/{key.name}", f"--replicas={count}", "-n", key.namespace)
            await until(client, key, running_at(generation))
            assert (await client.get(thing, key))["spec"]["replicas"] == count
            scale = await client.get(MODEL_DEPLOYMENT, key, subresource="scale")
            assert (scale["spec"].get("replicas", 0), scale["status"].get("replicas", 0)) == (count, count)
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)


@pytest.mark.apiserver
async def test_kubectl_wait_sees_readiness_and_deletion(
    operator: None, client: Client, kubectl: Kubectl, manifest: Make, create: Create
) -> None:
    key = await create(manifest())
    name, where = f"md/{key.name}", ("-n", key.namespace, "--timeout=60s")
    await until(client, key, running_at(1))
    for arguments in (
        ("wait", "--for=condition=Ready", name),
        ("wait", "--for=jsonpath={.status.phase}=Running", name),
        ("delete", name),  # kubectl waits until it is gone, while the operator works in this process
        ("wait", "--for=delete", name),
    ):
        await asyncio.to_thread(kubectl, *arguments, *where)
    with pytest.raises(NotFound):
        await client.get(MODEL_DEPLOYMENT, key)


def autoscaler_of(key: ObjectKey) -> Resource:
    target = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind, "name": key.name}
    utilisation = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    return {
        "apiVersion": AUTOSCALER.api_version,
        "kind": AUTOSCALER.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [{"type": "Resource", "resource": utilisation}],
        },
    }


@pytest.mark.apiserver
async def test_an_autoscaler_is_accepted_and_its_target_can_be_read_and_set_without_a_replica_count_in_the_spec(
    installed: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest())
    await client.create(AUTOSCALER, autoscaler_of(key), field_validation="Strict")
    scale = await client.get(MODEL_DEPLOYMENT, key, subresource="scale")
    assert scale["spec"]["replicas"] == 1
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"replicas": 4}}, subresource="scale", manager="hpa")
    assert (await client.get(MODEL_DEPLOYMENT, key))["spec"]["scaling"]["replicas"] == 4
    with pytest.raises(Invalid):
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"replicas": 33}}, subresource="scale", manager="hpa")


@pytest.mark.cluster
@pytest.mark.slow
async def test_the_real_autoscaler_finds_its_target(
    installed: None, client: Client, manifest: Make, create: Create, seen: Seen
) -> None:
    """Slow, because that controller learns new kinds every 30 seconds and looks every 15."""
    key = await create(manifest())
    await client.create(AUTOSCALER, autoscaler_of(key), field_validation="Strict")
    live = await seen(AUTOSCALER, key, lambda found: is_true(found, "AbleToScale"))
    able = condition_of(live, "AbleToScale") or {}
    assert able["reason"] == "SucceededGetScale"
    assert live["status"]["currentReplicas"] == 1
