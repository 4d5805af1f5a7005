"""Strangers at the webhook's port and what else runs in its loop: one begins at a time, others come between."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from time import monotonic

from aiohttp import web

from airunway.process.connections import ConnectionLimits, Connections
from airunway.webhook.server import Pace

STRANGERS = 40


@asynccontextmanager
async def looking_on(look: Callable[[], None]) -> AsyncIterator[None]:
    """Something else in the loop, which looks each time that it has its turn."""

    async def go_on() -> None:
        while True:
            look()
            await asyncio.sleep(0)

    other = asyncio.create_task(go_on())
    try:
        yield
    finally:
        other.cancel()


async def test_h3c_connections_are_accepted_one_in_a_turn() -> None:
    """All are there already, so that accepting waits for nothing."""
    begun: list[int] = []
    tls, limits = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ConnectionLimits(accept_seconds=0)
    connections = Connections(tls, limits, port="the webhook", on_turned_away=lambda _: None)

    async def unasked(_: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=STRANGERS))
        listener.setblocking(False)
        for _ in range(STRANGERS):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        async with looking_on(lambda: begun.append(len(connections))):
            accepting = asyncio.create_task(connections.accept(listener, web.Server(unasked)))
            while len(connections) < STRANGERS:
                await asyncio.sleep(0)
            accepting.cancel()
            with suppress(asyncio.CancelledError):
                await accepting
    assert max(after - before for before, after in itertools.pairwise(begun)) == 1


async def test_h3c_reviews_begin_one_in_a_turn_and_rest_as_long() -> None:
    pace, begun, turns = Pace(), 0, list[int]()
    began: list[float] = []
    ended: list[float] = []

    async def review() -> None:
        nonlocal begun
        await pace.begin()
        begun += 1
        began.append(monotonic())
        while monotonic() < began[-1] + 0.002:  # what judging does with the loop
            pass
        ended.append(monotonic())

    async with looking_on(lambda: turns.append(begun)), asyncio.TaskGroup() as group:
        for _ in range(STRANGERS):
            group.create_task(review())
    assert max(after - before for before, after in itertools.pairwise(turns)) == 1
    rests = [after - before for before, after in zip(ended, began[1:], strict=False)]
    assert min(rests) >= 0.002
    assert turns.count(STRANGERS // 2) > 1  # others have more than one turn until the next begins
