"""How often edits of one object bring passes: the first ones at once, one that is edited without end once a second."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

__all__ = ["BURST", "INTERVAL", "Edits"]

BURST = 5
"""Edits of one object that are each acted on at once: more than a person, a pipeline and an autoscaler make."""

INTERVAL = 1.0
"""Seconds between the passes of an object whose burst is used up, and until an edit more is acted on at once again."""

_REMEMBERED = 1024
"""Objects above which those are looked for whose burst is whole again."""

K = TypeVar("K", bound=Hashable)


class Edits(Generic[K]):
    """Counts the edits of each object; `clock` in seconds, only forward."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._whole_at: dict[K, float] = {}  # when an object's burst is whole again
        self._most = _REMEMBERED

    def rest_after(self, key: K) -> float:
        """`key` was edited: the seconds for which it is to rest from now on (none where it may be acted on at once)."""
        now = self._clock()
        whole_at = max(now, self._whole_at.get(key, now))
        if whole_at - now <= BURST * INTERVAL:  # else it rests, and what comes meanwhile is one with the next pass
            whole_at += INTERVAL
            self._whole_at[key] = whole_at
            if len(self._whole_at) > self._most:
                self._whole_at = {each: when for each, when in self._whole_at.items() if when > now}
                self._most = max(_REMEMBERED, 2 * len(self._whole_at))
        return max(0.0, whole_at - now - BURST * INTERVAL)
