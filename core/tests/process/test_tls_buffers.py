"""Internals of asyncio are relied on: this says when they are others."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto

import pytest

from airunway.process.manager import BUFFER, small_tls_buffers


async def test_a_connection_of_a_process_has_a_small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sslproto.SSLProtocol.max_size
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", before)  # put back after the test

    def connection() -> sslproto.SSLProtocol:
        context, loop = ssl.create_default_context(), asyncio.get_running_loop()
        return sslproto.SSLProtocol(
            loop, asyncio.Protocol(), context, loop.create_future(), server_hostname="kubernetes.default"
        )

    small_tls_buffers()
    (buffer,) = {len(value) for value in vars(connection()).values() if isinstance(value, bytearray)}
    assert buffer == BUFFER
    assert BUFFER >= 16 * 2**10, "a whole record"
