"""The base of the core and of every provider: watches ModelDeployments, runs workers while leading, and writes events.

A base controller is one part of a process (`process.manager`) and shares client, caches and metrics with the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from time import monotonic
from typing import Generic, TypeAlias, TypeVar

from airunway.api import names
from airunway.kube import (
    AlreadyExists,
    AnyReflector,
    ApiError,
    BadRequest,
    Conflict,
    Controller,
    EventRecorder,
    Forbidden,
    Invalid,
    MutationCache,
    Priority,
    TooManyRequests,
    TransportError,
    Unauthorized,
    WorkQueue,
)
from airunway.kube.packing import unpacked
from airunway.process.caches import Caches, SharedCache
from airunway.process.logs import set_log_fields
from airunway.process.manager import Lead, Work
from airunway.process.metrics import Metrics
from airunway.process.predicates import is_user_edit
from airunway.resource import ObjectKey, Resource, key_of

log = logging.getLogger(__name__)


BURST = 5
"""Edits of one object that are reconciled at once: more than a person, a pipeline and an autoscaler make together."""

INTERVAL = 1.0
"""Seconds between reconciles of an object whose burst is used up; each interval without an edit restores one edit."""

_REMEMBERED = 1024
"""Number of remembered objects above which those with a full burst are dropped."""

REST_OF_EACH, LONGEST_REST = 0.1, 60.0
"""Seconds for which a shared object rests after an edit was acted on: for each deployment that follows it; at most.

One edit of a config costs a pass, and often a write, of each follower. Without a rest, an author of edits has the whole
process work for him, and what others make waits.
"""

K = TypeVar("K", bound=Hashable)


class EditRateLimiter(Generic[K]):
    """Limits the edits of each object that are acted on. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._whole_at: dict[K, float] = {}  # time at which an object's burst is full again
        self._most = _REMEMBERED

    def rest_after(self, key: K) -> float:
        """Count an edit of `key`; returns the seconds that its reconcile has to wait (0: none)."""
        now = self._clock()
        whole_at = max(now, self._whole_at.get(key, now))
        if whole_at - now <= BURST * INTERVAL:  # otherwise it waits, and the next pass covers this edit too
            whole_at += INTERVAL
            self._whole_at[key] = whole_at
            if len(self._whole_at) > self._most:
                self._whole_at = {each: when for each, when in self._whole_at.items() if when > now}
                self._most = max(_REMEMBERED, 2 * len(self._whole_at))
        return max(0.0, whole_at - now - BURST * INTERVAL)


Reconcile: TypeAlias = Callable[[ObjectKey], Awaitable[float | None]]


def instrumented(
    reconcile: Reconcile, *, controller: str, metrics: Metrics, provider_of: Callable[[ObjectKey], str]
) -> Reconcile:
    """`reconcile` with its duration and errors measured, and with log fields set.

    `provider_of` names the provider of an object before the reconcile, or is empty. The log fields stay set afterwards:
    the controller logs the result with them, and each worker is a task of its own.
    """

    async def run(key: ObjectKey) -> float | None:
        provider = provider_of(key)
        number = f"{random.getrandbits(32):08x}"
        set_log_fields(controller=controller, object=str(key), provider=provider, reconcile_id=number)
        started = monotonic()
        try:
            return await reconcile(key)
        except Exception as error:
            metrics.count("airunway_reconciliation_errors_total", controller, provider, error_type_of(error))
            raise
        finally:
            seconds = monotonic() - started
            metrics.observe("airunway_reconciliation_duration_seconds", seconds, controller, provider)
            log.debug("reconcile took %.1f ms", seconds * 1000)

    return run


def error_type_of(error: Exception) -> str:
    """The value of the label ``error_type`` for the error that ended a reconcile."""
    match error:
        case Conflict() | AlreadyExists():
            return "conflict"
        case TooManyRequests():
            return "throttled"
        case TransportError():
            return "unreachable"
        case Invalid() | BadRequest() | Forbidden() | Unauthorized():
            return "refused"
        case ApiError():
            return "server"
        case _:
            return "internal"


_AT_ONCE = 250
"""Number of deployments after which the loop yields to other tasks."""


