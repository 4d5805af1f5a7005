"""The caches of one process: readers of the same objects share one cache.

A process may run the core and several providers (`process.manager`); it still lists and caches the ModelDeployments
once. A cache watches the API server while at least one reader runs. When the last reader ends, the cache is dropped,
and a new reader starts with an empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import (
    AnyReflector,
    Client,
    Handler,
    Kind,
    UnionReflector,
    compact_objects,
    reflector_of,
    transform_once,
)
from airunway.owned.views import OwnedView, view_of
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource, dig
from airunway.selection.facts import engine_entry

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

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


class Source(Protocol):
    """What a part reads: one kind, or several that belong together."""

    def unready(self) -> str | None:
        """Why it cannot be read yet, or None."""
        ...

    async def read(self) -> None:
        """Wait until it can be read. The part leads only then."""
        ...

    async def run(self) -> None:
        """Follow it until cancelled."""
        ...


class CacheSet:
    """Caches that are followed, waited for and reported together: a `Source`.

    Of an optional kind it is sufficient to know that the cluster does not serve it; CRDs that are installed later are
    noticed within 30 seconds.
    """

    def __init__(self, kinds: Mapping[SharedCache, bool] | None = None) -> None:
        """`kinds` has for each cache whether its kind is optional."""
        self._kinds = dict(kinds or {})
        self._handlers: list[tuple[SharedCache, Handler]] = []
        self._others: list[Source] = []
        self._causes: dict[SharedCache, str] = {}

    def unready(self) -> str | None:
        """Why the kinds cannot be read yet, or None."""
        unread = [cache for cache, optional in self._kinds.items() if not _known(cache, optional).is_set()]
        for cache in unread:
            if cache.missing and not self._kinds[cache]:
                return f"the API server does not serve {cache.kind}: install the CRDs (airunway crds)"
            if (cause := self._causes.get(cache)) is not None:
                remedy = ": grant list and watch on them to the account of this process" if cause == "Forbidden" else ""
                return f"cannot list {cache.kind} ({cause}){remedy}"
        if unread:
            return f"the {', '.join(cache.kind.plural for cache in unread)} have not been read yet"
        return first_problem(self._others)

    async def read(self) -> None:
        """Wait until all can be read."""
        for cache, optional in self._kinds.items():
            await _known(cache, optional).wait()
        for source in self._others:
            await source.read()

    async def run(self) -> None:
        """Follow all until cancelled."""
        for cache, handler in self._handlers:
            cache.add_handler(handler)
        async with asyncio.TaskGroup() as group:
            for cache in self._kinds:
                cache.on_restart = partial(self._causes.__setitem__, cache)
                group.create_task(cache.run(), name=str(cache.kind))
            for source in self._others:
                group.create_task(source.run(), name=type(source).__name__)


def _known(cache: SharedCache, optional: bool) -> asyncio.Event:
    return cache.answered if optional else cache.synced


def first_problem(sources: Iterable[Source]) -> str | None:
    """Why the first source that cannot be read yet cannot; None if all can."""
    return next((problem for source in sources if (problem := source.unready()) is not None), None)


class ScopedCaches(CacheSet):
    """The caches of a namespaced kind and of its cluster-scoped counterpart, such as RuntimeConfig and
    ClusterRuntimeConfig. A cluster without the CRDs counts as one without objects.
    """

    def __init__(self, namespaced: SharedCache, cluster: SharedCache) -> None:
        super().__init__({namespaced: True, cluster: True})
        self.namespaced, self.cluster = namespaced, cluster

    @property
    def readable(self) -> bool:
        """Whether both kinds have been read once, or found not to be installed; it stays true."""
        return all(cache.answered.is_set() for cache in self._kinds)


class Scope(TypedDict, total=False):
    """Which objects of a kind are read, and whether the kind may be absent (as for `Caches.of`)."""

    label_selector: str
    field_selector: str
    everywhere: bool
    optional: bool


class Sources(CacheSet):
    """The kinds that a part reads, declared one by one, in the way of controller-runtime's builder."""

    def __init__(self, caches: Caches) -> None:
        super().__init__()
        self._caches = caches

    def watches(
        self, kind: Kind, *, project: Projection, wakes: Handler | None = None, **scope: Unpack[Scope]
    ) -> SharedCache:
        """Read a kind. `wakes(key, old, new)` is called in `run`: for all objects, and then for every change."""
        cache = self._caches.of(kind, project=project, **scope)
        self._kinds[cache] = scope.get("optional", False)
        if wakes is not None:
            self._handlers.append((cache, wakes))
        return cache

    def owns(
        self,
        kind: Kind,
        *,
        project: Callable[[Resource], Resource],
        owners_of: Callable[[Resource], Iterable[K]],
        wakes: Callable[[K], None] | None = None,
        restore: Callable[[Resource], Resource] | None = None,
        **scope: Unpack[Scope],
    ) -> OwnedView:
        """Read and write a kind whose objects belong to owners. `wakes(owner)` is called for every change, with each
        owner of the object before and after; not for an update by the part itself. `restore` undoes what `project`
        packs.
        """
        cache = self.watches(kind, project=project, **scope)
        view = view_of(cache, project=project, owners_of=owners_of, restore=restore)

        def on_change(_key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
            if wakes is not None and not (echo and old is not None):
                for owner in {each for obj in (old, new) if obj is not None for each in owners_of(obj)}:
                    wakes(owner)

        view.objects.add_listener(on_change)
        return view

    def add(self, source: Source) -> None:
        """Read another source with these kinds."""
        self._others.append(source)


class ProviderCapabilities(Sources):
    """The capabilities in the InferenceProviderConfigs. `on_change(provider)` is called if those of one change."""

    def __init__(self, caches: Caches, *, on_change: Callable[[str], None]) -> None:
        super().__init__(caches)
        project = compact_objects(names.CORE_MANAGER)
        self.configs = self.watches(INFERENCE_PROVIDER_CONFIG, project=project, wakes=self._on_config)
        self._on_change = on_change

    def provider_of(self, deployment: Resource | None) -> str:
        """The registered provider of a deployment; empty if it has none."""
        name = dig(deployment, "status", "provider", "name")
        return name if isinstance(name, str) and self.configs.get(ObjectKey("", name)) else ""

    def engine_of(self, deployment: Resource) -> Resource | None:
        """The provider's entry for the engine that a deployment uses; None if it is not known."""
        config = self.configs.get(ObjectKey("", self.provider_of(deployment)))
        return engine_entry(config, deployment)

    def _on_config(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if dig(old, "spec", "capabilities") != dig(new, "spec", "capabilities"):
            self._on_change(key.name)
