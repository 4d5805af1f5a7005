"""A provider as a running thing: what it follows, how it registers, and its workers (spec/providers.md).

It holds several tasks for as long as it runs; `upstreams` knows the upstream's kinds, `evidence` what lies behind them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airunway.api import names
from airunway.kube import Client, KubeError, Priority, wait_until_synced
from airunway.plugins.host import ProviderHost
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.follower import Follower, unread
from airunway.process.metrics import Metrics
from airunway.process.news import is_news
from airunway.process.parts import Lead
from airunway.resource import ObjectKey, Resource
from airunway.runtime.evidence import EvidenceCollector
from airunway.runtime.reconciler import ProviderReconciler
from airunway.runtime.registration import Registration
from airunway.runtime.upstreams import UpstreamWatch

__all__ = ["ProviderApplication", "ProviderSettings"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """How a provider runs: `values` are its own configuration, read into the dataclass that its manifest names."""

    values: Mapping[str, Any] = field(default_factory=dict)
    verify_unknown_schemas: bool = True
    namespaces: tuple[str, ...] = ()


class ProviderApplication:
    """One provider, from start to stop. Raises SettingsError for a configuration that does not fit."""

    def __init__(
        self,
        *,
        client: Client,
        host: ProviderHost,
        instance: str = "",
        settings: ProviderSettings | None = None,
        caches: Caches | None = None,
        workers: int = 16,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        settings = settings or ProviderSettings()
        clock = clock or (lambda: datetime.now(UTC))
        manager = names.provider_manager(host.name)
        caches = caches or Caches(
            client,
            project=DeploymentProjection([manager], providers=[host.name]),
            metrics=Metrics(manager),
            namespaces=settings.namespaces,
        )
        self._client = client
        self._host = host
        self._workers = workers
        self._kubernetes = (1, 30)
        self._follower = Follower(caches, component=manager, instance=instance)
        self._deployments = self._follower.deployments
        self._queue = self._follower.queue(self._controller_name)
        self._upstream = UpstreamWatch(
            caches=caches,
            host=host,
            verify=settings.verify_unknown_schemas,
            notify=self._on_object,
            changed=self._on_upstream,
        )
        self.evidence = EvidenceCollector(
            caches=caches,
            host=host,
            deployments=self._ours,
            is_named=self._upstream.is_named,
            notify=self._on_object,
            clock=clock,
        )
        self._known = self._follower.overlay()
        self._reconciler = ProviderReconciler(
            client=client,
            host=host,
            settings=host.settings(settings.values),
            deployments=self._known,
            upstream=self._upstream,
            evidence=self.evidence,
            events=self._follower.events,
            kubernetes=lambda: self._kubernetes,
            clock=clock,
        )
        self._registration = Registration(
            client=client, host=host, installed=lambda: self._upstream.installed, clock=clock
        )
        self._followed = False
        self._verdict = self._upstream.installed

    @property
    def _controller_name(self) -> str:
        return f"provider-{self._host.name}"

    def unready(self) -> str | None:
        """Why the provider cannot work yet, or None."""
        if (problem := unread([self._deployments])) is not None:
            return problem
        if waiting := self._upstream.unread():
            return f"these upstream kinds have not been read yet: {', '.join(waiting)}"
        if not self.evidence.settled():
            return "pods and events have not been read yet"
        if not self._followed or (self._follower.leads and not self._registration.registered):
            return f"the provider is not registered yet{self._registration.trouble}"
        return None

    def remark(self) -> str | None:
        """What the plugin's hooks did wrong when they were last called, or None."""
        return "; ".join(self._host.faults.values()) or None

    async def run(self, lead: Lead) -> None:
        """Follow the API server until cancelled; register and work while leading."""
        self._known.add_listener(self._on_deployment)
        await self._follower.run(self._follow, lead, self._work)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        await self._upstream.run(group)
        self._kubernetes = await self._version()
        group.create_task(
            self.evidence.run(after=wait_until_synced([self._deployments]), announce=self._look_at_all),
            name="evidence",
        )
        await wait_until_synced([self._deployments])
        self._followed = True

    async def _version(self) -> tuple[int, int]:
        """The cluster's version, asked once: an upgrade of the control plane ends our watches, not our process."""
        try:
            return await self._client.version()
        except KubeError as error:
            log.warning("the version of Kubernetes is not known (%s): taken for %d.%d", error, *self._kubernetes)
            return self._kubernetes

    async def _work(self) -> None:
        """The leader's part; ends with a farewell. Everything of ours is looked at once at the beginning."""
        controller = self._follower.controller(
            self._controller_name,
            self._queue,
            self._reconciler.reconcile,
            provider_of=lambda _: self._host.name,
            workers=self._workers,
        )
        self._look_at_all()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._registration.run(), name="registration")
                group.create_task(controller.run(), name="workers")
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._registration.farewell(), 5.0)

    def _on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if not any(obj is not None and self._reconciler.concerns(obj) for obj in (old, new)):
            return
        manager, own = self._follower.component, names.provider_finalizer(self._host.name)
        if old is None or new is None or is_news(old, new, manager=manager, echo=echo, heeds=lambda one: one != own):
            self._queue.add(key, self._follower.urgency)

    def _on_object(self, key: ObjectKey) -> None:
        """Something that belongs to the deployment moved; what a first list brings is no movement."""
        moved = self._follower.leads and not self._upstream.unread() and self.evidence.settled()
        self._queue.add(key, Priority.URGENT if moved else Priority.BULK)

    def _ours(self, key: ObjectKey) -> Resource | None:
        """The deployment, if it is the provider's."""
        deployment = self._deployments.get(key)
        return deployment if deployment is not None and self._reconciler.concerns(deployment) else None

    def _on_upstream(self) -> None:
        """Kinds came, went or were read: everything of ours is looked at again, and a new verdict is told at once."""
        if self._upstream.installed != self._verdict:
            self._verdict = self._upstream.installed
            self._registration.changed()
        self._look_at_all()

    def _look_at_all(self) -> None:
        self._follower.look_at("all", self._reconciler.concerns)
