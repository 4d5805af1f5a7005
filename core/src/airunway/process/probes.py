"""``/livez`` and ``/readyz`` of a process.

kopf has a probe server too, but it answers one path only and says 200 even if a check returned false; the two probes of
ours share a port and speak plainly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

__all__ = ["Check", "parse_address", "probe_server"]

Check = Callable[[], str | None]
"""Returns what is wrong, or None."""


def parse_address(address: str) -> tuple[str, int] | None:
    """Host and port of ``:8081``, ``127.0.0.1:8081`` or ``[::1]:8081``; None for ``0`` (switched off).

    Raises ValueError, naming the address, for anything else.
    """
    if address == "0":
        return None
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal():
        raise ValueError(f"{address!r} is not an address (examples: :8081, 127.0.0.1:8081, 0 for none)")
    return host.strip("[]") or "0.0.0.0", int(port)


@asynccontextmanager
async def probe_server(address: str, *, live: Check, ready: Check) -> AsyncIterator[None]:
    """Serve both probes while the context lasts: 200 ``ok``, or 503 with what is wrong."""
    where = parse_address(address)
    if where is None:
        yield
        return
    application = web.Application()
    application.router.add_get("/livez", _handler(live))
    application.router.add_get("/readyz", _handler(ready))
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, *where).start()
        yield
    finally:
        await runner.cleanup()


def _handler(check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_: web.Request) -> web.StreamResponse:
        problem = check()
        return web.Response(text=problem or "ok", status=503 if problem else 200)

    return handle
