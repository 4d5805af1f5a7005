"""What a model's life has in common on every provider, each under an account of its own; pods are real objects.

What is peculiar to a provider is beside its name (tests/vllm, tests/kaito, …); that each is stopped, comes back and
leaves nothing behind: tests/install/test_end_to_end.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.cluster_fixtures import autoscale
from tests.support.deployed_operator import deployed_operator

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, POD, SERVICE, Client, Kind
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, dig, is_deleting, uid_of
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import has_replicas, running_at
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import until
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

POOL = Kind("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools")
WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A provider, and what of it is looked at."""

    kind: Kind
    """What stays the same object, however often it is scaled."""
    touched: tuple[Kind, ...]
    """What else is touched without a change when all is at rest. (A touched Deployment is a new generation, which is
    told until its controller has seen it.)"""
    simulators: tuple[str, ...] = ()
    """Whose CRDs are installed."""
    in_place: bool = True
    """Whether another context length leaves the object."""


CASES = {
    "dynamo": Case(
        kind=(graph := Kind("nvidia.com", "v1beta1", "DynamoGraphDeployment", "dynamographdeployments")),
        touched=(graph,),
        simulators=("dynamo",),
    ),
    "kaito": Case(
        kind=(inference_set := Kind("kaito.sh", "v1beta1", "InferenceSet", "inferencesets")),
        touched=(inference_set, WORKSPACE),
        simulators=("kaito",),
        in_place=False,
    ),
    "kuberay": Case(
        kind=(ray_service := Kind("ray.io", "v1", "RayService", "rayservices")),
        touched=(ray_service,),
        simulators=("kuberay",),
    ),
    "llmd": Case(kind=DEPLOYMENT, touched=(SERVICE, POOL), simulators=("llmd", "vllm")),
    "vllm": Case(kind=DEPLOYMENT, touched=(SERVICE,)),
}


@pytest.mark.parametrize("provider", list(CASES))
async def test_scaled_by_hand_and_by_an_autoscaler_it_stays_the_same_object_and_at_rest_nothing_is_written(
    provider: str, cluster: Cluster, client: Client, namespace: str, audit_log: Path, kubectl: Kubectl
) -> None:
    case = CASES[provider]
    definitions = [crd for name in case.simulators for crd in load_simulator(name).custom_resource_definitions()]
    async with deployed_operator(
        cluster, client, namespace=namespace, audit_log=audit_log, definitions=definitions, level="cluster"
    ) as operator:
        await operator.provider(load(provider), simulated=bool(case.simulators))
        key = await operator.deploy(provider={"name": provider}, env=[{"name": "EMPTY", "value": ""}])
        running = await until(client, key, running_at(1))
        endpoint, uid = dig(running, "status", "endpoint"), uid_of(await client.get(case.kind, key))
        for count in (3, 0, 1):
            kubectl("scale", "md", key.name, "-n", key.namespace, f"--replicas={count}")
            await until(client, key, has_replicas(count, count), what=f"{count} replicas")
            generation = (await client.get(MODEL_DEPLOYMENT, key))["metadata"]["generation"]
            scaled = await until(client, key, running_at(generation), what=f"Running with {count}")
            if count:  # KubeRay stops a cluster that has no replicas, and its Service with it
                assert dig(scaled, "status", "endpoint") == endpoint, "the address stays"
            await until_selected(client, key, count)
        await autoscale(client, key, least=2, most=4)
        await until(client, key, has_replicas(2, 2), what="the autoscaler's two replicas")
        assert uid_of(await client.get(case.kind, key)) == uid, "scaled in place"
        held = await until(client, key, running_at(await operator.edit(key, engine={"contextLength": 4096})))
        assert held["spec"]["scaling"]["replicas"] == 2, "it holds against what we apply anew"
        assert has_replicas(2, 2)(held)
        assert (uid_of(await client.get(case.kind, key)) == uid) is case.in_place
        assert await operator.at_rest(MODEL_DEPLOYMENT, *case.touched) == []


async def until_selected(client: Client, key: ObjectKey, count: int) -> None:
    """Wait until the selector of the subresource ``scale``, by which an autoscaler finds pods, selects so many."""
    selector = (await client.get(MODEL_DEPLOYMENT, key, subresource="scale"))["status"]["selector"]
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await client.list_all(POD, namespace=key.namespace, label_selector=selector)
            if len([pod for pod in found if not is_deleting(pod)]) == count:
                return
            await asyncio.sleep(0.05)
