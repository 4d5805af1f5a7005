"""Exponential backoff with jitter."""

from __future__ import annotations

import random

__all__ = ["Backoff", "backoff_delay", "soonest"]


def backoff_delay(attempt: int, *, base: float, cap: float, rng: random.Random) -> float:
    """Returns the seconds to wait after the `attempt`-th failure in a row (the first is 1).

    The delay doubles from `base`, with a jitter of ±20 %, and is at least `base` and at most `cap`.
    """
    exponent = min(max(attempt, 1) - 1, 64)  # a larger one would overflow the float
    return min(cap, max(base, base * 2.0**exponent * rng.uniform(0.8, 1.2)))


class Backoff:
    """The delays of one activity that keeps failing, until `reset`."""

    def __init__(self, *, base: float = 0.2, cap: float = 30.0, rng: random.Random | None = None) -> None:
        self._base, self._cap, self._rng = base, cap, rng or random.Random()
        self.failures = 0

    def next(self) -> float:
        """Counts one more failure; returns the delay after it, in seconds."""
        self.failures += 1
        return backoff_delay(self.failures, base=self._base, cap=self._cap, rng=self._rng)

    def reset(self) -> None:
        self.failures = 0


def soonest(*seconds: float | None) -> float | None:
    """Returns the shortest of several delays, in seconds; None stands for no delay, and is returned if all are None."""
    return min((each for each in seconds if each is not None), default=None)