class BaseController:
    """One part of a process. `component` names it in events, leases and metrics; `instance` names the process.

    `leads` is true while the part leads. Until then every change has the same priority, because a new leader reconciles
    all objects of its own anyway.
    """

    def __init__(self, caches: Caches, *, component: str, instance: str = "") -> None:
        self.component = component
        self.leads = False
        self._metrics = caches.metrics
        self._project = caches.project
        self.deployments: SharedCache = caches.deployments()
        self.queues: dict[str, WorkQueue[ObjectKey]] = {}
        """By the name of their controller; the first one is that of the deployments."""
        self._reviews: dict[Hashable, tuple[Callable[[Resource], bool], Callable[[], list[Resource]], bool]] = {}
        self._calm_at: dict[Hashable, float] = {}
        """When the rest of a cause ends, in monotonic seconds."""
        self._review = asyncio.Event()
        self._edits: EditRateLimiter[ObjectKey] = EditRateLimiter()
        self.events = EventRecorder(
            caches.client,
            component=f"{names.GROUP}/{component}",
            instance=instance or component,
            busy=lambda: self.leads and self._first.depth > 0,
        )
        self._metrics.show_events(component, self.events)

    @property
    def _first(self) -> WorkQueue[ObjectKey]:
        return next(iter(self.queues.values()))

    def overlay(self) -> MutationCache:
        """The deployments' cache with the answers to the part's own writes on top; each deployment has its whole
        spec.
        """
        return MutationCache(self.deployments, project=self._project, restore=unpacked)

    def queue(self, controller: str) -> WorkQueue[ObjectKey]:
        """A queue that is fair between namespaces and shown in the metrics. Events wait while the first queue has
        keys.
        """
        queue: WorkQueue[ObjectKey] = WorkQueue(sharer_of=lambda key: key.namespace)
        self.queues[controller] = queue
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
        """Workers for a queue, with metrics for their passes and log fields for their object."""
        return Controller(
            name,
            queue,
            instrumented(reconcile, controller=name, metrics=self._metrics, provider_of=provider_of),
            workers=workers,
            on_wait=self._metrics.on_wait(name),
            on_pass=self._metrics.on_pass(name),
        )

    @property
    def urgency(self) -> Priority:
        """Priority of a change of a deployment."""
        return Priority.NORMAL if self.leads else Priority.BULK

    def enqueue(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """Enqueue a deployment that changed from `old` to `new`. User edits of one deployment are rate-limited.

        Otherwise its author could cause reconciles, and upstream writes, at the speed of the edits.
        """
        if is_user_edit(old, new):
            self._first.rest(key, self._edits.rest_after(key))
        self._first.add(key, self.urgency)

    def enqueue_all(
        self,
        cause: Hashable,
        wanted: Callable[[Resource], bool] = lambda _: True,
        *,
        among: Callable[[], list[Resource]] | None = None,
        damped: bool = False,
    ) -> None:
        """Enqueue the deployments that are `wanted`, of all or of those that `among` finds, with low priority.

        A standby enqueues nothing: a new leader reconciles everything. Requests for the same `cause` that have not
        begun are merged into one. A `damped` cause is an edit that any user may make at any speed: the first one is
        acted on at once, and then it rests for a time that grows with the number of deployments.
        """
        if not self.leads:
            return
        self._reviews[cause] = wanted, among or self.deployments.values, damped
        rest = self._calm_at.get(cause, 0.0) - monotonic()
        if rest > 0:
            asyncio.get_running_loop().call_later(rest, self._review.set)
        else:
            self._review.set()

    async def _look(self) -> None:
        """Enqueue the wanted deployments, one cause after the other, and yield to other tasks in between."""
        while True:
            await self._review.wait()
            self._review.clear()
            while (cause := self._next_cause()) is not None:
                wanted, among, damped = self._reviews.pop(cause)
                number = 0
                for position, deployment in enumerate(among()):
                    if position % _AT_ONCE == 0:
                        await asyncio.sleep(0)
                    if wanted(deployment):
                        number += 1
                        self._first.add(key_of(deployment), Priority.BULK)
                if damped:
                    self._rest(cause, min(LONGEST_REST, number * REST_OF_EACH))

    def _next_cause(self) -> Hashable | None:
        """The first cause that does not rest."""
        now = monotonic()
        return next((cause for cause in self._reviews if self._calm_at.get(cause, 0.0) <= now), None)

    def _rest(self, cause: Hashable, seconds: float) -> None:
        now = monotonic()
        if len(self._calm_at) > _REMEMBERED:
            self._calm_at = {each: until for each, until in self._calm_at.items() if until > now}
        self._calm_at[cause] = now + seconds
        if cause in self._reviews:  # it came while the deployments were enqueued
            asyncio.get_running_loop().call_later(seconds, self._review.set)

    async def run(self, follow: Callable[[asyncio.TaskGroup], Awaitable[None]], lead: Lead, work: Work) -> None:
        """Watch the API server until cancelled, and do the leader's `work` while leading.

        `follow` starts the part's other watches and returns once they are synced. Remaining events are written at the
        end.
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


def not_synced(caches: Iterable[AnyReflector]) -> str | None:
    """Why the first cache that is not synced is not; None if all are synced."""
    for cache in caches:
        if not cache.synced.is_set() and cache.missing:
            return f"the API server does not serve {cache.kind}: install the CRDs (airunway crds)"
        if not cache.synced.is_set():
            return f"the {cache.kind.plural} have not been read yet"
    return None
