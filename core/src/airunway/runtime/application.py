"""Runs one provider: its registration, its watches and its workers (docs/providers/contract.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airunway.api import names
from airunway.configs.resolution import CONFIG_READY
from airunway.kube import Client, KubeError, MalformedAnswer, Priority, is_retryable
from airunway.plugins.host import ProviderHost
from airunway.plugins.settings import kept_settings, with_defaults
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.metrics import Metrics
from airunway.process.part import Part, Work
from airunway.process.predicates import RelevantMetadata, has_our_prefix, needs_reconcile
from airunway.resource import ObjectKey, Resource, condition_of, dig, kept, mapping_at
from airunway.revisions.revision import waits_for
from airunway.routing.holding import holds_at_zero
from airunway.runtime.crd_versions import translation_status
from airunway.runtime.evidence import EvidenceCollector
from airunway.runtime.gate import cache_reads, is_routed
from airunway.runtime.informers import UpstreamInformers
from airunway.runtime.reconcile import ProviderReconciler
from airunway.runtime.registration import Registration
from airunway.runtime.report import route_warnings
from airunway.runtime.translate import propagated_labels
from airunway.templates.expansion import TEMPLATE_READY

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """How a provider runs."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """The provider's own settings, read into the dataclass that its manifest names."""
    verify_unknown_schemas: bool = True
    """Whether objects of an unknown upstream schema are written after a dry run; if false, they are not written at all.
    """
    namespaces: tuple[str, ...] = ()
    """Namespaces that are watched; empty: all."""


_READ_FIELDS = ("engine", "selection", "parts")
_READ_CONDITIONS = ("Validated", "ProviderSelected", CONFIG_READY, TEMPLATE_READY, "StorageReady")
"""What a provider reads of the status that core and parts write, besides its own name; of a route or a cache only where
one was asked for (`cache_reads`)."""


def _as_read(condition: Resource | None) -> object:
    """What of a condition a pass reads: the words of one that is True stay unread."""
    if condition is None or condition.get("status") == "False":
        return condition
    return condition.get("status"), condition.get("observedGeneration")


VERSION_RETRY = 1.0
"""Seconds until a server that did not tell its version is asked again."""

_WORKERS = 16
"""Deployments that are reconciled at a time."""


