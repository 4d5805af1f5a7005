"""Pages of metrics for whoever asks, however many do: made once a second at most, and one at a time."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from airunway.process.metrics import Metrics

__all__ = ["MAX_AGE", "Page", "Pages"]

MAX_AGE = 1.0
"""Seconds for which a page is served again."""

_REST = 3.0
"""A page is served for so many times as long as making it took, at least: that never takes all of a processor."""

_OPEN_METRICS = "application/openmetrics-text"


@dataclass(frozen=True, kw_only=True)
class Page:
    body: bytes
    compressed: bytes
    """The body as gzip."""
    content_type: str


class Pages:
    """The pages of one process, as text and as OpenMetrics; `clock` is one that only runs forward."""

    def __init__(self, metrics: Metrics, *, clock: Callable[[], float] = monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lock = asyncio.Lock()
        self._pages: dict[str, tuple[float, Page]] = {}

    async def get(self, accept: str) -> Page:
        """The page for an HTTP ``Accept``; there are two of them, whatever versions it asks for."""
        form = f"{_OPEN_METRICS}; version=1.0.0" if _OPEN_METRICS in accept else ""
        async with self._lock:
            good_until, page = self._pages.get(form, (0.0, None))
            started = self._clock()
            if page is None or started >= good_until:
                body, content_type = await self._metrics.page(form)
                compressed = await asyncio.to_thread(gzip.compress, body, 1)
                page = Page(body=body, compressed=compressed, content_type=content_type)
                ended = self._clock()
                self._pages[form] = (ended + max(MAX_AGE, _REST * (ended - started)), page)
            return page
