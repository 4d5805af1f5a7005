"""Ages by the local clock, counted from when a value was first observed: clocks of other machines may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SKEW = timedelta(minutes=10)
"""How much the clocks of two machines may differ without any effect."""


class FirstSeen(Generic[K]):
    """The local time at which each value of another machine was first observed to have changed, as with a Lease.

    A process that has just started has observed no change yet. It treats a value as new unless the value is older than
    clock skew can explain: so a time long ago stays long ago even if the process restarts often.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._seen: dict[K, tuple[datetime | None, datetime]] = {}

    def since(self, key: K, reported: datetime | None, *, doubted: timedelta = timedelta()) -> datetime:
        """Returns the local time for `reported`, the time that is stored at `key` now (None: there is none).

        `doubted` is the age of a time that was never observed to change, and is further in the future than clock skew
        can explain: its true age is unknown.
        """
        known = self._seen.get(key)
        if known is not None and known[0] == reported:
            return known[1]
        moment = now = self._clock()
        if reported is not None:
            if known is None and reported - now > SKEW:
                moment = now - doubted
            elif now - reported > SKEW:
                moment = reported + SKEW
        self._seen[key] = (reported, moment)
        return moment

    def forget(self, key: K) -> None:
        self._seen.pop(key, None)


def human_duration(age: timedelta) -> str:
    """Returns a duration in words, rounded down."""
    seconds = max(0, int(age.total_seconds()))
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{seconds} s"
