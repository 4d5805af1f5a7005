"""Reading our own writes: a cache that lags behind must not make us write the same thing twice.

A write's answer is the newest state that we know until the watch brings it (or something newer). Without this, any
event that arrives between a write and its echo makes a reconcile see the past and write again.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from airunway.resource import ObjectKey, Resource, dig, key_of, uid_of

__all__ = ["Cache", "Overlay"]

Handler = Callable[[ObjectKey, Resource | None, Resource | None], None]


class Cache(Protocol):
    """The part of a Reflector that an overlay lies on."""

    def get(self, key: ObjectKey) -> Resource | None: ...
    def add_handler(self, handler: Handler) -> None: ...


class Overlay:
    """A reflector's cache with the answers to our own writes on top.

    An answer that the watch has not confirmed within `patience` seconds is dropped: the object may have been deleted
    before the answer was noted, and then no event will ever come.

    `project` is the cache's own projection; `restore` makes of what it keeps what `get` gives.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        project: Callable[[Resource], Resource] | None = None,
        restore: Callable[[Resource], Resource] | None = None,
        patience: float = 10.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._cache = cache
        self._project = project or (lambda obj: obj)
        self._restore = restore or (lambda obj: obj)
        self.patience = patience
        self._clock = clock
        self._written: dict[ObjectKey, tuple[Resource, float]] = {}
        cache.add_handler(self._on_change)

    def note(self, answer: Resource) -> None:
        """Remember the API server's answer to a write of ours."""
        self._written[key_of(answer)] = (self._project(answer), self._clock())

    def get(self, key: ObjectKey) -> Resource | None:
        """The newest known state of an object, or None."""
        newest = self._newest(key)
        return None if newest is None else self._restore(newest)

    def _newest(self, key: ObjectKey) -> Resource | None:
        cached = self._cache.get(key)
        entry = self._written.get(key)
        if entry is None:
            return cached
        answer, at = entry
        if self._clock() - at > self.patience or (cached is not None and not _newer(answer, cached)):
            del self._written[key]
            return cached
        return answer

    def unconfirmed(self, key: ObjectKey) -> bool:
        """Whether what `get` returns rests on an answer that the watch has not confirmed yet."""
        return self._newest(key) is not None and key in self._written

    def _on_change(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        entry = self._written.get(key)
        if entry is None:
            return
        gone = new is None and old is not None and uid_of(old) == uid_of(entry[0])
        if gone or (new is not None and not _newer(entry[0], new)):
            del self._written[key]


def _newer(answer: Resource, cached: Resource) -> bool:
    """Whether the answer is of a later state than the cached object. Versions that are no numbers: the cache wins."""
    ours, theirs = (str(dig(obj, "metadata", "resourceVersion", default="")) for obj in (answer, cached))
    return ours.isdecimal() and theirs.isdecimal() and int(ours) > int(theirs)
