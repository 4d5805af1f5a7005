"""Runs the gateway part on a real API server beside a simulated gateway controller, and plays core and provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from aiohttp.abc import AbstractResolver

from airunway.api import names
from airunway.configs.resolution import CONFIG_READY, NOT_ALLOWED, resolve
from airunway.gateway.application import GatewayApplication, GatewaySettings
from airunway.gateway.caches import HTTP_ROUTE
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import CLUSTER_ROLE, DEPLOYMENT, EVENT, SERVICE, Client, Kind
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.manager import Work
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway_testing.background import in_background
from airunway_testing.eventually import Eventually
from airunway_testing.gatewayapi.kinds import FAULT, GATEWAY, gateway

__all__ = ["ASKED", "SELECTOR", "Ground", "Part", "at_once", "running_part"]

ASKED = {"enabled": True, "gatewayRef": {"name": "inference"}}
"""``spec.gateway`` of a deployment that asks for routing by the Gateway of `Ground.open_gateway`."""
SELECTOR = "airunway.ai/model-deployment=llama,airunway.ai/component=server"
"""``status.selector`` of a deployment for which a pool can be made."""

MANAGERS = (names.CORE_MANAGER, names.GATEWAY_MANAGER)


async def at_once(work: Work) -> None:
    """Lead without an election."""
    await work()


@dataclass(kw_only=True)
class Part:
    """The running part, and what a test asks about it."""

    application: GatewayApplication
    passes: Counter[ObjectKey] = field(default_factory=Counter)
    """Passes that have ended, by deployment."""

    @property
    def at_rest(self) -> bool:
        """Whether every deployment that it knows has had a pass, and none is waiting or under way."""
        queue, known = self.application._queue, self.application._deployments.keys()
        return bool(known) and all(self.passes[key] for key in known) and not queue.depth and not queue.held

    def look_again(self) -> None:
        """Ask for absent kinds now: by itself the part does so at most 30 seconds later."""
        for view in self.application._foreign._views.values():
            view.reflector.retry_now()


@asynccontextmanager
async def running_part(
    client: Client,
    *,
    namespace: str,
    further: Sequence[str] = (),
    settings: GatewaySettings | None = None,
    resolver: AbstractResolver | None = None,
    clock: Callable[[], datetime] | None = None,
) -> AsyncIterator[Part]:
    """The part in one namespace and in `further` ones, until the context ends; Gateways of the first are chosen without
    being named. `resolver` finds model servers.
    """
    caches = Caches(
        client,
        project=DeploymentProjection(MANAGERS),
        metrics=Metrics(names.GATEWAY_MANAGER, role=MetricsRole.CORE),
        namespaces=[namespace, *further],
    )
    settings = replace(settings or GatewaySettings(), home=namespace)
    part = GatewayApplication(
        client=client, caches=caches, instance="test", settings=settings, resolver=resolver, clock=clock
    )
    found, reconcile = Part(application=part), part._reconciler.reconcile

    async def counted(key: ObjectKey) -> float | None:
        try:
            return await reconcile(key)
        finally:
            found.passes[key] += 1

    part.work = tuple(replace(work, reconcile=counted) for work in part.work)
    async with in_background(part.run(at_once)):
        yield found


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

    async def open_gateway(self, name: str = "inference", **options: Any) -> Resource:
        """Make a Gateway; `options` are those of `gatewayapi.kinds.gateway`."""
        return await self.client.create(GATEWAY, gateway(name, self.namespace, **options))

    async def until_programmed(self, name: str = "inference") -> None:
        """Wait until a Gateway is programmed."""

        async def look() -> bool:
            gateway = await self.client.get(GATEWAY, ObjectKey(self.namespace, name))
            return (condition_of(gateway, "Programmed") or {}).get("status") == "True"

        await self.eventually(look)

    async def service(self, name: str = "llama") -> None:
        """The Service that `serve` names: a gateway refuses a route to one that does not exist."""
        spec = {"selector": {"app": name}, "ports": [{"port": 8000, "targetPort": 8000}]}
        metadata = {"name": name, "namespace": self.namespace}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        await self.client.create(SERVICE, body)

    async def config(self, **spec: Any) -> None:
        """The RuntimeConfig ``default`` of the namespace."""
        metadata = {"name": "default", "namespace": self.namespace}
        body = {"apiVersion": names.API_VERSION, "kind": "RuntimeConfig", "metadata": metadata, "spec": spec}
        await self.client.apply(RUNTIME_CONFIG, body, manager="tests", force=True)

    async def picker_role(self) -> None:
        """The ClusterRole of pickers, which the chart brings."""
        metadata = {"name": names.ENDPOINT_PICKER_ROLE}
        body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": []}
        await self.client.apply(CLUSTER_ROLE, body, manager="tests", force=True)

    async def picker_runs(self, name: str = "llama", *, ready: bool = True, message: str = "") -> None:
        """Write the status of the picker's Deployment, once there is one, as its controller would."""
        key = ObjectKey(self.namespace, f"{name}-epp")
        live = await self.eventually(lambda: self.client.find(DEPLOYMENT, key))
        assert isinstance(live, dict)
        conditions = [{"type": "Available", "status": "True" if ready else "False", "reason": "x", "message": message}]
        if message:
            conditions.append({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"})
            conditions[-1]["message"] = message
        count = int(ready)
        status = {
            "observedGeneration": live["metadata"]["generation"],
            "replicas": 1,
            "updatedReplicas": 1,
            "readyReplicas": count,
            "availableReplicas": count,
            "unavailableReplicas": 1 - count,
            "conditions": conditions,
        }
        await self.client.merge_patch(DEPLOYMENT, key, {"status": status}, subresource="status")

    async def fault(self, kind: Kind, name: str, fault: str) -> None:
        """Make the simulated gateway controller misbehave towards an object; an empty one ends that."""
        patch = {"metadata": {"annotations": {FAULT: fault or None}}}
        await self.client.merge_patch(kind, ObjectKey(self.namespace, name), patch)

    async def events(self, reason: str) -> list[str]:
        """The notes of all events with this reason."""
        found = await self.client.list_all(EVENT, namespace=self.namespace)
        return [event.get("note", "") for event in found if event.get("reason") == reason]

    async def versions(self, *kinds: Kind) -> dict[tuple[str, str], str]:
        """The resourceVersions of all objects of the kinds in the namespace."""
        found = {}
        for kind in kinds:
            for obj in await self.client.list_all(kind, namespace=self.namespace):
                found[kind.plural, obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]
        return found

    async def deploy(
        self,
        name: str = "llama",
        *,
        gateway: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        model: str | Resource = "meta-llama/Llama-3.1-8B-Instruct",
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
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": dict(labels or {}),
                    "annotations": dict(annotations or {}),
                },
                "spec": {
                    "model": model if isinstance(model, dict) else {"id": model},
                    "resources": {"gpu": {"count": 1}},
                    "gateway": asked,
                    **spec,
                },
            },
        )
        await self.validate(made)
        return await self.serve(name, endpoint=endpoint, selector=selector)

    async def validate(self, deployment: Resource, **more: Any) -> Resource:
        """Write what the core writes: the verdict on this generation, engine and provider, and `more` of the status."""
        condition = {
            "type": "Validated",
            "status": "True",
            "reason": "ValidationPassed",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": deployment["metadata"]["generation"],
        }
        conditions = [condition, *more.pop("conditions", ())]
        status = {"engine": {"type": "vllm"}, "provider": {"name": self.provider}, "conditions": conditions, **more}
        return await self._status(deployment["metadata"]["name"], status, manager=names.CORE_MANAGER)

    async def judge_config(self, *, allowed: bool, name: str = "llama") -> None:
        """Write the core's verdict on the RuntimeConfig ``default`` as it is now."""
        stored = await self.client.get(RUNTIME_CONFIG, ObjectKey(self.namespace, "default"))
        config = resolve("default", namespaced=stored, cluster=None).config
        assert config is not None
        live = await self.get(name)
        condition = {
            "type": CONFIG_READY,
            "status": "True" if allowed else "False",
            "reason": "ConfigFound" if allowed else NOT_ALLOWED,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": live["metadata"]["generation"],
        }
        await self.validate(live, conditions=[condition], effectiveRuntimeConfig=config.status())

    async def serve(
        self,
        name: str = "llama",
        *,
        endpoint: Mapping[str, Any] | None = None,
        selector: str = "",
        generation: int | None = None,
    ) -> Resource:
        """Write what the provider writes once the model is served (`generation`: also the condition ``Served``)."""
        where = {"service": name, "port": 8000, "targetPort": 8000} if endpoint is None else dict(endpoint)
        status: Resource = {"phase": "Running", **({"endpoint": where} if where else {})}
        if selector:
            status["selector"] = selector
        if generation is not None:
            status["conditions"] = [
                {
                    "type": "Served",
                    "status": "True",
                    "reason": "Served",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "observedGeneration": generation,
                }
            ]
        return await self._status(name, status, manager=names.provider_manager(self.provider))

    async def edit(self, name: str = "llama", **spec: Any) -> Resource:
        """Change the spec, and have the core validate it."""
        return await self.validate(await self.change(name, **spec))

    async def change(self, name: str = "llama", **spec: Any) -> Resource:
        """Change the spec; the core has not validated it yet."""
        return await self.client.merge_patch(MODEL_DEPLOYMENT, ObjectKey(self.namespace, name), {"spec": spec})

    async def annotate(self, name: str = "llama", **metadata: Any) -> None:
        """Change labels or annotations."""
        await self.client.merge_patch(MODEL_DEPLOYMENT, ObjectKey(self.namespace, name), {"metadata": metadata})

    async def delete(self, name: str = "llama") -> None:
        await self.client.delete(MODEL_DEPLOYMENT, ObjectKey(self.namespace, name))

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

    async def until_not(self, reason: str, name: str = "llama") -> Resource:
        """The deployment once GatewayReady has another reason."""

        async def look() -> Resource | None:
            live = await self.get(name)
            return live if (condition_of(live, "GatewayReady") or {}).get("reason", "") != reason else None

        found = await self.eventually(look)
        assert isinstance(found, dict)
        return found

    async def until_used(self, gateway: str, name: str = "llama") -> None:
        """Wait until the route is ready on this Gateway."""

        async def look() -> bool:
            status = dig(await self.get(name), "status", "gateway", default={})
            return status.get("gatewayName") == gateway and status.get("ready") is True

        await self.eventually(look)

    async def message(self, name: str = "llama") -> str:
        return str((await self.condition(name)).get("message", ""))

    async def until_gone(self, kind: Kind, name: str = "llama") -> None:
        """Wait until there is no such object."""

        async def look() -> bool:
            return await self.client.find(kind, ObjectKey(self.namespace, name)) is None

        await self.eventually(look)

    async def until_paths(self, *values: str, name: str = "llama") -> None:
        """Wait until the route has exactly these path matches."""

        async def look() -> bool:
            return await self.paths(name) == list(values)

        await self.eventually(look)

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
