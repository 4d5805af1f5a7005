"""The part of the catalogue's process that scans registries: its cache of ModelSources, its queue and its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from datetime import datetime

from airunway.api import names
from airunway.kinds import MODEL_SOURCE
from airunway.kube import Client, MutationCache, Priority, compact_objects, transform_once
from airunway.process.base_controller import BaseController
from airunway.process.caches import Caches, SharedCache
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, annotations_of, dig, is_deleting, key_of, label_value, uid_of
from airunway_catalogue.caches import View
from airunway_catalogue.metrics import Scans, source_points
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.registry import Limits
from airunway_catalogue.scan import made_from
from airunway_catalogue.sources import SourceReconciler

__all__ = ["SCANS_AT_ONCE", "SourceWorker"]

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
    paused = annotations_of(source).get(names.PAUSED)
    return uid_of(source), dig(source, "metadata", "generation"), is_deleting(source), paused
