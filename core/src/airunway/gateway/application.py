"""The gateway part of the core's process: caches, queue, workers, and model names (docs/routing.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from aiohttp.abc import AbstractResolver

from airunway.api import names
from airunway.configs.resolution import RoutingRequest, is_refused, routing_request
from airunway.gateway.caches import HTTP_ROUTE, INFERENCE_POOL, GatewayCaches
from airunway.gateway.model_names import ModelNames
from airunway.gateway.reconciler import RouteReconciler, serves, serves_generation
from airunway.kube import Client, Kind, Priority
from airunway.kube.packing import unpacked
from airunway.process.caches import Caches, ProviderCapabilities
from airunway.process.config_policy import NamespaceGrants
from airunway.process.manager import Lead
from airunway.process.part import Part, Work
from airunway.process.predicates import Reads, RelevantMetadata, needs_reconcile
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of
from airunway.routing.backends import picker_for
from airunway.routing.claims import Claims
from airunway.routing.groups import answers_in_group
from airunway.routing.intent import CONDITION, Flags, Probe
from airunway.routing.rights import MODEL_NAMES, PATH_PREFIXES, RouteRights, granted_by
from airunway.status.conditions import verdict_in

log = logging.getLogger(__name__)

DEFAULT_PICKER_IMAGE = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0"
"""Image of endpoint pickers unless ``--epp-image`` names another one."""

_AT_ONCE = 250
"""Deployments whose claims are computed before the loop yields to other tasks."""

_BETWEEN = 1.0
"""Least seconds between two computations of all claims: a Gateway may change often, and has many deployments."""


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """The configuration of the gateway part."""

    gateway_name: str = ""
    """``--gateway-name``: NAMESPACE/NAME; empty: detected."""
    gateway_namespaces: tuple[str, ...] = ()
    """``--gateway-namespaces``: where Gateways are detected; empty: in `home`, and in namespaces with the label."""
    home: str = ""
    """Our own namespace."""
    picker_image: str = DEFAULT_PICKER_IMAGE
    """``--epp-image``."""
    picker_version: str = ""
    """``--epp-version``: the release of an image whose tag does not say it."""


class GatewayApplication(Part):
    """The gateway part."""

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
        super().__init__(caches, component=names.GATEWAY_MANAGER, instance=instance)
        settings = settings or GatewaySettings()
        self._queue = self._base.queue("gateway")
        self._known = self._base.overlay()
        self._known.add_listener(self._on_deployment)
        self._readers = self._deployments.add_index(references)
        self._configs = RuntimeConfigs(
            caches,
            deployments=self._deployments,
            on_change=lambda cause, users: self._base.enqueue_all(("config", cause), among=users, damped=True),
        )
        self._providers = ProviderCapabilities(caches, on_change=self._on_provider)
        self._choice_changed = asyncio.Event()
        self._foreign = GatewayCaches(
            caches,
            notify=self._on_object,
            on_reference=self._on_reference,
            on_gateway=self._on_gateway,
            on_choice=self._on_choice,
            trusted=settings.gateway_namespaces or (settings.home,),
            by_label=not (settings.gateway_namespaces or settings.gateway_name),
        )
        self._grants = caches.one(NamespaceGrants)
        self._grants.listeners[names.GATEWAY_MANAGER] = lambda _namespace: self._on_choice()
        self._granted = granted_by(())
        self._names = ModelNames(note=self._on_name, resolver=resolver)
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
            ask=self._names.ask,
            rights_of=self._rights_of,
            wake=lambda key: self._queue.add(key, self._base.urgency),
            clock=clock or (lambda: datetime.now(UTC)),
        )
        found = picker_for(settings.picker_image, version=settings.picker_version)
        self._picker_problem = found if isinstance(found, str) else ""
        self.sources = (self._providers, self._configs, self._foreign)
        if self._picker_problem:  # without a picker, every pool would be taken away
            self.tasks = {"no routes": self._make_no_routes}
            return
        self.tasks = {"claims": self._reclaim, "model names": self._names.run}
        self.work = (
            Work(
                "gateway",
                self._reconciler.reconcile,
                workers=8,
                provider_of=lambda key: self._providers.provider_of(self._deployments.get(key)),
                begin=self._begin,
            ),
        )

    def unready(self) -> str | None:
        """Why the part cannot work yet, or None."""
        return super().unready() or self._picker_problem or None

    async def run(self, lead: Lead) -> None:
        """Watch the API server until cancelled; reconcile while leading."""
        self._configs.cluster.add_handler(self._on_cluster_config)
        await super().run(lead)

    async def _make_no_routes(self) -> None:
        log.warning("no routes are made: %s", self._picker_problem)
        await asyncio.Event().wait()

    def _begin(self) -> None:
        """Claims come first: who is older must not depend on the order of the first passes."""
        self._reconciler.claim_all(
            [known for key in list(self._deployments.keys()) if (known := self._known.get(key)) is not None]
        )
        self._base.enqueue_all("lead")

    # ------------------------------------------------------------------------------------------------ what changes

    def _on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if new is None:
            if self._base.leads:  # at once: another deployment may wait for its path
                self._reconciler.forget(key)
            return
        if not self._matters(old) and not self._matters(new):
            return
        if old is not None and not needs_reconcile(
            old, new, manager=names.GATEWAY_MANAGER, echo=echo, relevant=RELEVANT
        ):
            return
        if self._base.leads and old is None:
            # Before any pass: two that were made in the same second claim by name. Later changes claim in their pass,
            # which is rate-limited: an edit of one may concern many others.
            self._reconciler.claim(key, unpacked(new))
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

    def _on_object(self, deployment: ObjectKey) -> None:
        self._queue.add(deployment, Priority.URGENT if self._base.leads else Priority.BULK)

    def _on_reference(self, kind: Kind, key: ObjectKey) -> None:
        for deployment in self._readers.get((kind, key)):
            self._on_object(key_of(deployment))

    def _on_gateway(self, gateway: ObjectKey) -> None:
        """The status of a Gateway changed: reconcile the deployments that are routed by it."""
        self._base.enqueue_all(("gateway", gateway), lambda deployment: _may_use(deployment, gateway))

    def _on_choice(self) -> None:
        """Gateways, the served kinds, or what namespaces may have, changed: so may the claims of any deployment."""
        self._choice_changed.set()

    def _on_cluster_config(self, _key: ObjectKey, _old: Resource | None, _new: Resource | None) -> None:
        granted = granted_by(self._configs.cluster.values())
        if granted != self._granted:
            self._granted = granted
            self._on_choice()

    def _rights_of(self, namespace: str) -> RouteRights | None:
        """What a namespace may have at a Gateway; None: its labels, on which the policy depends, are not read yet."""
        grants = self._grants.of(namespace)
        if grants is None:
            return None
        (prefixes, patterns), policy = self._granted, grants.uses
        return RouteRights(
            config_prefixes=prefixes,
            config_names=patterns,
            policy_prefixes=policy.get(PATH_PREFIXES),
            policy_names=policy.get(MODEL_NAMES),
        )

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

    def _on_name(self, deployment: Resource, probe: Probe) -> None:
        """A model server has answered."""
        self._reconciler.note_probe(deployment, probe)
        self._queue.add(key_of(deployment), Priority.URGENT)


def references(deployment: Resource) -> Iterator[tuple[Kind, ObjectKey]]:
    """What a deployment names and does not own: the HTTPRoute of httpRouteRef, the InferencePool of its endpoint."""
    named = (
        (HTTP_ROUTE, dig(deployment, "spec", "gateway", "httpRouteRef")),
        (INFERENCE_POOL, dig(deployment, "status", "endpoint", "pool", "name")),
    )
    for kind, name in named:
        if isinstance(name, str) and name:
            yield kind, ObjectKey(key_of(deployment).namespace, name)


def _may_use(deployment: Resource, gateway: ObjectKey) -> bool:
    """Whether the deployment is routed by the Gateway, or by a route of the user's, which may have several."""
    used = dig(deployment, "status", "gateway", "gatewayNamespace"), dig(deployment, "status", "gateway", "gatewayName")
    return used == (gateway.namespace, gateway.name) or bool(dig(deployment, "spec", "gateway", "httpRouteRef"))


READS = Reads(
    status=("endpoint", "selector", "engine", "provider.name", "effectiveRuntimeConfig"),
    made=(serves, serves_generation, verdict_in, is_refused, answers_in_group),
)
"""What a pass reads of the status that others write."""

RELEVANT = RelevantMetadata(labels=lambda _: True, annotations=lambda _: True, status=READS.of)
