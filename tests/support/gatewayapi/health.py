"""The gRPC health protocol (``grpc.health.v1.Health/Check``) as client and server, over cleartext HTTP/2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from tests.support.gatewayapi.extproc import framed, unframed

_PATH = "/grpc.health.v1.Health/Check"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""The encoded answers: field 1, the status."""


async def check(host: str, port: int, *, timeout: float = 5.0) -> bool | None:
    """Whether the server says that it is serving; None if it cannot be reached or gives no answer within `timeout`
    seconds.
    """
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return await _asked(reader, writer, f"{host}:{port}")
            finally:
                writer.transport.abort()
    except (TimeoutError, OSError, ProtocolError):
        return None


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> bool | None:
    http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    http.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":path", _PATH), (":authority", authority)]
    http.send_headers(1, [*headers, ("content-type", "application/grpc"), ("te", "trailers")])
    http.send_data(1, framed(b""), end_stream=True)
    answer = bytearray()
    while True:
        writer.write(http.data_to_send())
        data = await reader.read(65536)
        if not data:
            return None
        for event in http.receive_data(data):
            match event:
                case DataReceived(data=part):
                    answer += part or b""
                case StreamEnded():
                    return next(unframed(answer), b"") == _SERVING
                case StreamReset() | ConnectionTerminated():
                    return None


class _Connection(asyncio.Protocol):
    def __init__(self, serving: Callable[[], bool]) -> None:
        self._serving = serving
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http.initiate_connection()
        transport.write(self._http.data_to_send())

    def data_received(self, data: bytes) -> None:
        try:
            events = self._http.receive_data(data)
        except ProtocolError:
            self._transport.close()
            return
        for event in events:
            match event:
                case RequestReceived(stream_id=number) if number is not None:
                    self._http.send_headers(number, [(":status", "200"), ("content-type", "application/grpc")])
                case StreamEnded(stream_id=number) if number is not None:
                    self._http.send_data(number, framed(_SERVING if self._serving() else _NOT_SERVING))
                    self._http.send_headers(number, [("grpc-status", "0")], end_stream=True)
                case _:
                    pass
        self._transport.write(self._http.data_to_send())


@asynccontextmanager
async def running_health(host: str, port: int, serving: Callable[[], bool]) -> AsyncIterator[None]:
    """A server that answers for any service name, while the context lasts."""
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(serving), host, port)
    try:
        yield
    finally:
        server.close()
