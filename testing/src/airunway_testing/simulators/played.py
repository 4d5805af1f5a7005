"""A simulated upstream beside a test of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from airunway.kube import Client
from airunway_testing.simulators.registry import Level, load_simulator

Play: TypeAlias = Callable[..., Awaitable[None]]


@asynccontextmanager
async def played(name: str, client: Client, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Play]:
    """``await play(level="api", scenario="instant")`` starts the simulator of that name; it stops with the context.

    It must not have reported an error by then: all that its tests do to it belongs to its everyday life. Raises
    AssertionError if it has.
    """
    stop = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def start(*, level: Level, scenario: str = "") -> None:
        run = load_simulator(name).run(client, level=level, scenario=scenario, stop=stop)
        tasks.append(asyncio.create_task(run))

    yield start
    stop.set()
    await asyncio.gather(*tasks)
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []
