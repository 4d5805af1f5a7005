"""Settings of the garbage collector for a process whose memory is mostly caches.

A full collection goes through all that lives: a tenth of a second with ten thousand deployments, in which neither
probes nor the lease are served. It finds next to nothing, since what caches hold has no cycles and goes with its last
reference. So collections are made while there is little to go through, and what survives one is put aside (frozen).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_paused", "short_gc_pauses"]

_THRESHOLDS = (10_000, 0, 0)
"""Every 10,000 more containers: first what is new, then what is left of that and as much again, then the whole, some
30,000, fifteen milliseconds' worth. A pass makes thousands that are gone by its end: who looks more often goes through
those (every 2,000: 0.9 of the 9 ms that a provider takes for a new deployment; every 10,000 some 0.2).
"""

_ASIDE = 15_000
"""Containers that survived: as many are put aside."""

_THAW = 100
"""Times that something is put aside until all of it is gone through once, for the cycles that have died there."""


@contextmanager
def short_gc_pauses() -> Iterator[None]:
    """Keep the pauses of this process's collector short, however much it holds; for as long as the process lives."""
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
    """How many containers the oldest generation has.

    In one call of C, so that no other thread runs while the list of them exists: `tuple` of an iterator raises a
    SystemError when somebody else holds the tuple that it is filling.
    """
    return next(map(len, map(gc.get_objects, (2,))))


@contextmanager
def gc_paused() -> Iterator[None]:
    """No collection meanwhile: for work that makes tens of thousands of containers and no cycle.

    The collector would only walk them, over and over. Several threads may be in it at a time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
