"""A provider as a running thing: caches, upstream detection, registration, workers (spec/providers.md).

It holds several tasks for as long as it runs. Which upstream is there is learnt from the CRDs, while running: kinds
that appear are watched, kinds that go away are forgotten, and every deployment of ours is looked at again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    AnyReflector,
    Client,
    Controller,
    EventRecorder,
    Overlay,
    Priority,
    Reflector,
    WorkQueue,
    compacting,
    reflector_of,
    wait_until_synced,
)
from airunway.plugins.contract import UpstreamKind
from airunway.plugins.host import ProviderHost
from airunway.process.deployment_cache import whole
from airunway.process.metrics import Metrics
from airunway.process.passes import observed
from airunway.process.shell import Lead
from airunway.resource import ObjectKey, Resource
from airunway.runtime.children import Children, deployment_of
from airunway.runtime.compaction import Compaction
from airunway.runtime.evidence import EvidenceCollector
from airunway.runtime.reconciler import ProviderReconciler
from airunway.runtime.registration import Registration
from airunway.runtime.surroundings import ProviderSettings, Surroundings, UpstreamView, kind_in
from airunway.runtime.upstream import CrdFacts, Installed, crd_facts, detect

__all__ = ["ProviderApplication"]

log = logging.getLogger(__name__)

_PAGE = 100
"""Objects in a page of a list. A page is decoded before it is trimmed: large ones make the process large for good."""

_FACTS = "crdFacts"
"""Where a projected CRD keeps what was read out of it."""


class ProviderApplication:
    """One provider, from start to stop."""

    def __init__(
        self,
        *,
        client: Client,
        host: ProviderHost,
        instance: str = "",
        settings: ProviderSettings | None = None,
        metrics: Metrics | None = None,
        workers: int = 16,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._client = client
        self._host = host
        self._workers = workers
        self._manager = names.provider_manager(host.name)
        self._metrics = metrics or Metrics(self._manager)
        self._queue: WorkQueue[ObjectKey] = WorkQueue()
        self._project = compacting(self._manager)
        deployment = Compaction(self._manager, host.name)
        settings = settings or ProviderSettings()
        self._deployments = reflector_of(
            client, MODEL_DEPLOYMENT, namespaces=settings.namespaces, project=deployment, page_size=_PAGE
        )
        self._events = EventRecorder(
            client,
            component=f"{names.GROUP}/{self._manager}",
            instance=instance or self._manager,
            busy=lambda: self._leads and self._queue.depth > 0,
        )
        self._around = Surroundings(
            deployments=Overlay(self._deployments, project=deployment, restore=whole),
            children=Children(self._on_upstream),
            views={},
            installed=Installed(
                upstream=None, reason="UpstreamNotInstalled", message="the cluster's CRDs have not been read yet"
            ),
            settings=settings,
            clock=clock or (lambda: datetime.now(UTC)),
        )
        self.evidence = EvidenceCollector(
            client=client,
            pod_label=host.manifest.pod_label,
            namespaces=settings.namespaces,
            deployments=self._ours,
            deployment_named=self._deployment_named,
            notify=self._on_upstream,
            clock=self._around.clock,
        )
        self._around.evidence = self.evidence
        self._reconciler = ProviderReconciler(client=client, host=host, around=self._around, events=self._events)
        self._registration = Registration(
            client=client, host=host, installed=lambda: self._around.installed, clock=self._around.clock
        )
        self._crds = {
            kind: Reflector(
                client,
                CUSTOM_RESOURCE_DEFINITION,
                field_selector=f"metadata.name={kind.plural}.{kind.group}",
                project=_project_crd,
            )
            for kind in host.manifest.upstream
            if kind.requires_crd
        }
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._followed = False
        self._leads = False
        self._crds_changed = asyncio.Event()
        for reflector in (self._deployments, *self._crds.values(), *self.evidence.reflectors):
            self._metrics.follow(reflector)
        self._metrics.show_queue(self._controller_name, self._queue)
        self._metrics.show_events(self._events)

    @property
    def _controller_name(self) -> str:
        return f"provider-{self._host.name}"

    def unready(self) -> str | None:
        """Why the process cannot work yet, or None."""
        if not self._deployments.synced.is_set() and self._deployments.missing:
            return f"the API server does not serve {MODEL_DEPLOYMENT}: install the CRDs (airunway crds)"
        if not self._deployments.synced.is_set():
            return "the ModelDeployments have not been read yet"
        waiting = [view.kind.kind for view in self._around.views.values() if not view.synced()]
        if waiting:
            return f"these upstream kinds have not been read yet: {', '.join(waiting)}"
        if not self.evidence.settled():
            return "pods and events have not been read yet"
        if not self._followed or (self._leads and not self._registration.registered):
            return f"the provider is not registered yet{self._registration.trouble}"
        return None

    async def run(self, lead: Lead) -> None:
        """Follow the API server until cancelled; register and work while leading."""
        self._deployments.add_handler(self._on_deployment)
        for crds in self._crds.values():
            crds.add_handler(lambda _key, _old, _new: self._crds_changed.set())
        try:
            async with asyncio.TaskGroup() as group:
                await self._follow(group, lead)
        finally:
            await self._events.flush()

    async def _follow(self, group: asyncio.TaskGroup, lead: Lead) -> None:
        group.create_task(self._deployments.run(), name="deployments")
        for kind, crds in self._crds.items():
            group.create_task(crds.run(), name=f"crd-{kind.plural}")
        group.create_task(self._events.run(), name="events")
        await wait_until_synced([*self._crds.values()])
        await self._look_at_upstream(group)
        group.create_task(self._follow_upstream(group), name="upstream")
        group.create_task(
            self.evidence.run(after=wait_until_synced([self._deployments]), announce=self._look_at_all),
            name="evidence",
        )
        await wait_until_synced([self._deployments])
        self._followed = True
        await lead(self._work)

    async def _work(self) -> None:
        """The leader's part; ends with a farewell. Everything of ours is looked at once at the beginning."""
        self._leads = True
        name, metrics = self._controller_name, self._metrics
        controller = Controller(
            name,
            self._queue,
            observed(
                self._reconciler.reconcile, controller=name, metrics=metrics, provider_of=lambda _: self._host.name
            ),
            workers=self._workers,
            on_wait=metrics.on_wait(name),
            on_pass=metrics.on_pass(name),
        )
        self._look_at_all()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._registration.run(), name="registration")
                group.create_task(controller.run(), name="workers")
        finally:
            self._leads = False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._registration.farewell(), 5.0)

    def _on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if any(obj is not None and self._reconciler.concerns(obj) for obj in (old, new)):
            self._queue.add(key, Priority.NORMAL if self._leads else Priority.BULK)

    def _on_upstream(self, key: ObjectKey) -> None:
        """Something that belongs to the deployment moved; what a first list brings is no movement."""
        moved = self._leads and self._around.settled()
        self._queue.add(key, Priority.URGENT if moved else Priority.BULK)

    def _ours(self, key: ObjectKey) -> Resource | None:
        """The deployment, if it is the provider's."""
        deployment = self._deployments.get(key)
        return deployment if deployment is not None and self._reconciler.concerns(deployment) else None

    def _deployment_named(self, primary: ObjectKey) -> ObjectKey | None:
        """The deployment whose primary object has that name."""
        view = self._around.views.get(self._host.primary_kind.kind)
        found = view.objects.get(primary) if view is not None else None
        return deployment_of(primary, found) if found is not None else None

    # ------------------------------------------------------------------------------------------------- the upstream

    async def _follow_upstream(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._crds_changed.wait()
            self._crds_changed.clear()
            await self._look_at_upstream(group)

    async def _look_at_upstream(self, group: asyncio.TaskGroup) -> None:
        """Read the CRDs anew: what is installed, and which kinds can be watched in which version."""
        before, schemas = self._around.installed, self._around.schemas
        primary = self._host.primary_kind
        self._around.schemas = tuple(self._facts_of(kind) for kind in self._host.manifest.upstream)
        self._around.installed = detect(
            primary,
            self._host.transformers,
            self._facts_of(primary),
            verify=self._around.settings.verify_unknown_schemas,
        )
        for kind in self._host.manifest.upstream:
            await self._watch(group, kind, self._version_of(kind))
        if self._around.installed != before:
            log.info("upstream of %s: %s", self._host.name, self._around.installed.message)
            self._registration.changed()
        if (self._around.installed, self._around.schemas) != (before, schemas):
            self._look_at_all()

    def _version_of(self, kind: UpstreamKind) -> str | None:
        """The version in which a kind is watched now, or None where its CRD is not there.

        One whose schema nothing may be written for is watched all the same: what exists of it still counts.
        """
        upstream = self._around.installed.upstream
        if kind == self._host.primary_kind and upstream is not None:
            return upstream.api_version.rpartition("/")[2]
        if not kind.requires_crd:
            return kind.versions[0]
        facts = self._facts_of(kind)
        served = {version for version, _ in facts.served} if facts and facts.established else set()
        return next((version for version in kind.versions if version in served), None)

    def _facts_of(self, kind: UpstreamKind) -> CrdFacts | None:
        crd = self._crds[kind].get(ObjectKey("", f"{kind.plural}.{kind.group}")) if kind in self._crds else None
        return crd[_FACTS] if crd is not None else None

    async def _watch(self, group: asyncio.TaskGroup, kind: UpstreamKind, version: str | None) -> None:
        """Start, stop or restart watching a kind so that it is watched in `version` (None: not at all)."""
        view = self._around.views.get(kind.kind)
        if view is not None and (version is None or view.kind.version != version):
            self._watching.pop(kind.kind).cancel()
            del self._around.views[kind.kind]
            self._around.children.forget_kind(view.kind)
            view = None
        if view is None and version is not None:
            watched = kind_in(kind, version)
            reflector = reflector_of(
                self._client,
                watched,
                namespaces=self._around.settings.namespaces,
                label_selector=f"{names.MANAGED_BY}={names.MANAGED_BY_VALUE}",
                project=self._project,
                page_size=_PAGE,
            )
            objects = Overlay(reflector, project=self._project)
            reflector.add_handler(self._around.children.handler(watched))
            self._around.views[kind.kind] = UpstreamView(kind=watched, objects=objects, synced=reflector.synced.is_set)
            self._metrics.follow(reflector)
            watching = group.create_task(reflector.run(), name=f"upstream-{kind.plural}")
            watching.add_done_callback(lambda _: self._metrics.unfollow(reflector))
            self._watching[kind.kind] = watching
            group.create_task(self._announce(reflector), name=f"synced-{kind.plural}")

    async def _announce(self, reflector: AnyReflector) -> None:
        """Once a kind was read completely, everything that waited for it is looked at."""
        await reflector.synced.wait()
        self._look_at_all()

    def _look_at_all(self) -> None:
        for key, deployment in self._deployments.items():
            if self._reconciler.concerns(deployment):
                self._queue.add(key, Priority.BULK)


def _project_crd(crd: Resource) -> Resource:
    """What we keep of a CRD: its schemas are up to a megabyte each."""
    metadata = crd.get("metadata") or {}
    return {
        "metadata": {key: metadata.get(key) for key in ("name", "uid", "resourceVersion")},
        _FACTS: crd_facts(crd),
    }
