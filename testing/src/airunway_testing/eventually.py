"""Waiting for what happens a moment later, without a guess at how long that takes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Protocol

PATIENCE = 120.0
"""Seconds after which something that should happen counts as not happening: garbage collection alone needs 30.

A safety net for hung tests, not a measurement.
"""


_LONGEST_PAUSE = 0.1


def pause(waited: float, *, shortest: float = 0.01, took: float = 0.0) -> float:
    """Seconds until the next look, after so many seconds of waiting; the last look took `took` seconds.

    A look at an API server takes 2 ms of processor time: waiting for ten seconds takes 150 looks, not 700. One that
    takes longer, for a large object or on a busy machine, is made less often.
    """
    return max(shortest, min(waited / 20, _LONGEST_PAUSE), min(3 * took, 2 * _LONGEST_PAUSE))


class Eventually(Protocol):
    """The type of `eventually`, which is a fixture of `airunway_testing.fixtures`, too."""

    async def __call__(self, look: Callable[[], object | Awaitable[object]], /) -> object:
        """What `look` gives once that is true."""


async def eventually(look: Callable[[], object | Awaitable[object]], /, *, patience: float = PATIENCE) -> object:
    """Look again and again until there is something true to be seen, and return that; `look` may be a coroutine
    function. Raises AssertionError after so many seconds.
    """
    clock = asyncio.get_running_loop().time
    start = clock()
    while True:
        begun = clock()
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        now = clock()
        assert now - start < patience, f"still {found!r} after {patience:.0f} s"
        await asyncio.sleep(pause(now - start, took=now - begun))
