"""An autoscaled model on a cluster, with KEDA's own CRD of two releases; KEDA itself is played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.deployed_operator import edit
from tests.vllm.conftest import BASE

from airunway.kinds import CLUSTER_RUNTIME_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, Client, Kind, NotFound
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import has_replicas, reason_is
from airunway_testing.operator import Deploy, event_about, gone, install_definitions, remove_definition, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SCALED_OBJECT = Kind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
CONDITION = "AutoscalerReady"
AUTOSCALING: Resource = {"maxReplicas": 4, "target": 16}


@pytest.fixture(params=["v2.18.0", "v2.20.0"])
async def keda(request: pytest.FixtureRequest, recordings: Path, client: Client) -> AsyncIterator[Resource]:
    """The CRD of one release, installed; gone after the test."""
    path = recordings / "upstream-crds" / "keda" / request.param / "scaledobjects.yaml"
    crd: Resource = next(doc for doc in yaml.load_all(path.read_text("utf-8"), Loader=yaml.CSafeLoader) if doc)
    await install_definitions(client, [crd])
    yield crd
    await remove_definition(client, key_of(crd).name)


@pytest.fixture
async def prometheus(client: Client) -> AsyncIterator[None]:
    """A ClusterRuntimeConfig that names a Prometheus."""
    await install_definitions(client)
    key = ObjectKey("", "default")
    body = {
        "apiVersion": CLUSTER_RUNTIME_CONFIG.api_version,
        "kind": CLUSTER_RUNTIME_CONFIG.kind,
        "metadata": {"name": key.name},
        "spec": {"autoscaling": {"prometheus": {"serverAddress": "http://prometheus.monitoring.svc:9090"}}},
    }
    await client.create(CLUSTER_RUNTIME_CONFIG, body)
    yield
    await client.delete(CLUSTER_RUNTIME_CONFIG, key)


async def scaled_object(client: Client, key: ObjectKey) -> Resource:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await client.get(SCALED_OBJECT, key)
            except NotFound:
                await asyncio.sleep(0.1)


async def keda_says(client: Client, key: ObjectKey, **status: Any) -> None:
    """What KEDA writes into the status of the ScaledObject."""
    entries = [{"type": "Ready", "status": "True", "reason": "ScaledObjectReady", "message": "is defined correctly"}]
    body = {"status": {"conditions": entries, **status}}
    await client.merge_patch(SCALED_OBJECT, key, body, subresource="status", manager="keda")


async def scale(client: Client, key: ObjectKey, replicas: int) -> None:
    """What KEDA and the HorizontalPodAutoscaler do."""
    body = {"spec": {"replicas": replicas}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, body, subresource="scale", manager="kube-controller-manager")


def written_by_us(obj: Resource) -> Sequence[object]:
    """The times of our writes of an object, by manager and subresource."""
    entries = dig(obj, "metadata", "managedFields", default=[])
    return [(e["manager"], e.get("time")) for e in entries if str(e["manager"]).startswith("airunway-")]


async def test_replicas_follow_the_scale_and_pods_stay(
    keda: Resource, prometheus: None, deploy: Deploy, client: Client
) -> None:
    key = await deploy(scaling={"autoscaling": AUTOSCALING})
    own = await scaled_object(client, key)
    assert own["spec"]["scaleTargetRef"]["name"] == key.name
    await until(client, key, reason_is(CONDITION, "AutoscalerPending"))
    await keda_says(client, key, lastActiveTime="2026-11-28T12:00:00Z")
    settled = await until(client, key, reason_is(CONDITION, "Scaling"))
    assert dig(settled, "status", "phase") == "Running"
    first = await client.get(DEPLOYMENT, key)
    # A look of KEDA at the load brings no write of ours.
    for second in range(3):
        await keda_says(client, key, lastActiveTime=f"2026-11-28T12:00:1{second}Z")
    await asyncio.sleep(1.0)
    assert written_by_us(await client.get(MODEL_DEPLOYMENT, key)) == written_by_us(settled)
    await scale(client, key, 3)
    grown = await until(client, key, has_replicas(3, 3))
    assert dig(grown, "status", "revision", "hash") == dig(settled, "status", "revision", "hash")
    # Below the floor nothing is stopped, whoever writes it.
    await scale(client, key, 0)
    await until(client, key, has_replicas(1, 1))
    last = await client.get(DEPLOYMENT, key)
    assert last["metadata"]["uid"] == first["metadata"]["uid"]
    assert last["spec"]["template"] == first["spec"]["template"]
    # The field is edited and taken away: the ScaledObject alone changes.
    generation = last["metadata"]["generation"]
    await edit(client, key, {"scaling": {"autoscaling": {**AUTOSCALING, "maxReplicas": 8}}})
    async with asyncio.timeout(PATIENCE):
        while (await client.get(SCALED_OBJECT, key))["spec"]["maxReplicaCount"] != 8:
            await asyncio.sleep(0.1)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"scaling": {"autoscaling": None, "replicas": 1}}})
    await gone(client, SCALED_OBJECT, key)
    bare = await until(client, key, lambda obj: condition_of(obj, CONDITION) is None)
    assert dig(bare, "status", "phase") == "Running"
    assert (await client.get(DEPLOYMENT, key))["metadata"]["generation"] == generation


async def test_the_last_replica_goes_once_the_gateway_part_says_that_requests_are_held(
    keda: Resource, prometheus: None, deploy: Deploy, client: Client
) -> None:
    key = await deploy(scaling={"autoscaling": {**AUTOSCALING, "minReplicas": 0}})
    assert (await scaled_object(client, key))["spec"]["minReplicaCount"] == 1
    await keda_says(client, key)
    await until(client, key, reason_is(CONDITION, "StaysAtOne"))
    gateway = {"ready": True, "gatewayName": "inference", "holdsRequests": True}
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"status": {"gateway": gateway}}, subresource="status")
    await until(client, key, reason_is(CONDITION, "Scaling"))
    assert (await scaled_object(client, key))["spec"]["minReplicaCount"] == 0
    await scale(client, key, 0)
    idle = await until(client, key, has_replicas(0, 0))
    assert dig(idle, "status", "selector"), "without it a HorizontalPodAutoscaler gives up"
    assert dig(idle, "status", "endpoint", "service") == key.name
    await scale(client, key, 1)
    await until(client, key, has_replicas(1, 1))


async def test_what_keda_lacks_is_said_and_replicas_stay(
    keda: Resource, prometheus: None, deploy: Deploy, client: Client
) -> None:
    key = await deploy(scaling={"autoscaling": AUTOSCALING})
    await scaled_object(client, key)
    await keda_says(client, key)
    await until(client, key, reason_is(CONDITION, "Scaling"))
    await event_about(client, key, "ScaledObjectReady")
    await scale(client, key, 2)
    await until(client, key, has_replicas(2, 2))
    await remove_definition(client, key_of(keda).name)
    found = await until(client, key, reason_is(CONDITION, "AutoscalerNotInstalled"))
    assert "install it" in (condition_of(found, CONDITION) or {})["message"]
    await event_about(client, key, "AutoscalerNotReady")
    assert dig(found, "status", "replicas", "summary") == "2/2"
    assert dig(found, "spec", "scaling", "replicas") == 2
    # It comes back without a word of ours.
    await install_definitions(client, [keda])
    await scaled_object(client, key)


async def test_a_scaled_object_of_a_user_is_left_alone_and_named(
    keda: Resource, prometheus: None, deploy: Deploy, client: Client, namespace: str
) -> None:
    name = "taken"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "theirs"}
    trigger = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "50"}}
    theirs = {
        "apiVersion": SCALED_OBJECT.api_version,
        "kind": SCALED_OBJECT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": target, "triggers": [trigger]},
    }
    made = await client.create(SCALED_OBJECT, theirs)
    body = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**BASE, "scaling": {"autoscaling": AUTOSCALING}},
    }
    await client.create(MODEL_DEPLOYMENT, body)
    key = ObjectKey(namespace, name)
    found = await until(client, key, reason_is(CONDITION, "ResourceConflict"))
    assert f"ScaledObject {key}" in (condition_of(found, CONDITION) or {})["message"]
    await until(client, key, has_replicas(1, 1))  # the model runs all the same
    assert (await client.get(SCALED_OBJECT, key))["spec"] == made["spec"]
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)
