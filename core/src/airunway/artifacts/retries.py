"""When a step that failed is tried again (spec/platform.md, "Retry"). Pure.

Example: a hub that does not answer is tried again after 60 s, 120 s, 240 s, … and then every hour.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airunway.artifacts.results import Result
from airunway.status import Category, category_of

__all__ = ["LONGEST", "next_attempt"]

_FIRST = 60.0
LONGEST = timedelta(hours=1)
"""Longest time between two tries; a fault of the configuration is tried again after this time."""


def next_attempt(result: Result, *, attempts: int, ended: datetime) -> datetime | None:
    """When the step is tried again after `attempts` tries; None: only after a change of the spec (a full volume)."""
    category = category_of(result.reason)
    if result.reason == "StorageFull":
        return None
    if category is Category.CONFIG:
        return ended + LONGEST
    seconds = _FIRST * 2 ** min(max(attempts, 1) - 1, 10)
    asked = result.retry_after or 0.0
    # A server that asks for more than an hour gets it.
    return ended + max(min(LONGEST, timedelta(seconds=seconds)), timedelta(seconds=asked))
