"""A deployment that no provider runs, behind which a model server of this machine answers: pod, Service, endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.support.kubelet import Kubelet

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import ENDPOINT_SLICE, POD, SERVICE, SERVICE_ACCOUNT, Client
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.eventually import PATIENCE
from airunway_testing.model_server import ModelServer
from airunway_testing.operator import install_definitions, remove_leftovers

LABEL = "airunway.ai/model-deployment"


async def create_deployment(client: Client, key: ObjectKey, *, alone: bool = True) -> None:
    """A deployment that no provider runs: its pods are the test's. `alone`: those of other tests are removed before."""
    if alone:
        await install_definitions(client)
        await remove_leftovers(client)
    body: Resource = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
    }
    await client.create(MODEL_DEPLOYMENT, body)


async def place_pod(
    client: Client,
    kubelet: Kubelet,
    key: ObjectKey,
    name: str,
    server: ModelServer,
    *,
    labels: Mapping[str, str] | None = None,
) -> None:
    """A ready pod of the deployment, or with other labels than ours, with the server's address."""
    async with asyncio.timeout(PATIENCE):
        while not await client.find(SERVICE_ACCOUNT, ObjectKey(key.namespace, "default")):
            await asyncio.sleep(0.05)  # without its account the API server takes no pod
    container = {
        "name": "model",
        "image": "registry.example/engine:1",
        "ports": [{"name": "http", "containerPort": server.port}],
    }
    body: Resource = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": key.namespace, "labels": labels or {LABEL: key.name}},
        "spec": {"containers": [container]},
    }
    await kubelet.place(body)
    status = {
        "phase": "Running",
        "podIP": server.address,
        "podIPs": [{"ip": server.address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await client.merge_patch(POD, ObjectKey(key.namespace, name), {"status": status}, subresource="status")


async def serve(client: Client, kubelet: Kubelet, key: ObjectKey, server: ModelServer) -> None:
    """A pod, a Service and the deployment's endpoint. Returns when requests to the Service reach the server."""
    await place_pod(client, kubelet, key, f"{key.name}-0", server)
    port = {"name": "http", "port": 80, "targetPort": server.port}
    service: Resource = {
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"selector": {LABEL: key.name}, "ports": [port]},
    }
    await client.create(SERVICE, service)
    endpoint = {
        "service": key.name,
        "port": 80,
        "targetPort": server.port,
        "scheme": "http",
        "url": f"http://{key.name}.{key.namespace}.svc:80",
    }
    await write_status(client, key, endpoint=endpoint, engine={"type": "vllm"}, phase="Running", reason="Ready")
    async with asyncio.timeout(PATIENCE):
        while not await _has_endpoints(client, key):
            await asyncio.sleep(0.05)


async def _has_endpoints(client: Client, key: ObjectKey) -> bool:
    selector = f"kubernetes.io/service-name={key.name}"
    slices = await client.list_all(ENDPOINT_SLICE, namespace=key.namespace, label_selector=selector)
    return any(dig(each, "endpoints") for each in slices)


async def write_status(client: Client, key: ObjectKey, **status: object) -> None:
    """Write parts of a deployment's status."""
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"status": status}, subresource="status")
