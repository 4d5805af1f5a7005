"""What a part reads, declared kind by kind: its projection and scope, whose its objects are, and what a change wakes.

`Sources.owns` and `Sources.watches` are what Owns and Watches are in controller-runtime's builder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol, TypeVar

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import Handler, Kind, Listener, MutationCache, compact_objects
from airunway.owned.views import OwnedView, View, view_of
from airunway.process.base_controller import not_synced
from airunway.process.caches import Caches, Projection, SharedCache
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.selection.facts import engine_entry

K = TypeVar("K", bound=Hashable)


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


class Sources:
    """Kinds that are followed, waited for and reported together: a `Source` of several.

    Each has a projection and a scope: objects with these labels or fields, in the watched namespaces or `everywhere`. A
    kind that is `optional` may be absent; without any other one the part is not ready.
    """

    def __init__(self, caches: Caches) -> None:
        self._shared = caches
        self._kinds: dict[SharedCache, bool] = {}
        """The caches, each with whether its kind may be absent."""
        self._handlers: list[tuple[SharedCache, Handler]] = []
        self._others: list[Source] = []

    def watches(
        self,
        kind: Kind,
        *,
        project: Projection,
        wakes: Handler | None = None,
        label_selector: str = "",
        field_selector: str = "",
        everywhere: bool = False,
        optional: bool = False,
    ) -> SharedCache:
        """Read a kind; `wakes(key, old, new)` is called for every change from `run` on, and first for all objects."""
        cache = self._shared.of(
            kind,
            project=project,
            label_selector=label_selector,
            field_selector=field_selector,
            everywhere=everywhere,
            optional=optional,
        )
        self._kinds[cache] = optional
        if wakes is not None:
            self._handlers.append((cache, wakes))
        return cache

    def reconciles(
        self,
        kind: Kind,
        *,
        project: Callable[[Resource], Resource],
        wakes: Callable[[ObjectKey], None],
        optional: bool = False,
    ) -> View:
        """Read and write a kind that the part reconciles; `wakes(key)` is called for every change by others."""
        cache = self.watches(kind, project=project, optional=optional)
        view = View(kind=kind, reflector=cache, objects=MutationCache(cache, project=project))
        view.objects.add_listener(_for_each(lambda obj: (key_of(obj),), wakes))
        return view

    def owns(
        self,
        kind: Kind,
        *,
        project: Callable[[Resource], Resource],
        owners_of: Callable[[Resource], Iterable[K]],
        wakes: Callable[[K], None] | None = None,
        restore: Callable[[Resource], Resource] | None = None,
        label_selector: str = "",
        everywhere: bool = False,
        optional: bool = False,
    ) -> OwnedView:
        """Read and write a kind whose objects belong to owners. `wakes(owner)` is called for every owner of an object
        that changed; not for an update by the part itself. `restore` undoes what `project` packs.
        """
        cache = self.watches(
            kind, project=project, label_selector=label_selector, everywhere=everywhere, optional=optional
        )
        view = view_of(cache, project=project, owners_of=owners_of, restore=restore)
        if wakes is not None:
            view.objects.add_listener(_for_each(owners_of, wakes))
        return view

    def add(self, *sources: Source) -> None:
        """Read other sources with these kinds."""
        self._others += sources

    def unready(self) -> str | None:
        """Why the kinds cannot be read yet, or None."""
        lacking = [cache for cache, optional in self._kinds.items() if cache.missing and not optional]
        if (problem := not_synced(lacking)) is not None:
            return problem
        unread = [cache.kind.plural for cache, optional in self._kinds.items() if not _read(cache, optional).is_set()]
        if not unread:
            return first_problem(self._others)
        if len(unread) == 1:
            return f"the {unread[0]} have not been read yet"
        return f"these kinds have not been read yet: {', '.join(unread)}"

    async def read(self) -> None:
        """Wait until all can be read."""
        for cache, optional in self._kinds.items():
            await _read(cache, optional).wait()
        for source in self._others:
            await source.read()

    async def run(self) -> None:
        """Follow all until cancelled."""
        for cache, handler in self._handlers:
            cache.add_handler(handler)
        async with asyncio.TaskGroup() as group:
            for cache in self._kinds:
                group.create_task(cache.run(), name=str(cache.kind))
            for source in self._others:
                group.create_task(source.run(), name=type(source).__name__)


def _for_each(of: Callable[[Resource], Iterable[K]], wakes: Callable[[K], None]) -> Listener:
    """A listener that wakes what old and new object are `of`; not for an update by the part itself."""

    def listener(_key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if not (echo and old is not None):
            for woken in {each for obj in (old, new) if obj is not None for each in of(obj)}:
                wakes(woken)

    return listener


def _read(cache: SharedCache, optional: bool) -> asyncio.Event:
    return cache.answered if optional else cache.synced


def first_problem(sources: Iterable[Source]) -> str | None:
    """Why the first source that cannot be read yet cannot; None if all can."""
    return next((problem for source in sources if (problem := source.unready()) is not None), None)


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
