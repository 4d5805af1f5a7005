"""The catalogue's process: its caches, queues and workers, and the part of it that scans registries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airunway.api import names
from airunway.artifacts.jobs import finished
from airunway.configs.resolution import Resolution
from airunway.kinds import MODEL_SOURCE
from airunway.kube import Client, MutationCache, Priority, compact_objects, transform_once, wait_until_synced
from airunway.owned.views import View
from airunway.process.base_controller import BaseController, not_synced
from airunway.process.caches import Caches, SharedCache
from airunway.process.jobs import Slots
from airunway.process.manager import Lead
from airunway.process.metrics import phase_points
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, dig, is_deleting, key_of, label_value, labels_of, uid_of
from airunway.status.conditions import is_paused
from airunway_catalogue.caches import TemplateCaches, used_template
from airunway_catalogue.entrypoints import Entrypoints, KnownRegistry
from airunway_catalogue.gpu_models import GpuModels, installed_models
from airunway_catalogue.hardware import HardwareFit, HardwareFits, demand_of
from airunway_catalogue.metrics import Discoveries, Scans, source_points
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.registry import Limits
from airunway_catalogue.scan import made_from, plan_of
from airunway_catalogue.sources import SourceReconciler
from airunway_catalogue.template_state import open_job
from airunway_catalogue.templates import TemplateReconciler

_USERS_LATER = 5.0
"""Seconds after which a template counts its users anew: many deployments may be created at once."""

_NODES_LATER = 0.5
"""Seconds after which the templates look at the nodes anew: a pool of nodes comes together."""

_HELD_LATER = 5.0
"""The same where nodes were only cordoned, or became Ready or not: maintenance goes through many of them."""


@dataclass(frozen=True, kw_only=True)
class CatalogueSettings:
    """The configuration of the catalogue."""

    home: str = names.DEFAULT_NAMESPACE
    """The operator's namespace: RuntimeConfigs and Jobs of ClusterModelTemplates are there."""
    max_discoveries: int = 10
    """``--max-discoveries``: discovery Jobs at a time."""
    models: GpuModels = field(default_factory=installed_models)
    """The GPUs that are known."""
    workers: int = 8
    """Templates that are reconciled at a time."""


