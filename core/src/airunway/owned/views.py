"""The caches of the kinds that a part writes: an object is found by its name, and by the owner that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from airunway.kube import AnyReflector, Index, Kind, MutationCache
from airunway.owned.objects import Identity, identity_in
from airunway.resource import Resource, key_of


@dataclass(frozen=True, kw_only=True)
class View:
    """The objects of one kind."""

    kind: Kind
    """The kind, in the version that is written."""
    reflector: AnyReflector
    """The cache as the API server's watch fills it."""
    objects: MutationCache
    """The cache with the answers to our own writes."""

    @property
    def synced(self) -> bool:
        """Whether all objects have been read once."""
        return self.reflector.synced.is_set()

    @property
    def served(self) -> bool:
        """Whether the cluster serves the kind, as far as it has been read."""
        return self.synced and not self.reflector.missing


@dataclass(frozen=True, kw_only=True)
class OwnedView(View):
    """The objects of one kind that belong to owners."""

    of: Index
    """The objects by their owner."""

    def owned(self, owner: Hashable, *, only: Callable[[Resource], bool] = lambda _: True) -> Iterator[Resource]:
        """Our objects of an owner; `only` is asked about each as it is cached."""
        for obj in self.of.get(owner):
            if only(obj) and (found := self.objects.get(key_of(obj))) is not None:
                yield found


def view_of(
    reflector: AnyReflector,
    *,
    project: Callable[[Resource], Resource],
    owners_of: Callable[[Resource], Iterable[Hashable]],
    restore: Callable[[Resource], Resource] | None = None,
) -> OwnedView:
    """The view of what a reflector caches; `owners_of` indexes it, `project` and `restore` are those of its cache."""
    objects = MutationCache(reflector, project=project, restore=restore)
    return OwnedView(kind=reflector.kind, reflector=reflector, objects=objects, of=reflector.add_index(owners_of))


def views_by_kind(views: Iterable[OwnedView]) -> Mapping[tuple[str, str], OwnedView]:
    """The views by group and kind."""
    return {(view.kind.group, view.kind.kind): view for view in views}


def known_objects(
    views: Mapping[tuple[str, str], OwnedView],
    owner: Hashable,
    wanted: Iterable[Resource],
    *,
    only: Callable[[Resource], bool] = lambda _: True,
) -> dict[Identity, Resource]:
    """The objects of an owner in these views, and those with the name of a `wanted` one, whose namespace is set.

    `only` is asked about each object of the owner as it is cached, before it is restored.
    """
    found = {
        Identity(view.kind.group, view.kind.kind, key_of(obj).name): obj
        for view in views.values()
        for obj in view.owned(owner, only=only)
    }
    for obj in wanted:
        identity = identity_in(obj)
        view = views.get(identity[:2])
        if view is not None and (live := view.objects.get(key_of(obj))) is not None:
            found[identity] = live
    return found
