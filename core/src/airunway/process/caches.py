"""The caches of one process: readers of the same objects share one cache.

A process may run the core and several providers (`process.manager`); it still lists and caches the ModelDeployments
once. A cache watches the API server while at least one reader runs. When the last reader ends, the cache is dropped,
and a new reader starts with an empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, TypeAlias, TypeVar

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import (
    AnyReflector,
    Client,
    Handler,
    Kind,
    UnionReflector,
    reflector_of,
    transform_once,
    wait_until_answered,
)
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource

T = TypeVar("T")

Projection: TypeAlias = Callable[[Resource], Resource | None]
"""A reflector's projection; two readers share a cache if their projections are equal."""

_PAGE = 100
"""Objects per page of a list. A page is decoded before it is trimmed: large ones enlarge the process for good."""


class Caches:
    """The caches of one process, in the namespaces that it watches (empty: the whole cluster).

    `project` is the projection of ModelDeployments: the union of what the parts of the process need. `metrics` show
    every running cache once.
    """

    def __init__(
        self,
        client: Client,
        *,
        project: Callable[[Resource], Resource],
        metrics: Metrics,
        namespaces: Sequence[str] = (),
    ) -> None:
        self.client = client
        self.project = transform_once(project)
        self.metrics = metrics
        self.namespaces = tuple(dict.fromkeys(namespaces))
        self._sources: dict[Hashable, _Source] = {}
        self._ones: dict[type, Any] = {}

    def one(self, make: type[T]) -> T:
        """The process-wide instance of `make`: a projection to which each of its readers adds what it needs, or what
        the core knows for its parts.
        """
        if make not in self._ones:
            self._ones[make] = make()
        found: T = self._ones[make]
        return found

    def deployments(self) -> SharedCache:
        return self.of(MODEL_DEPLOYMENT, project=self.project)

    def of(
        self,
        kind: Kind,
        *,
        project: Projection,
        label_selector: str = "",
        field_selector: str = "",
        everywhere: bool = False,
        optional: bool = False,
    ) -> SharedCache:
        """A reader's view of the cache of these objects; the reader runs it like a reflector.

        `everywhere`: in all namespaces, whatever the process watches. `optional`: a cluster without the kind is nothing
        to warn about.
        """
        identity = (kind, project, label_selector, field_selector, everywhere)
        source = self._sources.get(identity)
        if source is None:
            reflector = reflector_of(
                self.client,
                kind,
                namespaces=() if everywhere else self.namespaces,
                label_selector=label_selector,
                field_selector=field_selector,
                project=project,
                page_size=_PAGE,
                optional=optional,
            )
            source = _Source(reflector, self.metrics, on_end=lambda: self._sources.pop(identity, None))
            self._sources[identity] = source
        return SharedCache(source)


class _Source:
    """The part of a cache that its readers share: one reflector, which runs while a reader runs."""

    def __init__(self, reflector: AnyReflector, metrics: Metrics, *, on_end: Callable[[], object]) -> None:
        self.reflector = reflector
        self._on_end = on_end
        self.hooks: list[Callable[[str], None]] = []
        self._metrics = metrics
        self._readers = 0
        self._task: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """Run until cancelled, or until the reflector fails with a bug, which is raised to every reader."""
        if self._task is None:
            self._metrics.follow(self.reflector)
            self._count, self.reflector.on_restart = self.reflector.on_restart, self._on_restart
            self._task = asyncio.create_task(
                self.reflector.run(), name=str(self.reflector.kind), context=Context()
            )  # without the log fields of a part
        self._readers += 1
        try:
            await asyncio.shield(self._task)
        finally:
            self._readers -= 1
            if not self._readers:
                task, self._task = self._task, None
                self._on_end()
                self._metrics.unfollow(self.reflector)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task])

    def _on_restart(self, cause: str) -> None:
        if self._count is not None:
            self._count(cause)
        for hook in list(self.hooks):
            hook(cause)


class SharedCache(UnionReflector):
    """A cache from the view of one reader, used and run like a reflector of its own.

    Handlers that the reader added are removed when its run ends; `on_restart` is the reader's own.
    """

    def __init__(self, source: _Source) -> None:
        super().__init__([source.reflector])
        self._source = source
        self._handlers: list[Handler] = []
        self._hook: Callable[[str], None] | None = None

    @property
    def on_restart(self) -> Callable[[str], None] | None:
        return self._hook

    @on_restart.setter
    def on_restart(self, hook: Callable[[str], None] | None) -> None:
        if self._hook is not None:
            self._source.hooks.remove(self._hook)
        if hook is not None:
            self._source.hooks.append(hook)
        self._hook = hook

    def get(self, key: ObjectKey) -> Resource | None:
        return self._source.reflector.get(key)

    def add_handler(self, handler: Handler) -> None:
        self._handlers.append(handler)
        super().add_handler(handler)

    def remove_handler(self, handler: Handler) -> None:
        self._handlers.remove(handler)
        super().remove_handler(handler)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._source.follow(), name=str(self.kind))
                await self._first_answers()
        finally:
            self.on_restart = None
            for handler in list(self._handlers):
                self.remove_handler(handler)


class ScopedCaches:
    """The caches of a namespaced kind and of its cluster-scoped counterpart, and why they cannot be read yet.

    Example: RuntimeConfig and ClusterRuntimeConfig. A cluster without the CRDs counts as one without objects; CRDs that
    are installed later are noticed within 30 seconds.
    """

    def __init__(self, namespaced: SharedCache, cluster: SharedCache) -> None:
        self.namespaced, self.cluster = namespaced, cluster
        self._problems: dict[SharedCache, str] = {}

    @property
    def readable(self) -> bool:
        """Whether both kinds have been read once, or found not to be installed; it stays true."""
        return self.namespaced.answered.is_set() and self.cluster.answered.is_set()

    def unready(self) -> str | None:
        """Why the objects are not readable yet, with kind and verb; None if they are."""
        if self.readable:
            return None
        cache = self.cluster if self.namespaced.answered.is_set() else self.namespaced
        kind, cause = cache.kind, self._problems.get(cache)
        if cause is None:
            return f"the {kind.plural} have not been read yet"
        remedy = ": grant list and watch on them to the account of this process" if cause == "Forbidden" else ""
        return f"cannot list {kind.plural}.{kind.group} ({cause}){remedy}"

    async def read(self) -> None:
        """Wait until both kinds are readable."""
        await wait_until_answered([self.namespaced, self.cluster])

    async def run(self) -> None:
        """Follow both kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (self.namespaced, self.cluster):
                cache.on_restart = partial(self._problems.__setitem__, cache)
                group.create_task(cache.run(), name=str(cache.kind))
