"""Servers that say what no healthy API server says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from airunway.kube import Client, ClusterConfig


@asynccontextmanager
async def scripted_server(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[Client]:
    """A client of a server whose answers are the handler's; for what the real one cannot be made to do."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with Client(ClusterConfig(server=f"http://{host}:{port}"), timeout=2, watch_inactivity=2) as client:
            yield client
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering(status: int, body: bytes, **headers: str) -> AsyncIterator[Client]:
    """A client of a server that always gives the same answer."""

    async def serve(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers=headers)

    async with scripted_server(serve) as client:
        yield client
