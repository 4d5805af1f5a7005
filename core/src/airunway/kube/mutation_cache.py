"""A cache that reads its own writes (client-go: MutationCache): a watch that lags must not cause a second write.

A write's answer is the newest state that we know until the watch brings it (or something newer). Without this, any
event that arrives between a write and its echo makes a reconcile see the past and write again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from airunway.resource import ObjectKey, Resource, dig, key_of, uid_of

__all__ = ["Listener", "MutationCache", "Store"]

Handler = Callable[[ObjectKey, Resource | None, Resource | None], None]

Listener = Callable[[ObjectKey, Resource | None, Resource | None, bool], None]
"""``listener(key, old, new, echo)``: as a handler, with whether `new` is the very answer to a write of ours."""


class Store(Protocol):
    """The part of a Reflector that an overlay lies on."""

    def get(self, key: ObjectKey) -> Resource | None: ...
    def add_handler(self, handler: Handler) -> None: ...


class MutationCache:
    """A reflector's cache with the answers to our own writes on top.

    The watch may bring the deletion of an object before the answer to a write of ours is here: an answer about what is
    gone counts for nothing, since no event would ever end it. One that the watch has not confirmed within `patience`
    seconds is dropped too: between two watches an object can come and go unseen.

    `project` is the cache's own projection; `restore` makes of what it keeps what `get` gives.
    """

    def __init__(
        self,
        cache: Store,
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
        self._listeners: list[Listener] = []
        self._under_way: dict[ObjectKey, int] = {}
        self._untold: dict[ObjectKey, tuple[Resource | None, Resource | None, bool]] = {}
        self._gone: dict[ObjectKey, set[str]] = {}  # by uid, since a write began
        cache.add_handler(self._on_change)

    def note(self, answer: Resource) -> None:
        """Remember the API server's answer to a write of ours."""
        key = key_of(answer)
        if uid_of(answer) not in self._gone.get(key, ()):
            self._written[key] = (self._project(answer), self._clock())

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

    def add_listener(self, listener: Listener) -> None:
        """Tells `listener` of every change of the cache from now on.

        The watch often brings a write before its answer is here. What happens to an object while we write it is told
        once that is over: as one change, and as an echo if nothing came after ours.
        """
        self._listeners.append(listener)

    @contextmanager
    def writing(self, key: ObjectKey) -> Iterator[None]:
        """For the time in which an object is written and the answer noted."""
        self._under_way[key] = self._under_way.get(key, 0) + 1
        try:
            yield
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
                self._gone.pop(key, None)
                if (untold := self._untold.pop(key, None)) is not None:
                    old, new, echo = untold
                    # Of the write before this one, whose echo came late, or of this one.
                    self._tell(key, old, new, echo=echo or self._is_answer(key, new))

    def _tell(self, key: ObjectKey, old: Resource | None, new: Resource | None, *, echo: bool) -> None:
        for listener in self._listeners:
            listener(key, old, new, echo)

    def _is_answer(self, key: ObjectKey, new: Resource | None) -> bool:
        """Whether that is what the API server has answered to our last write."""
        entry = self._written.get(key)
        return entry is not None and new is not None and _version(entry[0]) == _version(new)

    def _on_change(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        entry, echo = self._written.get(key), self._is_answer(key, new)
        if key in self._under_way:
            before, *_ = self._untold.get(key, (None,))
            self._untold[key] = (old if before is None else before, new, echo)
            if old is not None and (new is None or uid_of(new) != uid_of(old)):
                self._gone.setdefault(key, set()).add(uid_of(old))
        else:
            self._tell(key, old, new, echo=echo)
        if entry is None:
            return
        gone = new is None and old is not None and uid_of(old) == uid_of(entry[0])
        if gone or (new is not None and not _newer(entry[0], new)):
            del self._written[key]


def _newer(answer: Resource, cached: Resource) -> bool:
    """Whether the answer is of a later state than the cached object. Versions that are no numbers: the cache wins."""
    ours, theirs = _version(answer), _version(cached)
    return ours.isdecimal() and theirs.isdecimal() and int(ours) > int(theirs)


def _version(obj: Resource) -> str:
    return str(dig(obj, "metadata", "resourceVersion", default=""))
