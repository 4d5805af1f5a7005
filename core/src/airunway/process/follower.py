"""What the core and every provider do alike: follow the ModelDeployments, have workers while leading, write events.

A follower is one part of a process (`process.parts`); it shares client, caches and metrics with the others there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable

from airunway.api import names
from airunway.kube import (
    AnyReflector,
    Controller,
    EventRecorder,
    MutationCache,
    Priority,
    WorkQueue,
)
from airunway.process.caches import Cache, Caches
from airunway.process.deployment_cache import whole
from airunway.process.edits import Edits
from airunway.process.news import is_edit
from airunway.process.parts import Lead, Work
from airunway.process.passes import Reconcile, observed
from airunway.resource import ObjectKey, Resource

__all__ = ["Follower", "unread"]

_AT_ONCE = 250
"""Deployments that are gone over before everything else in the process gets its turn."""


class Follower:
    """One part of a process, which `component` names in events, leases and metrics; `instance` names the process.

    `leads` is true while the part leads: before that nothing it hears of is more urgent than the rest, since everything
    of its own is looked at once it does.
    """

    def __init__(self, caches: Caches, *, component: str, instance: str = "") -> None:
        self.component = component
        self.leads = False
        self._metrics = caches.metrics
        self._project = caches.project
        self.deployments: Cache = caches.deployments()
        self._queues: list[WorkQueue[ObjectKey]] = []
        self._reviews: dict[Hashable, Callable[[Resource], bool]] = {}
        self._review = asyncio.Event()
        self._edits: Edits[ObjectKey] = Edits()
        self.events = EventRecorder(
            caches.client,
            component=f"{names.GROUP}/{component}",
            instance=instance or component,
            busy=lambda: self.leads and any(queue.depth > 0 for queue in self._queues[:1]),
        )
        self._metrics.show_events(component, self.events)

    def overlay(self) -> MutationCache:
        """The deployments with the answers to the part's own writes on top, each with its whole spec."""
        return MutationCache(self.deployments, project=self._project, restore=whole)

    def queue(self, controller: str) -> WorkQueue[ObjectKey]:
        """A queue that namespaces share, shown in the metrics; while the first one has something, events wait."""
        queue: WorkQueue[ObjectKey] = WorkQueue(sharer_of=lambda key: key.namespace)
        self._queues.append(queue)
        self._metrics.show_queue(controller, queue, component=self.component)
        return queue

    def controller(
        self,
        name: str,
        queue: WorkQueue[ObjectKey],
        reconcile: Reconcile,
        *,
        provider_of: Callable[[ObjectKey], str],
        workers: int,
    ) -> Controller[ObjectKey]:
        """Workers for a queue, whose passes are measured and whose log lines say what they are about."""
        return Controller(
            name,
            queue,
            observed(reconcile, controller=name, metrics=self._metrics, provider_of=provider_of),
            workers=workers,
            on_wait=self._metrics.on_wait(name),
            on_pass=self._metrics.on_pass(name),
        )

    @property
    def urgency(self) -> Priority:
        """How urgent a change of a deployment is."""
        return Priority.NORMAL if self.leads else Priority.BULK

    def look_again(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """Have a deployment looked at that went from `old` to `new`; one that is edited without end, once in a while.

        Its author would else have passes, and writes upstream, at the speed of his own.
        """
        if is_edit(old, new):
            self._queues[0].rest(key, self._edits.rest_after(key))
        self._queues[0].add(key, self.urgency)

    def look_at(self, cause: Hashable, wanted: Callable[[Resource], bool]) -> None:
        """Have the deployments looked at that are `wanted`, after all that is more urgent.

        A standby needs none of it: whoever begins to lead looks at everything. What is asked for again for the same
        `cause` before it was begun is done once.
        """
        if self.leads:
            self._reviews[cause] = wanted
            self._review.set()

    async def _look(self) -> None:
        """Go over all deployments for one cause after the other; thousands of them must not hold up the rest."""
        while True:
            await self._review.wait()
            self._review.clear()
            while self._reviews:
                wanted = self._reviews.pop(next(iter(self._reviews)))
                for position, (key, deployment) in enumerate(self.deployments.items()):
                    if position % _AT_ONCE == 0:
                        await asyncio.sleep(0)
                    if wanted(deployment):
                        self._queues[0].add(key, Priority.BULK)

    async def run(self, follow: Callable[[asyncio.TaskGroup], Awaitable[None]], lead: Lead, work: Work) -> None:
        """Follow the API server until cancelled: `follow` starts what else is followed, and returns once all of it was
        read; then `work` is done while leading. Events that are left are written at the end.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.deployments.run(), name=f"{self.component}: deployments")
                group.create_task(self.events.run(), name=f"{self.component}: events")
                group.create_task(self._look(), name=f"{self.component}: reviews")
                await follow(group)
                await lead(lambda: self._lead(work))
        finally:
            await self.events.flush()

    async def _lead(self, work: Work) -> None:
        self.leads = True
        try:
            await work()
        finally:
            self.leads = False


def unread(caches: Iterable[AnyReflector]) -> str | None:
    """Which of these was not read completely yet, and why, as far as is known; else None."""
    for cache in caches:
        if not cache.synced.is_set() and cache.missing:
            return f"the API server does not serve {cache.kind}: install the CRDs (airunway crds)"
        if not cache.synced.is_set():
            return f"the {cache.kind.plural} have not been read yet"
    return None
