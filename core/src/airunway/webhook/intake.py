"""From a request to its bytes, and from its bytes to its turn: within limits of size, time and memory.

Small bodies need no account: there are no more of them than connections. Large ones have a budget of their own, so that
whoever sends many of them keeps out large reviews and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ParamSpec, TypeVar

from aiohttp import web

from airunway.process.connections import Cause, connection_of
from airunway.webhook.limits import Limits, TurnedAway

__all__ = ["Intake", "Pace", "aside"]

_LONGEST_REST = 0.1
"""Seconds. A turn may have been long for other reasons than the review that began in it."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Intake:
    """Lets requests in; `held_bytes`, `judged` and their maxima say what is in flight."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._room = asyncio.Semaphore(max(1, limits.memory_bytes // limits.body_bytes))
        self._turns = asyncio.Semaphore(limits.reviews)
        self._large = asyncio.Lock()
        self._pace = Pace()
        self.held_bytes = self.most_held_bytes = 0
        self.judged = self.most_judged = 0

    def is_large(self, size: int) -> bool:
        """Whether a body of that many bytes is decoded and judged aside."""
        return size > self._limits.large_bytes

    @asynccontextmanager
    async def review(self, request: web.Request) -> AsyncIterator[bytearray]:
        """The body of a review whose turn it is. Raises TurnedAway."""
        size = self._size_of(request)
        async with AsyncExitStack() as stack:
            if self.is_large(size):
                await stack.enter_async_context(_turn(self._room, self._limits.wait_seconds))
            self.held_bytes += size
            self.most_held_bytes = max(self.most_held_bytes, self.held_bytes)
            stack.callback(self._release, size)
            body = await self._read(request, size)
            connection_of(request).judging = True
            await stack.enter_async_context(_turn(self._turns, self._limits.wait_seconds))
            if self.is_large(size):
                await stack.enter_async_context(_turn(self._large, self._limits.wait_seconds))
            await self._pace.begin()
            self.judged += 1
            self.most_judged = max(self.most_judged, self.judged)
            stack.callback(self._judged)
            yield body

    def _release(self, size: int) -> None:
        self.held_bytes -= size

    def _judged(self) -> None:
        self.judged -= 1

    def _size_of(self, request: web.Request) -> int:
        """What the head says of the body; nothing has been read of it yet."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise TurnedAway(Cause.HEAD, 415, "send the review as it is: encodings are not understood")
        size = request.content_length
        if size is None:
            raise TurnedAway(Cause.HEAD, 411, "send the review with a Content-Length")
        if size > self._limits.body_bytes:
            text = f"a review may have {self._limits.body_bytes} bytes, not {size}"
            raise TurnedAway(Cause.SIZE, 413, text)
        return size

    async def _read(self, request: web.Request, size: int) -> bytearray:
        body = bytearray()
        whole = False
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.content.iter_any():
                    body += chunk
            whole = True
        except TimeoutError as error:
            text = f"{len(body)} of {size} bytes after {self._limits.body_seconds:g} seconds"
            raise TurnedAway(Cause.BODY, 408, text) from error
        except (ConnectionError, web.RequestPayloadError) as error:
            raise TurnedAway(Cause.BODY, 400, f"the body broke off after {len(body)} bytes") from error
        finally:
            if not whole:
                body.clear()  # aiohttp keeps the error, the error this frame: whoever breaks off leaves no bytes here
        return body


class Pace:
    """One review begins at a time; then the loop is left to others for as long as the turn took in which it began.

    The controller lives in the same loop, and a pass of it needs some ten turns: with fifty reviews begun in each, it
    would wait for hundreds of them.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._not_before = 0.0

    async def begin(self) -> None:
        """Return when the next one may begin, in the order in which they asked; its caller goes on at once."""
        loop = asyncio.get_running_loop()
        await self._turn.acquire()
        try:
            if (rest := self._not_before - loop.time()) > 0:
                await asyncio.sleep(rest)
        except asyncio.CancelledError:
            self._turn.release()
            raise
        loop.call_soon(self._begun, loop.time())

    def _begun(self, at: float) -> None:
        """The turn of the loop is over."""
        now = asyncio.get_running_loop().time()
        self._not_before = now + min(now - at, _LONGEST_REST)
        self._turn.release()


@asynccontextmanager
async def _turn(lock: asyncio.Semaphore | asyncio.Lock, patience: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(patience):
            await lock.acquire()
    except TimeoutError as error:
        raise TurnedAway(Cause.BUSY, 503, "too many reviews at a time, try again") from error
    try:
        yield
    finally:
        lock.release()


async def aside(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """The function's result, out of a thread: the loop, with the controller in it, goes on meanwhile.

    A thread cannot be stopped, so whoever is cancelled waits for its end: what it holds is not given to others before.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # nobody asks for it any more
        raise
