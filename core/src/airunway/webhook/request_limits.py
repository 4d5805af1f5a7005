"""Limits the requests to the webhook's port: their head, their body, and their turn.

Limits of connections are in `process/connections.py`; the other ports of the process have them too. Small bodies need
no budget, because there are no more of them than connections. Large bodies have a budget of their own, so that a client
that sends many of them blocks only other large reviews.

Sizes follow from the API server: it stores objects of up to 1.5 MiB, a review has at most two of them, and the API
server waits `TIMEOUT_SECONDS` for a verdict. The memory budget follows from that of the process (spec/quality.md, 300
MiB): large bodies get 64 MiB, and only one large review at a time is decoded, which takes 25 times its size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from aiohttp import web

from airunway.process.connections import Cause, ConnectionLimits, connection_of

__all__ = ["Limits", "Pace", "RequestLimiter", "TurnedAway", "aside"]


_KIB, _MIB = 2**10, 2**20


class TurnedAway(Exception):
    """A request that is answered with an HTTP `status` and a text instead of a verdict."""

    def __init__(self, cause: Cause, status: int, text: str) -> None:
        super().__init__(text)
        self.cause = cause
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Limits(ConnectionLimits):
    """The limits of the webhook's port."""

    body_seconds: float = 5.0
    """Seconds from the end of the head to the end of the body."""

    wait_seconds: float = 3.0
    """Seconds that a request waits for its turn before it is refused with 503."""

    body_bytes: int = 4 * _MIB
    """Maximum bytes of a body: two objects of 1.5 MiB, the user, and JSON escapes."""

    large_bytes: int = 32 * _KIB
    """Bytes above which a body is large. Nearly none is, so a flood of large ones does not affect the others."""

    memory_bytes: int = 64 * _MIB
    """Memory for the bodies of large reviews, each counted as `body_bytes`."""

    reviews: int = 32
    """Maximum concurrent reviews; most of the time they wait for the API server."""


_LONGEST_REST = 0.1
"""Maximum seconds of a pause: an iteration of the loop may have been long for other reasons than the review."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RequestLimiter:
    """Admits requests. `held_bytes` and `judged` are the bytes and reviews in flight; ``most_…`` are their maxima."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._room = asyncio.Semaphore(max(1, limits.memory_bytes // limits.body_bytes))
        self._turns = asyncio.Semaphore(limits.reviews)
        self._large = asyncio.Lock()
        self._pace = Pace()
        self.held_bytes = self.most_held_bytes = 0
        self.judged = self.most_judged = 0

    def is_large(self, size: int) -> bool:
        """Whether a body of that many bytes is decoded and reviewed in a thread."""
        return size > self._limits.large_bytes

    @asynccontextmanager
    async def review(self, request: web.Request) -> AsyncIterator[bytearray]:
        """The body of a review, once it is its turn. Raises TurnedAway."""
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
        """The body's size according to the head; nothing of the body has been read yet."""
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
                body.clear()  # the error keeps this frame alive, and aiohttp keeps the error
        return body


class Pace:
    """Starts one review at a time, and then pauses for as long as the loop's iteration took in which it started.

    The controller runs in the same loop, and one of its passes needs about ten iterations. If fifty reviews started in
    each, the pass would wait for hundreds of them.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._not_before = 0.0

    async def begin(self) -> None:
        """Return when the next review may start, in the order of the calls."""
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
        """The iteration of the loop is over."""
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
    """The function's result, from a thread, so that the loop with the controller in it continues.

    A thread cannot be stopped. So a cancelled caller waits until it ends, and releases its resources only then.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # the result is not needed
        raise