class ProviderApplication(Part):
    """One provider, from start to stop. Raises SettingsError for settings that do not fit."""

    def __init__(
        self,
        *,
        client: Client,
        host: ProviderHost,
        instance: str = "",
        settings: ProviderSettings | None = None,
        caches: Caches | None = None,
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
        super().__init__(caches, component=manager, instance=instance)
        self._client = client
        self._host = host
        self._kubernetes = (1, 30)
        self._queue = self._base.queue(self._controller_name)
        self._upstream = UpstreamInformers(
            caches=caches,
            host=host,
            verify=settings.verify_unknown_schemas,
            version=self._version,
            notify=self._on_object,
            changed=self._on_upstream,
        )
        self.evidence = EvidenceCollector(
            caches=caches,
            host=host,
            known=self._deployments.synced,
            deployments=self._ours,
            is_named=self._upstream.is_named,
            notify=self._on_object,
            clock=clock,
        )
        self._known = self._base.overlay()
        self._known.add_listener(self._on_deployment)
        own = names.provider_finalizer(host.name)
        self._heeds = RelevantMetadata(
            labels=lambda key: "labels" in host.metadata_reads,
            annotations=lambda key: has_our_prefix(key) or "annotations" in host.metadata_reads,
            finalizers=lambda finalizer: finalizer != own,
            status=self._reads_of_status,
            by_labels=self._propagated,
        )
        self.sources = (self._upstream, self.evidence)
        self._reconciler = ProviderReconciler(
            client=client,
            host=host,
            settings=host.settings(settings.values),
            deployments=self._known,
            upstream=self._upstream,
            evidence=self.evidence,
            events=self._base.events,
            kubernetes=lambda: self._kubernetes,
            clock=clock,
        )
        self._settings = host.settings(settings.values)
        self._registration = Registration(
            client=client,
            host=host,
            installed=lambda: self._upstream.installed,
            translation=self._translation,
            clock=clock,
        )
        self.tasks = {"registration": self._register}
        self.work = (
            Work(
                self._controller_name,
                self._reconciler.reconcile,
                workers=_WORKERS,
                provider_of=lambda _: host.name,
                begin=self._look_at_all,
            ),
        )
        self._followed = False
        self._verdict = self._upstream.installed, self._translation()

    @property
    def _controller_name(self) -> str:
        return f"provider-{self._host.name}"

    def _translation(self) -> Resource:
        """How a new deployment would be written now: the core records it on each (``status.revision.provider``)."""
        newest = self._upstream.installed.upstream
        settings = with_defaults(self._settings, newest.transformer.defaults) if newest is not None else self._settings
        verdicts = self._upstream.verdicts
        kinds = {kind.key: verdicts[kind.group, kind.kind] for kind in self._host.manifest.upstream}
        return translation_status(kinds, settings=kept_settings(settings))

    def unready(self) -> str | None:
        """Why the provider cannot work yet, or None."""
        if (problem := super().unready()) is not None:
            return problem
        if not self._followed or (self._base.leads and not self._registration.registered):
            return f"the provider is not registered yet{self._registration.trouble}"
        return None

    def remark(self) -> str | None:
        """What was wrong with the last calls of the plugin's hooks, or None."""
        return "; ".join(self._host.faults.values()) or None

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        await super()._follow(group)
        self._followed = True
        group.create_task(self._look_with_evidence(), name="evidence")

    async def _look_with_evidence(self) -> None:
        """Reconcile everything of ours once what explains a fault is read."""
        await self.evidence.until_settled()
        self._look_at_all()

    async def _version(self) -> tuple[int, int]:
        """The cluster's version, read once: an upgrade of the control plane ends our watches, but not this process.

        What is built into Kubernetes depends on it, and so does what is published of the translation: a server that
        does not answer is asked again.
        """
        while True:
            try:
                self._kubernetes = await self._client.version()
            except KubeError as error:
                if is_retryable(error) and not isinstance(error, MalformedAnswer):
                    log.warning("the version of Kubernetes is not known yet: %s", error)
                    await asyncio.sleep(VERSION_RETRY)
                    continue
                log.warning("the version of Kubernetes is not known (%s): taken for %d.%d", error, *self._kubernetes)
            return self._kubernetes

    async def _register(self) -> None:
        """Keep the provider registered while it leads. Ends with a farewell."""
        try:
            await self._registration.run()
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._registration.farewell(), 5.0)

    def _on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if not any(obj is not None and self._reconciler.concerns(obj) for obj in (old, new)):
            return
        if (
            old is None
            or new is None
            or needs_reconcile(old, new, manager=self._base.component, echo=echo, relevant=self._heeds)
        ):
            self._base.enqueue(key, old, new)

    def _propagated(self, deployment: Resource) -> object:
        """The deployment's labels that its objects get."""
        return propagated_labels(self._host, deployment)

    def _reads_of_status(self, deployment: Resource) -> object:
        """What a pass reads of the status that others write; their writes to anything else bring no pass."""
        status = deployment.get("status")
        if not isinstance(status, dict):
            return None
        route: tuple[object, ...] = ()
        if is_routed(deployment):
            route = (condition_of(deployment, "GatewayReady"),)
        return (
            [status.get(name) for name in _READ_FIELDS],
            dig(status, "provider", "name"),
            kept(status.get("effectiveRuntimeConfig"), "labelPatterns", "statusPolicy", "routing", "prometheus"),
            dig(status, "revision", "hash"),
            waits_for(deployment),
            [_as_read(condition_of(deployment, type_)) for type_ in _READ_CONDITIONS],
            route,
            route_warnings(deployment),
            holds_at_zero(deployment) and mapping_at(status, "gateway").get("holdsRequests"),
            cache_reads(deployment),
        )

    def _on_object(self, key: ObjectKey) -> None:
        """Reconcile the deployment of a changed object; urgently, unless a first list brought the object."""
        moved = self._base.leads and not self._upstream.unread() and self.evidence.settled()
        self._queue.add(key, Priority.URGENT if moved else Priority.BULK)

    def _ours(self, key: ObjectKey) -> Resource | None:
        """The deployment, if it is the provider's."""
        deployment = self._deployments.get(key)
        return deployment if deployment is not None and self._reconciler.concerns(deployment) else None

    def _on_upstream(self) -> None:
        """On a change of the kinds, reconcile everything of ours; report a new verdict at once."""
        verdict = self._upstream.installed, self._translation()
        if verdict != self._verdict:
            self._verdict = verdict
            self._registration.changed()
        self._look_at_all()

    def _look_at_all(self) -> None:
        self._base.enqueue_all("all", self._reconciler.concerns)
