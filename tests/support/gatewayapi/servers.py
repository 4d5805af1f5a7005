"""Played model servers: HTTP servers on addresses of the loopback network that stand in for pods.

Kubernetes has a Pod object for each, with that address and the condition Ready; nothing runs in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from airunway.kube import POD, Client
from airunway.resource import ObjectKey, Resource, format_time


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it reached a server."""

    method: str
    path: str
    """With the query, as it was sent."""
    headers: Mapping[str, str]
    body: bytes


@dataclass
class ModelServer:
    """Answers every request with 200 and its own name; `requests` are those that it got."""

    name: str
    address: str
    """``ip:port``."""
    requests: list[Received] = field(default_factory=list)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): text for name, text in request.headers.items()}
        self.requests.append(Received(method=request.method, path=request.raw_path, headers=headers, body=body))
        return web.json_response({"server": self.name, "path": request.raw_path})


@asynccontextmanager
async def running_server(name: str, host: str, port: int) -> AsyncIterator[ModelServer]:
    """A model server that listens while the context lasts."""
    server = ModelServer(name=name, address=f"{host}:{port}")
    app = web.Application(client_max_size=16 * 2**20)
    app.router.add_route("*", "/{path:.*}", server._answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True).start()
        yield server
    finally:
        await runner.cleanup()


async def make_pod(
    client: Client, namespace: str, name: str, *, ip: str, labels: Mapping[str, str], ready: bool = True
) -> None:
    """A Pod with this address; where there is no kubelet its status is ours to write."""
    body: Resource = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {"containers": [{"name": "server", "image": "server"}]},
    }
    await client.create(POD, body)
    await set_ready(client, ObjectKey(namespace, name), ip=ip, ready=ready)


async def set_ready(client: Client, pod: ObjectKey, *, ip: str, ready: bool) -> None:
    """Write the status of a pod."""
    now = format_time(datetime.now(UTC))
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}
    await client.merge_patch(POD, pod, {"status": status}, subresource="status")
