"""Ages by the local clock, counted from when a value was first observed: clocks of other machines may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

__all__ = ["SKEW", "FirstSeen", "human_duration"]

K = TypeVar("K", bound=Hashable)

SKEW = timedelta(minutes=10)
"""By how much the clocks of two machines may differ without any outcome being another."""


class FirstSeen(Generic[K]):
    """When, by our own `clock`, what others wrote came to be: when we saw it change, as with a Lease.

    A process that starts has seen no change yet. It takes what it finds for new, unless that is older than clocks can
    explain: so a time long ago stays long ago, however often the observer starts again.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._seen: dict[K, tuple[datetime | None, datetime]] = {}

    def since(self, key: K, said: datetime | None, *, doubted: timedelta = timedelta()) -> datetime:
        """The moment of our clock that `said`, the time which stands at `key` now (None: none does), stands for.

        `doubted` is the age of what was never seen to change and lies further ahead than clocks can explain: nothing is
        known of it.
        """
        known = self._seen.get(key)
        if known is not None and known[0] == said:
            return known[1]
        moment = now = self._clock()
        if said is not None:
            if known is None and said - now > SKEW:
                moment = now - doubted
            elif now - said > SKEW:
                moment = said + SKEW
        self._seen[key] = (said, moment)
        return moment

    def forget(self, key: K) -> None:
        self._seen.pop(key, None)


def human_duration(age: timedelta) -> str:
    """A duration in words, rounded down."""
    seconds = max(0, int(age.total_seconds()))
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{seconds} s"
