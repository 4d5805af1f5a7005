"""The simulated gateway controller: it writes the statuses of Gateways, HTTPRoutes and InferencePools.

    async with running_gateway_controller(kubeconfig):
        ...

The kinds may be served later, or go while it runs: it looks for those that are missing twice a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from airunway.kube import (
    NAMESPACE,
    SERVICE,
    Client,
    Conflict,
    Controller,
    Forbidden,
    Kind,
    NotFound,
    Reflector,
    WorkQueue,
    load_config,
    strip_managed_fields,
    user_agent_of,
)
from airunway.resource import ObjectKey, Resource, format_time, key_of
from airunway_testing.background import in_background
from airunway_testing.gatewayapi.binding import (
    Fault,
    World,
    backend_keys,
    class_status,
    fault_of,
    gateway_status,
    parent_keys,
    pool_status,
    route_status,
)
from airunway_testing.gatewayapi.kinds import (
    CLASS_NAME,
    GATEWAY,
    GATEWAY_CLASS,
    GATEWAY_GROUP,
    HTTP_ROUTE,
    INFERENCE_POOL,
    MANAGER,
)
from airunway_testing.simulators.registry import Level, Simulator
from airunway_testing.simulators.writes import status_patch

FLAP = 0.2
"""Seconds that a flapping object stays in one of its two states."""

_LOOK = 0.5
"""Seconds between two looks for kinds that are not served."""

_Subject: TypeAlias = tuple[str, ObjectKey]
"""What a pass is about: the kind's name and the object's key."""


class GatewayController:
    """Writes statuses until cancelled.

    `on_change` is called after every change of what it has read (the data plane follows it); `extra` are further kinds
    to read for it.
    """

    def __init__(
        self,
        client: Client,
        *,
        addresses: Sequence[str] = ("127.0.0.1",),
        extra: Sequence[Kind] = (),
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._client, self._addresses, self._on_change = client, tuple(addresses), on_change
        kinds = (GATEWAY_CLASS, GATEWAY, HTTP_ROUTE, INFERENCE_POOL, SERVICE, NAMESPACE, *extra)
        self.caches = {kind.kind: Reflector(client, kind, project=strip_managed_fields()) for kind in kinds}
        self._queue: WorkQueue[_Subject] = WorkQueue()
        self._controller = Controller("gateway", self._queue, self._pass, workers=8)
        routes = self.caches[HTTP_ROUTE.kind]
        self._by_gateway = routes.add_index(parent_keys)
        self._by_backend = routes.add_index(backend_keys)
        self._by_namespace = routes.add_index(lambda route: [key_of(route).namespace])

    @property
    def world(self) -> World:
        """What the controller has read by now."""
        pools = self.caches[INFERENCE_POOL.kind]
        return World(
            classes=self.caches[GATEWAY_CLASS.kind],
            gateways=self.caches[GATEWAY.kind],
            namespaces=self.caches[NAMESPACE.kind],
            services=self.caches[SERVICE.kind],
            pools=pools,
            has_pools=pools.synced.is_set() and not pools.missing,
            addresses=self._addresses,
            flipped=int(asyncio.get_running_loop().time() / FLAP) % 2 == 1,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.caches.values():
                group.create_task(reflector.run(), name=f"gateway-{reflector.kind.plural}")
            group.create_task(self._look_for_missing(), name="gateway-missing")
            for reflector in self.caches.values():
                while not (reflector.synced.is_set() or reflector.missing):
                    await asyncio.sleep(0.01)
            for kind, reflector in self.caches.items():
                reflector.add_handler(self._handler(kind))
            group.create_task(self._controller.run(), name="gateway-controller")

    async def _look_for_missing(self) -> None:
        served = {kind: not reflector.missing for kind, reflector in self.caches.items()}
        while True:
            await asyncio.sleep(_LOOK)
            for kind, reflector in self.caches.items():
                if reflector.missing:
                    reflector.retry_now()
                elif not served[kind]:
                    self._add_routes(self.caches[HTTP_ROUTE.kind].values())
                served[kind] = not reflector.missing

    # --------------------------------------------------------------------------------------- what a change concerns

    def _handler(self, kind: str) -> Callable[[ObjectKey, Resource | None, Resource | None], None]:
        concerns: Mapping[str, Callable[[ObjectKey, Resource | None, Resource | None], None]] = {
            GATEWAY_CLASS.kind: self._on_class,
            GATEWAY.kind: self._on_gateway,
            HTTP_ROUTE.kind: self._on_route,
            INFERENCE_POOL.kind: self._on_pool,
            SERVICE.kind: self._on_service,
            NAMESPACE.kind: self._on_namespace,
        }
        concern = concerns.get(kind)

        def handle(key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
            if concern is not None:
                concern(key, old, new)
            if self._on_change is not None:
                self._on_change()

        return handle

    def _on_class(self, key: ObjectKey, _old: Resource | None, _new: Resource | None) -> None:
        self._queue.add((GATEWAY_CLASS.kind, key))
        for gateway in self.caches[GATEWAY.kind]:
            self._on_gateway(gateway, None, None)

    def _on_gateway(self, key: ObjectKey, _old: Resource | None, _new: Resource | None) -> None:
        self._queue.add((GATEWAY.kind, key))
        self._add_routes(self._by_gateway.get(key))

    def _on_route(self, _key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        self._add_routes(route for route in (old, new) if route is not None)

    def _on_pool(self, key: ObjectKey, _old: Resource | None, _new: Resource | None) -> None:
        self._queue.add((INFERENCE_POOL.kind, key))
        self._add_routes(self._by_backend.get((INFERENCE_POOL.kind, key)))

    def _on_service(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        self._add_routes(self._by_backend.get((SERVICE.kind, key)))
        if old is None or new is None:  # it may be a picker's
            for pool in self.caches[INFERENCE_POOL.kind]:
                if pool.namespace == key.namespace:
                    self._queue.add((INFERENCE_POOL.kind, pool))

    def _on_namespace(self, key: ObjectKey, _old: Resource | None, _new: Resource | None) -> None:
        self._add_routes(self._by_namespace.get(key.name))

    def _add_routes(self, routes: Iterable[Resource]) -> None:
        """The routes, and what counts or names them."""
        for route in routes:
            self._queue.add((HTTP_ROUTE.kind, key_of(route)))
            for gateway in parent_keys(route):
                self._queue.add((GATEWAY.kind, gateway))
            for kind, backend in backend_keys(route):
                if kind == INFERENCE_POOL.kind:
                    self._queue.add((kind, backend))

    # ------------------------------------------------------------------------------------------------------ passes

    async def _pass(self, subject: _Subject) -> float | None:
        name, key = subject
        obj = self.caches[name].get(key)
        if obj is None:
            return None
        world, now = self.world, format_time(datetime.now(UTC))
        match name:
            case GATEWAY_CLASS.kind:
                kind, status, related = GATEWAY_CLASS, class_status(obj, now), [obj]
            case GATEWAY.kind:
                status = gateway_status(obj, self._by_gateway.get(key), world, now)
                kind, related = GATEWAY, [obj]
            case HTTP_ROUTE.kind:
                gateways = [world.gateways.get(each) for each in parent_keys(obj)]
                kind, status, related = HTTP_ROUTE, route_status(obj, world, now), [obj, *filter(None, gateways)]
            case _:
                routes = self._by_backend.get((name, key))
                kind, status, related = INFERENCE_POOL, pool_status(obj, routes, world, now), []
        if status is not None and status != (obj.get("status") or {}):
            try:
                await self._client.merge_patch(
                    kind, key, status_patch(obj, status), subresource="status", manager=MANAGER
                )
            except NotFound:
                return None
            except (Conflict, Forbidden):  # another client wrote, or the namespace is being deleted
                return 0.05
        return FLAP / 2 if any(fault_of(each) is Fault.FLAPPING for each in related) else None


@asynccontextmanager
async def running_gateway_controller(
    kubeconfig: Path, *, addresses: Sequence[str] = ("127.0.0.1",)
) -> AsyncIterator[GatewayController]:
    """The simulated controller for as long as the context lasts; the CRDs may be installed before or later."""
    config = load_config(kubeconfig=kubeconfig)
    async with Client(config, user_agent=user_agent_of("simulated-gateway")) as client:
        controller = GatewayController(client, addresses=addresses)
        async with in_background(controller.run()):
            yield controller


async def remove_gateways(client: Client) -> None:
    """Delete every route, pool and Gateway, which earlier tests on the same API server left, and our GatewayClass."""
    for kind in (HTTP_ROUTE, INFERENCE_POOL, GATEWAY):
        with suppress(NotFound):  # the kind is not served
            for obj in await client.list_all(kind):
                with suppress(NotFound):
                    await client.delete(kind, key_of(obj))
    with suppress(NotFound):
        await client.delete(GATEWAY_CLASS, ObjectKey("", CLASS_NAME))


def _program(client: Client, level: Level, scenario: str) -> GatewayController:
    return GatewayController(client)


simulator = Simulator(
    name="gateway",
    kinds=((GATEWAY_GROUP, "Gateway"), (GATEWAY_GROUP, "HTTPRoute")),
    package="airunway_testing.gatewayapi",
    program=_program,
)
