"""Reflectors that tests let run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from airunway.kube import Backoff, Reflector


@asynccontextmanager
async def running(reflector: Reflector) -> AsyncIterator[Reflector]:
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        await asyncio.wait({task})


def quick() -> Backoff:
    return Backoff(base=0.02, cap=0.1)
