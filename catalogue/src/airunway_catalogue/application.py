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
from airunway.kube import Client, MutationCache, Priority, compact_objects, transform_once
from airunway.owned.views import OwnedView
from airunway.process.base_controller import BaseController
from airunway.process.caches import Caches, Sources
from airunway.process.jobs import Slots
from airunway.process.metrics import phase_points
from airunway.process.part import Part, Work
from airunway.process.predicates import Reads
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, is_deleting, key_of, label_value, labels_of
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


class CatalogueApplication(Part):
    """The catalogue."""

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        instance: str = "",
        settings: CatalogueSettings | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(caches, component=CATALOGUE_MANAGER, instance=instance)
        settings, clock = settings or CatalogueSettings(), clock or (lambda: datetime.now(UTC))
        self._everywhere = not caches.namespaces
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
        self.sources = (*self._configs.values(), self._caches, self._sources)
        self.work = (
            Work(
                "templates",
                self._templates.reconcile,
                workers=settings.workers,
                begin=self._begin_templates,
                end=self._end_templates,
            ),
            self._sources.work(),
        )
        self.metrics.add_source("templates", lambda: phase_points("airunway_modeltemplates", self._all_templates()))
        self.metrics.add_source("discoveries", lambda: self._slots.points("airunway_discoveries"))

    def _begin_templates(self) -> None:
        """Discoveries that run, or whose Job is about to be made, keep their slots."""
        self._look_at_nodes()
        self._slots.clear()
        for key in self._caches.all_keys():
            template = self._caches.template(key)
            if template is not None and (
                open_job(template) or any(not finished(job) for job in self._caches.owned(template).jobs)
            ):
                self._slots.claim(key)
            self._queue.add(key, Priority.BULK)

    def _end_templates(self) -> None:
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


class SourceWorker(Sources):
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
        templates: OwnedView,
        home: str,
        clock: Callable[[], datetime],
        limits: Limits | None = None,
    ) -> None:
        super().__init__(caches)
        self._base = base
        self._queue = base.queue("sources")
        project = transform_once(compact_objects(CATALOGUE_MANAGER))
        self.sources = self.watches(MODEL_SOURCE, project=project, wakes=self._on_source, optional=True)
        self._labelled = self.sources.add_index(lambda source: (label_value(key_of(source).name),))
        templates.reflector.add_handler(self._on_template)
        self._configs = RuntimeConfigs(caches, deployments=self.sources, on_change=self._on_config, home=home)
        self.add(self._configs)
        self.reconciler = SourceReconciler(
            client=client,
            sources=MutationCache(self.sources, project=project),
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

    def work(self) -> Work:
        """The workers that scan."""
        return Work(
            "sources",
            self.reconciler.reconcile,
            workers=SCANS_AT_ONCE,
            begin=self._begin,
        )

    def _begin(self) -> None:
        self.reconciler.clear()
        for key in list(self.sources.keys()):
            self._queue.add(key, Priority.BULK)

    # ------------------------------------------------------------------------------------------------ what changes

    def _wake(self, key: ObjectKey) -> None:
        self._queue.add(key, self._base.urgency)

    def _on_source(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """A write of the status changes nothing that a pass reads."""
        if READS.of(old) != READS.of(new):
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


READS = Reads(metadata=("uid", "generation"), made=(labels_of, is_deleting, is_paused))
"""What a pass reads of a source that others write; nothing of its status."""
