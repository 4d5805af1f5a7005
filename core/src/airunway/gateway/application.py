"""The gateway part of the core's process: caches, queue, workers, and model names (docs/routing.md)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver

from airunway.api import names
from airunway.configs.resolution import RoutingRequest, is_refused, routing_request
from airunway.gateway.caches import HTTP_ROUTE, INFERENCE_POOL, GatewayCaches
from airunway.gateway.reconciler import RouteReconciler, serves_generation
from airunway.kube import Client, Kind, Priority, wait_until_synced
from airunway.process.base_controller import BaseController, not_synced
from airunway.process.caches import Caches, ProviderCapabilities
from airunway.process.deployment_cache import whole
from airunway.process.manager import Lead
from airunway.process.predicates import RelevantMetadata, needs_reconcile
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    key_of,
    mapping_at,
    number_at,
    text_at,
)
from airunway.routing.backends import picker_for
from airunway.routing.claims import Claims
from airunway.routing.intent import CONDITION, Flags, Probe
from airunway.status.conditions import verdict_in

log = logging.getLogger(__name__)

DEFAULT_PICKER_IMAGE = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0"
"""Image of endpoint pickers unless ``--epp-image`` names another one."""

_PROBES = 4
"""Model servers that are asked for their model name at a time."""

_WORKERS = 8


_AT_ONCE = 250
"""Deployments whose claims are computed before the loop yields to other tasks."""

_BETWEEN = 1.0
"""Least seconds between two computations of all claims: a Gateway may change often, and has many deployments."""


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """The configuration of the gateway part."""

    gateway_name: str = ""
    """``--gateway-name``: NAMESPACE/NAME or NAME; empty: detected."""
    picker_image: str = DEFAULT_PICKER_IMAGE
    """``--epp-image``."""
    picker_version: str = ""
    """``--epp-version``: the release of an image whose tag does not say it."""


class GatewayApplication:
    """The gateway part, from start to stop."""

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        instance: str = "",
        settings: GatewaySettings | None = None,
        clock: Callable[[], datetime] | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        """`resolver` finds the addresses of model servers; None: DNS."""
        settings = settings or GatewaySettings()
        self._base = BaseController(caches, component=names.GATEWAY_MANAGER, instance=instance)
        self._deployments = self._base.deployments
        self._queue = self._base.queue("gateway")
        self._known = self._base.overlay()
        self._configs = RuntimeConfigs(
            caches,
            deployments=self._deployments,
            on_change=lambda cause, users: self._base.enqueue_all(("config", cause), among=users),
        )
        self._providers = ProviderCapabilities(caches, on_change=self._on_provider)
        self._foreign = GatewayCaches(
            caches,
            notify=self._on_object,
            on_reference=self._on_reference,
            on_gateway=self._on_gateway,
            on_choice=self._on_choice,
        )
        found = picker_for(settings.picker_image, version=settings.picker_version)
        self._picker_problem = found if isinstance(found, str) else ""
        self._choice_changed = asyncio.Event()
        self._resolver = resolver
        self._http: aiohttp.ClientSession | None = None
        self._probing: dict[ObjectKey, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_PROBES)
        self._readers: dict[tuple[Kind, ObjectKey], set[ObjectKey]] = {}
        """Deployments by the HTTPRoute of httpRouteRef and the InferencePool of status.endpoint.pool."""
        self._reconciler = RouteReconciler(
            client=client,
            deployments=self._known,
            caches=self._foreign,
            configs=self._configs,
            engine_of=self._providers.engine_of,
            claims=Claims(),
            events=self._base.events,
            flags=Flags(
                gateway_name=settings.gateway_name,
                epp_image=settings.picker_image,
                epp_version=settings.picker_version,
            ),
            ask=self._ask,
            wake=lambda key: self._queue.add(key, self._base.urgency),
            clock=clock or (lambda: datetime.now(UTC)),
        )

    def unready(self) -> str | None:
        """Why the part cannot work yet, or None."""
        if (problem := not_synced([self._deployments, self._providers.configs]) or self._configs.unready()) is not None:
            return problem
        if unread := self._foreign.unread():
            return f"these kinds have not been read yet: {', '.join(unread)}"
        return self._picker_problem or None

    async def run(self, lead: Lead) -> None:
        """Watch the API server until cancelled; reconcile while leading."""
        self._known.add_listener(self._on_deployment)
        # After a restart of this part the cache is full already, and announces nothing.
        for key in list(self._deployments.keys()):
            self._note_references(key, None, self._known.get(key))
        connector = aiohttp.TCPConnector(resolver=self._resolver)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as self._http:
            try:
                await self._base.run(self._follow, lead, self._work)
            finally:
                for probe in self._probing.values():
                    probe.cancel()

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._providers.run(), name="gateway: providers")
        group.create_task(self._configs.run(), name="gateway: runtime configs")
        self._foreign.start(group)
        await wait_until_synced([self._deployments, self._providers.configs])
        await self._configs.read()
        await self._foreign.read()

    async def _work(self) -> None:
        """The leader's part. Claims come first: who is older must not depend on the order of the first passes."""
        if self._picker_problem:  # without a picker, every pool would be taken away
            log.warning("no routes are made: %s", self._picker_problem)
            await asyncio.Event().wait()
        self._reconciler.claim_all(
            [known for key in list(self._deployments.keys()) if (known := self._known.get(key)) is not None]
        )
        self._base.enqueue_all("lead")
        controller = self._base.controller(
            "gateway",
            self._queue,
            self._reconciler.reconcile,
            provider_of=lambda key: self._providers.provider_of(self._deployments.get(key)),
            workers=_WORKERS,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run(), name="workers")
            group.create_task(self._reclaim(), name="claims")

    # ------------------------------------------------------------------------------------------------ what changes

    def _on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        self._note_references(key, old, new)
        if new is None:
            if self._base.leads:  # at once: another deployment may wait for its path
                self._reconciler.forget(key)
            return
        if not self._matters(old) and not self._matters(new):
            return
        if old is not None and not needs_reconcile(
            old, new, manager=names.GATEWAY_MANAGER, echo=echo, relevant=_RELEVANT
        ):
            return
        if self._base.leads and old is None:
            # Before any pass: two that were made in the same second claim by name. Later changes claim in their pass,
            # which is rate-limited: an edit of one may concern many others.
            self._reconciler.claim(key, whole(new))
        self._base.enqueue(key, old, new)

    def _matters(self, deployment: Resource | None) -> bool:
        """Whether a pass could change anything: where no routes are served, only those who ask are answered."""
        if deployment is None:
            return False
        return (
            self._foreign.serves(HTTP_ROUTE)
            or condition_of(deployment, CONDITION) is not None
            or routing_request(deployment, self._configs.resolve(deployment).config) is RoutingRequest.REQUIRED
        )

    def _note_references(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        before, after = _references(key, old), _references(key, new)
        for gone in before - after:
            if (readers := self._readers.get(gone)) is not None:
                readers.discard(key)
                if not readers:
                    del self._readers[gone]
        for reference in after - before:
            self._readers.setdefault(reference, set()).add(key)

    def _on_object(self, deployment: ObjectKey) -> None:
        self._queue.add(deployment, Priority.URGENT if self._base.leads else Priority.BULK)

    def _on_reference(self, kind: Kind, key: ObjectKey) -> None:
        for deployment in self._readers.get((kind, key), ()):
            self._on_object(deployment)

    def _on_gateway(self, gateway: ObjectKey) -> None:
        """The status of a Gateway changed: reconcile the deployments that are routed by it."""
        self._base.enqueue_all(("gateway", gateway), lambda deployment: _may_use(deployment, gateway))

    def _on_choice(self) -> None:
        """Gateways, or the served kinds, have changed: any deployment may use another Gateway now."""
        self._choice_changed.set()

    async def _reclaim(self) -> None:
        """Compute the claims anew after a change of Gateways, then reconcile.

        A pass in between may act on claims that are partly old; the new claims wake its deployment again.
        """
        while True:
            await self._choice_changed.wait()
            self._choice_changed.clear()
            for position, key in enumerate(list(self._deployments.keys())):
                if position % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                self._reconciler.claim(key, self._known.get(key))
            self._base.enqueue_all("gateways", self._matters)
            await asyncio.sleep(_BETWEEN)

    def _on_provider(self, provider: str) -> None:
        self._base.enqueue_all(
            ("provider", provider), lambda deployment: dig(deployment, "status", "provider", "name") == provider
        )

    # ---------------------------------------------------------------------------------------------------- model names

    def _ask(self, deployment: Resource) -> None:
        """Ask the deployment's model server for its model name, in a task of its own."""
        key = key_of(deployment)
        if key in self._probing or not dig(deployment, "status", "endpoint"):
            return
        task = asyncio.create_task(self._probe(key, deployment), name=f"model name of {key}")
        self._probing[key] = task

    async def _probe(self, key: ObjectKey, deployment: Resource) -> None:
        assert self._http is not None, "probes run while the part runs"
        url = model_server_of(deployment)
        try:
            async with self._places:
                answer = await ask(self._http, url) if url else Answer(problem="status.endpoint names no Service")
        finally:
            del self._probing[key]  # before the next pass, which may have to ask for a newer generation
        generation = deployment["metadata"].get("generation", 0)
        self._reconciler.note_probe(deployment, Probe(generation=generation, name=answer.name, failure=answer.problem))
        self._queue.add(key, Priority.URGENT)


def _references(key: ObjectKey, deployment: Resource | None) -> set[tuple[Kind, ObjectKey]]:
    """What a deployment names and does not own."""
    named = (
        (HTTP_ROUTE, dig(deployment, "spec", "gateway", "httpRouteRef")),
        (INFERENCE_POOL, dig(deployment, "status", "endpoint", "pool", "name")),
    )
    return {(kind, ObjectKey(key.namespace, name)) for kind, name in named if isinstance(name, str) and name}


def _may_use(deployment: Resource, gateway: ObjectKey) -> bool:
    """Whether the deployment is routed by the Gateway, or by a route of the user's, which may have several."""
    used = dig(deployment, "status", "gateway", "gatewayNamespace"), dig(deployment, "status", "gateway", "gatewayName")
    return used == (gateway.namespace, gateway.name) or bool(dig(deployment, "spec", "gateway", "httpRouteRef"))


def reads_of_status(deployment: Resource) -> object:
    """What a pass reads of the status that others write; their writes to anything else bring no pass."""
    status = deployment.get("status") or {}
    return (
        status.get("endpoint"),
        status.get("selector"),
        status.get("engine"),
        dig(status, "provider", "name"),
        status.get("phase") in ("Running", "Degraded"),
        serves_generation(deployment),
        verdict_in(deployment),
        status.get("effectiveRuntimeConfig"),
        is_refused(deployment),
    )


_RELEVANT = RelevantMetadata(labels=lambda _: True, annotations=lambda _: True, status=reads_of_status)


# ---------------------------------------------------------------------------------- asking a model server for its name


_TIMEOUT = 5.0
"""Seconds for the whole request (docs/routing.md)."""

_MOST = 2**20
"""Bytes of an answer that are read."""

_LONGEST = 2048
"""Characters of a model name (`status.gateway.modelName`)."""


_SERVICE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def model_server_of(deployment: Resource) -> str:
    """The address of the Service in ``status.endpoint``, in the deployment's namespace; empty without one.

    Not ``endpoint.url``: a provider writes it, and the core would send a request to any address for it.
    """
    endpoint = mapping_at(deployment, "status", "endpoint")
    service, port = text_at(endpoint, "service"), number_at(endpoint, "port")
    if not _SERVICE.fullmatch(service) or not 0 < port < 65536:
        return ""
    scheme = "https" if text_at(endpoint, "scheme") == "https" else "http"
    return f"{scheme}://{service}.{key_of(deployment).namespace}.svc:{port}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a model server to ``/v1/models``."""

    name: str = ""
    """The first model's id; empty if there is none."""
    problem: str = ""
    """Why there is no name, as the end of a sentence; empty if there is one."""


async def ask(session: aiohttp.ClientSession, url: str) -> Answer:
    """Ask the server at `url` (``http://llama.ml.svc:8000``) for the id of its first model. Never raises for what the
    server does.
    """
    where = f"{url.rstrip('/')}/v1/models"
    try:
        async with asyncio.timeout(_TIMEOUT), session.get(where, allow_redirects=False) as response:
            if response.status != 200:
                return Answer(problem=f"{where} answered {response.status}")
            body = b""
            while chunk := await response.content.read(_MOST + 1 - len(body)):
                body += chunk
                if len(body) > _MOST:
                    return Answer(problem=f"{where} answered with more than 1 MiB")
    except TimeoutError:
        return Answer(problem=f"{where} did not answer within {_TIMEOUT:.0f} s")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return Answer(problem=f"{where} cannot be reached ({type(error).__name__})")
    return _name_in(body, where)


def _name_in(body: bytes, where: str) -> Answer:
    try:
        models = dig(orjson.loads(body), "data")
    except orjson.JSONDecodeError:
        return Answer(problem=f"{where} did not answer with JSON")
    first = models[0] if isinstance(models, list) and models else None
    name = dig(first, "id") if isinstance(first, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
        return Answer(problem=f"{where} named no model")
    return Answer(name=name)
