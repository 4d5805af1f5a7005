"""The HTTP servers of a process: ``/livez`` and ``/readyz`` on one address, ``/metrics`` on another.

kopf's probe server has a single path and answers 200 even if a check returned false. Metrics have an address of their
own so that a NetworkPolicy can allow the kubelet and Prometheus separately.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TypeAlias

from aiohttp import web

from airunway.process.connections import (
    Cause,
    ConnectionLimits,
    Connections,
    OnTurnedAway,
    connection_of,
    listening,
)
from airunway.process.metrics import Metrics

log = logging.getLogger(__name__)


MAX_AGE = 1.0
"""Seconds for which a page is reused."""

_REST = 3.0
"""A page is reused for at least this multiple of the time that it took to make: limits the CPU use of scrapes."""

_OPEN_METRICS = "application/openmetrics-text"


@dataclass(frozen=True, kw_only=True)
class MetricsPage:
    body: bytes
    compressed: bytes
    """The body as gzip."""
    content_type: str


class MetricsCache:
    """The pages of one process, as text and as OpenMetrics; `clock` is monotonic."""

    def __init__(self, metrics: Metrics, *, clock: Callable[[], float] = monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lock = asyncio.Lock()
        self._pages: dict[str, tuple[float, MetricsPage]] = {}

    async def get(self, accept: str) -> MetricsPage:
        """The page for an HTTP ``Accept``: one of two, whatever version it asks for."""
        form = f"{_OPEN_METRICS}; version=1.0.0" if _OPEN_METRICS in accept else ""
        async with self._lock:
            good_until, page = self._pages.get(form, (0.0, None))
            started = self._clock()
            if page is None or started >= good_until:
                body, content_type = await self._metrics.page(form)
                compressed = await asyncio.to_thread(gzip.compress, body, 1)
                page = MetricsPage(body=body, compressed=compressed, content_type=content_type)
                ended = self._clock()
                self._pages[form] = (ended + max(MAX_AGE, _REST * (ended - started)), page)
            return page


Check = Callable[[], str | None]
"""Returns what is wrong, or None."""

SCRAPES = 4
"""Responses of ``/metrics`` that are sent concurrently: each is held in memory until the client has read it."""

SCRAPE_PATIENCE = 10.0
"""Seconds that a client may take to read a page; Prometheus has the same default timeout."""

_PIECE = 2**18
"""Bytes of a page that are sent before other tasks get their turn."""

LIMITS = ConnectionLimits(accept_seconds=0.002)
"""The limits of each of the two ports; the rest as for the webhook. Without handshakes, 500 connections a second are
accepted in a flood. Each stays for a quarter of a second, which is enough for a request that is sent at once, and the
backlog takes up to a second.
"""

_BACKLOG = 512
"""Connections that the system queues until we accept them; in a flood, the kubelet's may be among them."""

_LOG_INTERVAL = 60.0
"""Seconds between two log records about connections that were turned away."""

_LAST_PORT = 65535

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def parse_address(address: str) -> tuple[str, int] | None:
    """Host and port of ``:8081``, ``127.0.0.1:8081`` or ``[::1]:8081``; None for ``0`` (switched off).

    An empty host means every address, port 0 any free one. Raises ValueError, naming the address, for anything else.
    """
    if address == "0":
        return None
    host, separator, port = address.rpartition(":")
    if not separator or not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= _LAST_PORT):
        raise ValueError(f"{address!r} is not an address (examples: :8081, 127.0.0.1:8081, 0 for none)")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def probe_server(
    address: str, *, live: Check, ready: Check, remark: Check = lambda: None
) -> AsyncIterator[int | None]:
    """Serve both probes while the context is open: 200 ``ok``, or 503 with the problem. Yields the port, or None.

    `remark` is a problem that does not make the process unready: ``/readyz`` shows it after the ``ok``.
    """
    handlers = {"/livez": _handler(live), "/readyz": _handler(ready, remark)}
    async with _served(address, handlers, who="the port of the probes") as port:
        yield port


@asynccontextmanager
async def metrics_server(address: str, metrics: Metrics) -> AsyncIterator[int | None]:
    """Serve ``/metrics``, as text or OpenMetrics, while the context is open. Yields the port, or None.

    Every client that reaches the port may scrape (docs/decisions/0012-what-hardening-declines.md). Above `SCRAPES`
    concurrent requests the answer is 503.
    """
    pages, under_way = MetricsCache(metrics), 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal under_way
        if under_way >= SCRAPES:
            return web.Response(text="too many scrapes at a time", status=503, headers={"Retry-After": "1"})
        under_way += 1
        try:
            async with asyncio.timeout(SCRAPE_PATIENCE):
                page = await pages.get(request.headers.get("Accept", ""))
                zipped = "gzip" in request.headers.get("Accept-Encoding", "")
                body = page.compressed if zipped else page.body
                headers = {"Content-Type": page.content_type} | ({"Content-Encoding": "gzip"} if zipped else {})
                response = web.StreamResponse(headers=headers)
                response.content_length = len(body)
                await response.prepare(request)
                for start in range(0, len(body), _PIECE):
                    await response.write(body[start : start + _PIECE])
                    await asyncio.sleep(0)
                await response.write_eof()
                return response
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # drops what was not read
            raise
        finally:
            under_way -= 1

    async with _served(address, {"/metrics": handle}, who="the port of the metrics") as port:
        yield port


@asynccontextmanager
async def _served(address: str, handlers: Mapping[str, Handler], *, who: str) -> AsyncIterator[int | None]:
    """Serve GET handlers by path while the context is open; port 0 means any free port.

    Raises OSError, naming the address, if it cannot be served.
    """
    where = parse_address(address)
    if where is None:
        yield None
        return
    application = web.Application(middlewares=[_followed])
    for path, handler in handlers.items():
        application.router.add_get(path, handler)
    with listening(*where, backlog=_BACKLOG) as listener:
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=3.0)
        await runner.setup()
        assert runner.server is not None
        connections = Connections(None, LIMITS, port=who, on_turned_away=_tally(who))
        accepting = asyncio.create_task(connections.accept(listener, runner.server), name=who)
        accepting.add_done_callback(partial(_log_end, who))
        try:
            yield listener.getsockname()[1]
        finally:
            accepting.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([accepting])
            await runner.cleanup()


def _log_end(who: str, accepting: asyncio.Task[None]) -> None:
    if not accepting.cancelled() and (error := accepting.exception()) is not None:
        log.error("%s is closed", who, exc_info=error)


def _tally(who: str) -> OnTurnedAway:
    """Logs connections that a port turned away, at most once per interval, so that a flood does not fill the log."""
    count, logged = 0, float("-inf")

    def turned_away(cause: Cause) -> None:
        nonlocal count, logged
        count += 1
        if monotonic() - logged >= _LOG_INTERVAL:
            log.warning("%s has turned away %d connections, the last one for: %s", who, count, cause)
            count, logged = 0, monotonic()

    return turned_away


@web.middleware
async def _followed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Keeps a connection open while its request is processed; an answer here does not protect it afterwards."""
    connection = connection_of(request)
    connection.requested()
    connection.judging = True
    try:
        return await handler(request)
    finally:
        connection.answered(proven=False)


def _handler(check: Check, remark: Check = lambda: None) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        problem = check()
        if problem is not None:
            return web.Response(text=problem, status=503)
        text = remark()
        return web.Response(text="ok" if text is None else f"ok; {text}")

    return handle
