"""What others put beside a deployment on a cluster: an autoscaler, a quota, nodes for a fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import NODE, Client, Kind
from airunway.resource import ObjectKey, dig, key_of
from airunway_testing.controlplane.nodes import SimulatedNode, gpu_node
from airunway_testing.eventually import PATIENCE

AUTOSCALER = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")


async def autoscale(client: Client, key: ObjectKey, *, least: int, most: int) -> None:
    """Put an autoscaler on a deployment. There are no metrics: it keeps to its bounds.

    Slow: Kubernetes' controller learns new kinds every 30 seconds and looks every 15.
    """
    target = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind, "name": key.name}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    body = {
        "apiVersion": AUTOSCALER.api_version,
        "kind": AUTOSCALER.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most, "metrics": [cpu]},
    }
    await client.create(AUTOSCALER, body)


async def gpu_quota(client: Client, namespace: str, gpus: int, *, name: str = "gpus") -> ObjectKey:
    """Let a namespace have so many GPUs; the quota's key, once it is enforced. Raises TimeoutError."""
    key = ObjectKey(namespace, name)
    body = {
        "apiVersion": RESOURCE_QUOTA.api_version,
        "kind": RESOURCE_QUOTA.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": str(gpus)}},
    }
    await client.create(RESOURCE_QUOTA, body)
    async with asyncio.timeout(PATIENCE):
        while not dig(await client.get(RESOURCE_QUOTA, key), "status", "hard"):
            await asyncio.sleep(0.05)
    return key


@asynccontextmanager
async def with_gpus(client: Client, count: int) -> AsyncIterator[None]:
    """Further simulated nodes with so many GPUs together, for as long as the context lasts."""
    async with with_nodes(client, *(gpu_node(f"further-{number}") for number in range(-(-count // 8)))):
        yield


@asynccontextmanager
async def with_nodes(client: Client, *further: SimulatedNode) -> AsyncIterator[None]:
    """Further simulated nodes, for as long as the context lasts."""
    nodes = [node.manifest() for node in further]
    for node in nodes:
        await client.create(NODE, node)
    try:
        yield
    finally:
        for node in nodes:
            await client.delete(NODE, key_of(node))
