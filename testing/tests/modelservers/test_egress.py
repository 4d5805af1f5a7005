"""The proxy of an API server: where a connection leads, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunway_testing.modelservers.egress import Address, egress_proxy


@pytest.fixture
async def echo() -> AsyncIterator[Address]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield host, port


async def asked(socket: Path, request: str, *, then: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    writer.write(f"{request} HTTP/1.1\r\nHost: pod\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    rest = b""
    if then:
        writer.write(then)
        rest = await reader.readexactly(len(then))
    writer.close()
    await writer.wait_closed()
    return head + rest


async def test_a_connection_leads_where_it_is_found(echo: Address, tmp_path: Path) -> None:
    places: dict[tuple[str, int], Address | None] = {
        ("10.244.0.7", 8000): echo,
        ("fd00::7", 8000): echo,
        ("10.244.0.8", 8000): None,
        ("10.244.0.9", 8000): ("127.0.0.1", 1),
    }

    async def find(host: str, port: int) -> Address | None:
        return places[host, port]

    socket = tmp_path / "egress.sock"
    async with egress_proxy(socket, find):
        for host in ("10.244.0.7:8000", "[fd00::7]:8000"):
            answer = await asked(socket, f"CONNECT {host}", then=b"hello")
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"hello")
        assert b"502 nothing listens on port 8000 of 10.244.0.8" in await asked(socket, "CONNECT 10.244.0.8:8000")
        assert b"HTTP/1.1 502 " in await asked(socket, "CONNECT 10.244.0.9:8000")
        for request in ("GET http://10.244.0.7/", "CONNECT 10.244.0.7", "CONNECT"):
            assert b"405" in await asked(socket, request)
    assert not socket.exists()


async def test_a_folder_with_a_long_name_has_room_for_the_socket(
    echo: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(_host: str, _port: int) -> Address | None:
        return echo

    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.chdir(folder)
    async with egress_proxy(folder / "egress.sock", find):
        assert (await asked(Path("egress.sock"), "CONNECT 10.244.0.7:80", then=b"hello")).endswith(b"hello")
