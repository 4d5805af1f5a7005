"""Clocks that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class TimeOfDay:
    """The time of day, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Seconds:
    """Monotonic seconds that stand still until a test moves them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