class CatalogueApplication:
    """The catalogue, from start to stop."""

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        instance: str = "",
        settings: CatalogueSettings | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        settings, clock = settings or CatalogueSettings(), clock or (lambda: datetime.now(UTC))
        self.metrics = caches.metrics
        self._settings = settings
        self._everywhere = not caches.namespaces
        self._base = BaseController(caches, component=CATALOGUE_MANAGER, instance=instance)
        self._deployments = self._base.deployments
        self._users = self._deployments.add_index(used_template)
        self._deployments.add_handler(self._on_deployment)
        self._queue = self._base.queue("templates")
        self._caches = TemplateCaches(
            caches,
            home=settings.home,
            on_template=self._wake,
            on_nodes=lambda: self._on_nodes(_NODES_LATER),
            on_held=lambda: self._on_nodes(_HELD_LATER),
        )
        self._configs = {
            view: RuntimeConfigs(caches, deployments=view.reflector, on_change=self._on_config, home=settings.home)
            for view in (self._caches.namespaced, self._caches.cluster)
        }
        self._slots = Slots(settings.max_discoveries, wake=self._wake)
        self._noted: set[ObjectKey] = set()
        """Templates whose changed users bring a pass soon."""
        self._nodes_changed: asyncio.TimerHandle | None = None
        self._fits = HardwareFits(settings.models)
        self._entrypoints = Entrypoints(
            client=client, home=settings.home, registry_of=self._registry_of, wake=self._wake
        )
        self._templates = TemplateReconciler(
            client=client,
            caches=self._caches,
            home=settings.home,
            shared_events=self._everywhere or "default" in caches.namespaces,
            config_of=self._config_of,
            hardware_of=self._hardware_of,
            users_of=self._users_of,
            slots=self._slots,
            entrypoints=self._entrypoints,
            events=self._base.events,
            discoveries=Discoveries(caches.metrics),
            clock=clock,
        )
        self._sources = SourceWorker(
            client=client,
            caches=caches,
            base=self._base,
            templates=self._caches.cluster,
            home=settings.home,
            clock=clock,
        )
        self.metrics.add_source("templates", lambda: phase_points("airunway_modeltemplates", self._all_templates()))
        self.metrics.add_source("discoveries", lambda: self._slots.points("airunway_discoveries"))

    def unready(self) -> str | None:
        """Why the catalogue cannot work yet, or None."""
        problem = not_synced([self._deployments, self._caches.namespaced.reflector, self._caches.cluster.reflector])
        if problem is not None:
            return problem
        for configs in self._configs.values():
            if (problem := configs.unready()) is not None:
                return problem
        if (problem := self._sources.unready()) is not None:
            return problem
        unread = self._caches.unread()
        return f"these kinds have not been read yet: {', '.join(unread)}" if unread else None

    async def run(self, lead: Lead) -> None:
        """Watch the API server until cancelled; reconcile while leading."""
        await self._base.run(self._follow, lead, self._work)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        for configs in self._configs.values():
            group.create_task(configs.run(), name="catalogue: runtime configs")
        self._caches.start(group)
        self._sources.start(group)
        await wait_until_synced([self._deployments])
        for configs in self._configs.values():
            await configs.read()
        await self._caches.read()
        await self._sources.read()
        self._look_at_nodes()

    async def _work(self) -> None:
        """The leader's part. Discoveries that run, or whose Job is about to be made, keep their slots."""
        self._slots.clear()
        for key in self._caches.all_keys():
            template = self._caches.template(key)
            if template is not None and (
                open_job(template) or any(not finished(job) for job in self._caches.owned(template).jobs)
            ):
                self._slots.claim(key)
            self._queue.add(key, Priority.BULK)
        templates = self._base.controller(
            "templates",
            self._queue,
            self._templates.reconcile,
            provider_of=lambda _: "",
            workers=self._settings.workers,
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(templates.run(), name="workers of templates")
                group.create_task(self._sources.work(), name="workers of sources")
        finally:
            self._slots.clear()  # a process that stands by has no discoveries
            self._entrypoints.stop()

    # ------------------------------------------------------------------------------------------------ what changes

    def _wake(self, key: ObjectKey) -> None:
        self._queue.add(key, self._base.urgency)

    def _on_config(self, _cause: Hashable, users: Callable[[], list[Resource]]) -> None:
        for template in users():
            self._wake(key_of(template))

    def _on_deployment(self, _key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        before, after = (set(used_template(each)) if each is not None else set() for each in (old, new))
        for template in before ^ after:
            if isinstance(template, ObjectKey):
                self._note_users(template)

    def _note_users(self, template: ObjectKey) -> None:
        """Reconcile a template whose users have changed, once for all changes of five seconds."""
        if self._base.leads and template not in self._noted:
            self._noted.add(template)
            asyncio.get_running_loop().call_later(_USERS_LATER, self._users_changed, template)

    def _users_changed(self, template: ObjectKey) -> None:
        self._noted.discard(template)
        self._wake(template)

    def _on_nodes(self, later: float) -> None:
        loop = asyncio.get_running_loop()
        timer = self._nodes_changed
        if timer is None or loop.time() + later < timer.when():
            if timer is not None:
                timer.cancel()
            self._nodes_changed = loop.call_later(later, self._look_at_nodes)

    def _look_at_nodes(self) -> None:
        """Take the inventory, and reconcile the templates that demand hardware if it is another one."""
        if self._nodes_changed is not None:
            self._nodes_changed.cancel()
            self._nodes_changed = None
        if not self._fits.renew(self._caches.inventory()):
            return
        for key, template in self._all_templates():
            if demand_of(template) is not None:
                self._queue.add(key, Priority.BULK)

    # ------------------------------------------------------------------------------------------------ what is read

    def _all_templates(self) -> list[tuple[ObjectKey, Resource]]:
        return [*self._caches.namespaced.reflector.items(), *self._caches.cluster.reflector.items()]

    def _config_of(self, template: Resource) -> Resolution:
        return self._configs[self._caches.of(key_of(template))].resolve(template)

    def _hardware_of(self, template: Resource) -> HardwareFit:
        return self._fits.of(demand_of(template))

    def _registry_of(self, host: str) -> KnownRegistry:
        """What the ModelSources say of a registry."""
        plans = [plan_of(source) for source in self._sources.sources.values()]
        named = [plan for plan in plans if plan.address.name.partition("/")[0].lower() == host]
        return KnownRegistry(
            trusted=bool(named),
            insecure=any(plan.address.insecure for plan in named),
            authorities=next((plan.authorities for plan in named if plan.authorities is not None), None),
        )

    def _users_of(self, template: ObjectKey) -> int | None:
        """The deployments that use a template; None if it is one of the cluster and not all namespaces are watched."""
        return len(self._users.get(template)) if template.namespace or self._everywhere else None


SCANS_AT_ONCE = 8
"""Sources that are scanned at a time: one that takes long delays no other."""


class SourceWorker:
    """Scans ModelSources while the process leads.

    `templates` is the view of ClusterModelTemplates; `home` is the operator's namespace, where pull Secrets and
    RuntimeConfigs of sources are. A cluster that does not serve ModelSources counts as one without them.
    """

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        base: BaseController,
        templates: View,
        home: str,
        clock: Callable[[], datetime],
        limits: Limits | None = None,
    ) -> None:
        self._base = base
        self._queue = base.queue("sources")
        project = transform_once(compact_objects(CATALOGUE_MANAGER))
        self.sources: SharedCache = caches.of(MODEL_SOURCE, project=project, optional=True)
        self._labelled = self.sources.add_index(lambda source: (label_value(key_of(source).name),))
        objects = MutationCache(self.sources, project=project)
        objects.add_listener(lambda key, old, new, _echo: self._on_source(key, old, new))
        templates.reflector.add_handler(self._on_template)
        self._configs = RuntimeConfigs(caches, deployments=self.sources, on_change=self._on_config, home=home)
        self.reconciler = SourceReconciler(
            client=client,
            sources=objects,
            templates=templates.objects,
            made=templates.reflector.add_index(made_from),
            resolve=self._configs.resolve,
            namespace=home,
            wake=self._wake,
            # Events of objects without a namespace are in the namespace default.
            events=base.events if not caches.namespaces else None,
            scans=Scans(caches.metrics),
            clock=clock,
            limits=limits,
        )

        caches.metrics.add_source("sources", lambda: source_points(self.sources.values()))

    def unready(self) -> str | None:
        """Why sources cannot be scanned yet, or None."""
        if (problem := self._configs.unready()) is not None:
            return problem
        return None if self.sources.answered.is_set() else f"the {MODEL_SOURCE.plural} have not been read yet"

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the watches in `group`."""
        group.create_task(self.sources.run(), name=f"catalogue: {MODEL_SOURCE.plural}")
        group.create_task(self._configs.run(), name="catalogue: runtime configs of sources")

    async def read(self) -> None:
        """Wait until the sources are readable."""
        await self._configs.read()
        await self.sources.answered.wait()

    async def work(self) -> None:
        """The leader's part, until cancelled."""
        self.reconciler.clear()
        for key in list(self.sources.keys()):
            self._queue.add(key, Priority.BULK)
        controller = self._base.controller(
            "sources", self._queue, self.reconciler.reconcile, provider_of=lambda _: "", workers=SCANS_AT_ONCE
        )
        await controller.run()

    # ------------------------------------------------------------------------------------------------ what changes

    def _wake(self, key: ObjectKey) -> None:
        self._queue.add(key, self._base.urgency)

    def _on_source(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """A write of the status changes nothing that a pass reads."""
        if old is None or new is None or _read(old) != _read(new):
            self._wake(key)

    def _on_template(self, _key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """Count the templates of a source anew when one comes or goes."""
        template = new if old is None else old if new is None else None
        for label in made_from(template) if template is not None else ():
            for source in self._labelled.get(label):
                self._queue.add(key_of(source), Priority.BULK)

    def _on_config(self, _cause: Hashable, users: Callable[[], list[Resource]]) -> None:
        for source in users():
            self._wake(key_of(source))


def _read(source: Resource) -> tuple[object, ...]:
    """What a pass reads of a source besides its status."""
    generation = dig(source, "metadata", "generation")
    return uid_of(source), generation, labels_of(source), is_deleting(source), is_paused(source)
