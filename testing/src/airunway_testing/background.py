"""Work that goes on beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def in_background(work: Awaitable[object]) -> AsyncIterator[asyncio.Future[object]]:
    """Run `work` as long as the context lasts; yields its task. Raises what ended the work before the context did."""
    task = asyncio.ensure_future(work)
    try:
        yield task
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
