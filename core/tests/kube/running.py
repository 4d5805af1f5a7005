"""What runs until it is cancelled, for as long as a test needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar


class Runs(Protocol):
    async def run(self) -> None: ...


R = TypeVar("R", bound=Runs)


@asynccontextmanager
async def running(work: R) -> AsyncIterator[R]:
    task = asyncio.create_task(work.run())
    try:
        yield work
    finally:
        task.cancel()
        await asyncio.wait({task})
