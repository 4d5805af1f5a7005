"""Garbage-collector settings for a process whose memory consists mostly of caches.

A full collection walks all live objects: a tenth of a second with ten thousand deployments, in which neither probes nor
the lease are served. It finds almost nothing, because cached objects have no cycles and are freed with their last
reference. So collections run while there is little to walk, and the survivors are moved aside (frozen).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (10_000, 0, 0)
"""A collection runs after every 10,000 additional containers.

The first collects the new objects, the next also those that survived it, and the third all, about 30,000 (15 ms). A
pass creates thousands of containers that are freed at its end, and more frequent collections would walk them: with
2,000 they take 0.9 of the 9 ms that a provider needs for a new deployment, with 10,000 about 0.2.
"""

_ASIDE = 15_000
"""Number of surviving containers at which they are frozen."""

_THAW = 100
"""After so many freezes everything is unfrozen and collected once, to free the cycles that have died there."""


@contextmanager
def short_gc_pauses() -> Iterator[None]:
    """Keeps the collector's pauses short while the context is open, no matter how much the process holds."""
    frozen = 0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal frozen
        if phase == "stop" and info["generation"] == 2 and _survivors() > _ASIDE:
            frozen += 1
            if frozen % _THAW:
                gc.freeze()
            else:
                gc.unfreeze()

    thresholds = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(on_collection)
    try:
        yield
    finally:
        gc.callbacks.remove(on_collection)
        gc.set_threshold(*thresholds)


def _survivors() -> int:
    """Returns the number of containers in the oldest generation.

    It is one call in C, so that no other thread runs while the list exists: `tuple` of an iterator raises a SystemError
    if other code references the tuple that it is filling.
    """
    return next(map(len, map(gc.get_objects, (2,))))


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disables the collector, for work that creates tens of thousands of containers and no cycles.

    The collector would walk them again and again. Several threads may use it at the same time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
