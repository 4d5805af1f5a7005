"""Runs the gateway part on a real API server beside a simulated gateway controller, and plays core and provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from airunway.api import names
from airunway.gateway.application import GatewayApplication, GatewaySettings
from airunway.gateway.kinds import HTTP_ROUTE
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import EVENT, Client
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.metrics import Metrics, MetricsRole
from airunway.process.supervisor import Work
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway_testing.gatewayapi.kinds import GATEWAY, gateway
from airunway_testing.waiting import Eventually

__all__ = ["Ground", "at_once", "running_part"]

MANAGERS = (names.CORE_MANAGER, names.GATEWAY_MANAGER)


async def at_once(work: Work) -> None:
    """Lead without an election."""
    await work()


@asynccontextmanager
async def running_part(
    client: Client, *, namespace: str, settings: GatewaySettings | None = None
) -> AsyncIterator[GatewayApplication]:
    """The part in one namespace, until the context ends."""
    caches = Caches(
        client,
        project=DeploymentProjection(MANAGERS),
        metrics=Metrics(names.GATEWAY_MANAGER, role=MetricsRole.CORE),
        namespaces=[namespace],
    )
    part = GatewayApplication(client=client, caches=caches, instance="test", settings=settings)
    task = asyncio.create_task(part.run(at_once))
    try:
        yield part
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass(kw_only=True)
class Ground:
    """One namespace with a Gateway, in which deployments are made as core and provider would leave them."""

    client: Client
    namespace: str
    eventually: Eventually
    provider: str

    async def provide(self, *, path_routing: bool = True, **gateway_capabilities: Any) -> None:
        """Register the provider, with one engine."""
        engine: Resource = {
            "name": "vllm",
            "servingModes": ["aggregated"],
            "gpuSupport": True,
            "pathRouting": path_routing,
            "gateway": gateway_capabilities,
        }
        config = {
            "apiVersion": names.API_VERSION,
            "kind": "InferenceProviderConfig",
            "metadata": {"name": self.provider},
            "spec": {"capabilities": {"engines": [engine]}},
        }
        await self.client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="tests", force=True)

    async def open_gateway(self, name: str = "inference") -> Resource:
        return await self.client.create(GATEWAY, gateway(name, self.namespace))

    async def deploy(
        self,
        name: str = "llama",
        *,
        gateway: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        model: str = "meta-llama/Llama-3.1-8B-Instruct",
        endpoint: Mapping[str, Any] | None = None,
        selector: str = "",
        **spec: Any,
    ) -> Resource:
        """A deployment that the core has validated and the provider serves."""
        asked = {"gatewayRef": {"name": "inference"}} if gateway is None else dict(gateway)
        made = await self.client.create(
            MODEL_DEPLOYMENT,
            {
                "apiVersion": names.API_VERSION,
                "kind": "ModelDeployment",
                "metadata": {"name": name, "namespace": self.namespace, "labels": dict(labels or {})},
                "spec": {"model": {"id": model}, "resources": {"gpu": {"count": 1}}, "gateway": asked, **spec},
            },
        )
        await self.validate(made)
        return await self.serve(name, endpoint=endpoint, selector=selector)

    async def validate(self, deployment: Resource) -> Resource:
        """Write what the core writes: the verdict on this generation, engine and provider."""
        condition = {
            "type": "Validated",
            "status": "True",
            "reason": "ValidationPassed",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": deployment["metadata"]["generation"],
        }
        status = {"engine": {"type": "vllm"}, "provider": {"name": self.provider}, "conditions": [condition]}
        return await self._status(deployment["metadata"]["name"], status, manager=names.CORE_MANAGER)

    async def serve(
        self, name: str = "llama", *, endpoint: Mapping[str, Any] | None = None, selector: str = ""
    ) -> Resource:
        """Write what the provider writes once the model is served."""
        status: Resource = {
            "phase": "Running",
            "endpoint": dict(endpoint) if endpoint is not None else {"service": name, "port": 8000, "targetPort": 8000},
        }
        if selector:
            status["selector"] = selector
        return await self._status(name, status, manager=names.provider_manager(self.provider))

    async def edit(self, name: str = "llama", **spec: Any) -> Resource:
        """Change the spec, and have the core validate it."""
        live = await self.get(name)
        changed = await self.client.replace(MODEL_DEPLOYMENT, {**live, "spec": {**live["spec"], **spec}})
        return await self.validate(changed)

    async def _status(self, name: str, status: Resource, *, manager: str) -> Resource:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": self.namespace},
            "status": status,
        }
        return await self.client.apply(MODEL_DEPLOYMENT, body, manager=manager, force=True, subresource="status")

    async def get(self, name: str = "llama") -> Resource:
        return await self.client.get(MODEL_DEPLOYMENT, ObjectKey(self.namespace, name))

    async def route(self, name: str = "llama") -> Resource | None:
        return await self.client.find(HTTP_ROUTE, ObjectKey(self.namespace, name))

    async def condition(self, name: str = "llama") -> Resource:
        return condition_of(await self.get(name), "GatewayReady") or {}

    async def until(self, reason: str, name: str = "llama") -> Resource:
        """The deployment once GatewayReady has this reason; an empty one: once there is no such condition."""

        async def look() -> Resource | None:
            live = await self.get(name)
            return live if (condition_of(live, "GatewayReady") or {}).get("reason", "") == reason else None

        found = await self.eventually(look)
        assert isinstance(found, dict)
        return found

    async def event(self, reason: str) -> Resource:
        """The first event of this reason in the namespace, once there is one."""

        async def look() -> Resource | None:
            events = await self.client.list_all(EVENT, namespace=self.namespace)
            return next((event for event in events if event.get("reason") == reason), None)

        found = await self.eventually(look)
        assert isinstance(found, dict)
        return found

    async def paths(self, name: str = "llama") -> list[str]:
        """The values of all path matches of the route."""
        rules = dig(await self.route(name), "spec", "rules", default=[])
        return [match["path"]["value"] for rule in rules for match in rule["matches"]]
