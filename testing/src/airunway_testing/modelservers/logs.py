"""Logs of pods as a kubelet serves them: a server at which the API server asks for the log of a container.

    async with log_server(folder, find) as port:      # find(("ml", "llama-0"), "model", previous=False) gives a Log
        ...

The API server does not check a kubelet's certificate.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from aiohttp import web

from airunway.resource import ObjectKey
from airunway_testing.controlplane.certificates import new_authority

_MOST_LINES = 1000
_LOOK = 0.2
"""Seconds between two looks for new lines of a log that is followed."""


class Log:
    """The last lines that a container has written, each with its time."""

    def __init__(self, *lines: str) -> None:
        self.written = 0
        """All lines, those too that are kept no more."""
        self.ended = False
        """The container runs no more: nothing follows."""
        self._lines: deque[tuple[datetime, str]] = deque(maxlen=_MOST_LINES)
        for line in lines:
            self.write(line)

    def write(self, line: str) -> None:
        """Add a line."""
        self._lines.append((datetime.now(UTC), line))
        self.written += 1

    def after(self, place: int) -> list[tuple[datetime, str]]:
        """The lines after the first `place` ones, as far as they are kept."""
        new = self.written - place
        return list(self._lines)[-new:] if new > 0 else []


class FindLog(Protocol):
    """Finds the log of a container. Raises LookupError, with what a kubelet would answer."""

    def __call__(self, key: ObjectKey, container: str, *, previous: bool) -> Log: ...


@asynccontextmanager
async def log_server(folder: Path, find: FindLog) -> AsyncIterator[int]:
    """The port on 127.0.0.1 at which logs are served while the context lasts; `folder` takes the certificate."""

    async def serve(request: web.Request) -> web.StreamResponse:
        key = ObjectKey(request.match_info["namespace"], request.match_info["pod"])
        query = request.query
        try:
            log = find(key, request.match_info["container"], previous=query.get("previous") == "true")
        except LookupError as error:
            return web.Response(status=400, text=str(error.args[0]))
        return await _answered(request, log)

    pair = new_authority(folder / "kubelet-ca", name="kubelet-ca").server(
        folder / "kubelet", name="kubelet", hosts=("127.0.0.1",)
    )
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _answered(request: web.Request, log: Log) -> web.StreamResponse:
    query = request.query
    wanted, place = _wanted(log, tail=query.get("tailLines", ""), since=query.get("sinceSeconds", "")), log.written
    as_text = _with_time if query.get("timestamps") == "true" else _plain
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    while True:
        if wanted:
            await response.write("".join(as_text(*line) for line in wanted).encode())
        if query.get("follow") != "true" or log.ended:
            return response
        while log.written == place and not log.ended:
            await asyncio.sleep(_LOOK)
        wanted, place = log.after(place), log.written


def _wanted(log: Log, *, tail: str, since: str) -> list[tuple[datetime, str]]:
    lines = log.after(0)
    if since.isdecimal():
        now = datetime.now(UTC)
        lines = [line for line in lines if (now - line[0]).total_seconds() <= int(since)]
    return lines[max(0, len(lines) - int(tail)) :] if tail.isdecimal() else lines


def _plain(_moment: datetime, line: str) -> str:
    return f"{line}\n"


def _with_time(moment: datetime, line: str) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z {line}\n"
