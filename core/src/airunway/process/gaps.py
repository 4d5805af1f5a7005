"""How long did the event loop run nothing but one thing? Probes, lease and webhook wait for as long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

__all__ = ["INTERVAL", "WINDOW", "LoopGaps"]

INTERVAL = 0.1
"""Seconds between two looks: what a gap is measured to."""

WINDOW = 60.0
"""Seconds for which a gap is shown: every scraper sees it that asks at least once a minute, however many there are."""


class LoopGaps:
    """Notes by how much the loop comes late to a look that was due; `clock` is one that only runs forward."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._gaps: deque[tuple[float, float]] = deque()  # (when, seconds): later ones are shorter

    def note(self, seconds: float) -> None:
        """A gap of that length ends now."""
        while self._gaps and self._gaps[-1][1] <= seconds:
            self._gaps.pop()
        self._gaps.append((self._clock(), seconds))
        self._forget()

    def longest(self) -> float:
        """Seconds of the longest gap that ended within the window; 0 if there was none."""
        self._forget()
        return self._gaps[0][1] if self._gaps else 0.0

    def _forget(self) -> None:
        while self._gaps and self._clock() - self._gaps[0][0] > WINDOW:
            self._gaps.popleft()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            due = self._clock() + INTERVAL
            await asyncio.sleep(INTERVAL)
            self.note(max(0.0, self._clock() - due))
