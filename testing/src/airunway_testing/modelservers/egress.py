"""The proxy through which an API server reaches pods and kubelets: it decides where each connection really leads.

    async with egress_proxy(plane.egress_socket, find):   # a control plane with egress=True
        ...   # find("10.244.0.7", 8000) gives an address of this machine, or None: the connection is refused

The addresses of simulated pods lead nowhere, and an API server never connects to a loopback address for a pod.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

log = logging.getLogger(__name__)

Address: TypeAlias = tuple[str, int]
"""Host and port."""

Find: TypeAlias = Callable[[str, int], Awaitable[Address | None]]
"""Where a connection to this host and port leads; None: it is refused."""

_CHUNK = 65536


@asynccontextmanager
async def egress_proxy(socket: Path, find: Find) -> AsyncIterator[None]:
    """An HTTP CONNECT proxy at `socket` while the context lasts."""

    running: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_serve(reader, writer, find))
        running.add(task)
        task.add_done_callback(running.discard)

    folder = os.open(socket.parent, os.O_PATH)
    try:
        # A path may be longer than the 108 bytes that the address of a socket has room for.
        server = await asyncio.start_unix_server(connected, f"/proc/self/fd/{folder}/{socket.name}")
    finally:
        os.close(folder)
    try:
        yield
    finally:
        server.close()
        socket.unlink(missing_ok=True)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find: Find) -> None:
    try:
        await _pass_on(reader, writer, find)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        log.debug("a connection of the API server ended: %s", error)
    finally:
        await _close(writer)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find: Find) -> None:
    """Answer one CONNECT, and copy bytes until either side ends."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, _, rest = head.partition(" ")
    host, _, port = rest.partition(" ")[0].rpartition(":")
    if method != "CONNECT" or not port.isdecimal():
        writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        return
    target = await find(host.strip("[]"), int(port))
    try:
        if target is None:
            raise ConnectionRefusedError(f"nothing listens on port {port} of {host}")
        inner, outer = await asyncio.open_connection(*target)
    except OSError as error:
        writer.write(f"HTTP/1.1 502 {_one_line(error)}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    ways = [asyncio.create_task(_copy(reader, outer)), asyncio.create_task(_copy(inner, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await _close(outer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _one_line(error: OSError) -> str:
    return " ".join(str(error).split())[:200]
