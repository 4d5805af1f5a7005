"""A played endpoint picker: it answers Envoy's ``ext_proc`` as recorded of llm-d-router 0.10.

Recorded in ``tests/recordings/llmd-lws.md``, #28: the answer is the header
``x-gateway-destination-endpoint``; refusals are 503 without an endpoint, 400 for a body without model or that is no
JSON, and 400 for a path whose suffix it does not know. It answers when it has the whole body, as the real one does.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import ProtocolError
from tests.support.gatewayapi.extproc import (
    Body,
    Headers,
    body_answer,
    framed,
    headers_answer,
    parse_request,
    refusal,
    unframed,
)

from airunway_testing.controlplane.certificates import new_authority

DESTINATION = "x-gateway-destination-endpoint"
_WITH_MODEL = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings")
_WITHOUT_BODY = ("/v1/models",)
_CHUNK = 32 * 1024
"""Bytes of a body that are sent on in one message."""
_LOOK = 0.3
"""Seconds between two looks for a pod, for the requests that are held: a gateway that hears of a pod later than the
picker would answer 503 itself.
"""


@dataclass(frozen=True, kw_only=True)
class Picked:
    """One request as the picker has it."""

    path: str
    model: str
    endpoint: str
    """Where it was sent; empty if it was refused."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """How requests with a body are held (llm-d-router 0.10 with ``flowControl``)."""

    seconds: float
    """How long at most; 0: until the client goes."""
    by_load: bool = False
    """By the default detector, for which a pod whose metrics it cannot read is full."""


@dataclass
class PlayedPicker:
    """Answers with the `endpoints` (``ip:port``) that are ready at the time, one after another."""

    endpoints: Callable[[], Sequence[str]]
    holding: Holding | None = None
    """None: a request for which no pod is ready is refused."""
    held: int = 0
    """Requests that are held now."""
    requests: list[Picked] = field(default_factory=list)
    _turn: count[int] = field(default_factory=count)

    def answer(self, path: str, body: bytes, *, since: float) -> tuple[str, bytes | None] | None:
        """The endpoint, or an empty text and the refusal; None: the request is held, as it is `since` a time."""
        model, problem = _model_of(path, body)
        ready = list(self.endpoints())
        plain = path.partition("?")[0]
        if problem is None and self.holding is not None and not plain.endswith(_WITHOUT_BODY):
            if not ready or self.holding.by_load:
                if not self.holding.seconds or time.monotonic() < since + self.holding.seconds:
                    return None
                problem = refusal(429 if ready else 503, "request timed out in queue")
        elif problem is None and not ready and plain.endswith(_WITHOUT_BODY):
            problem = refusal(500, "no pods available in datastore")
        elif problem is None and not ready:
            problem = refusal(503, "failed to find endpoint candidates for serving the request")
        endpoint = "" if problem is not None else ready[next(self._turn) % len(ready)]
        self.requests.append(Picked(path=path, model=model, endpoint=endpoint))
        return endpoint, problem


def _model_of(path: str, body: bytes) -> tuple[str, bytes | None]:
    plain = path.partition("?")[0]
    if plain.endswith(_WITHOUT_BODY):
        return "", None
    if not plain.endswith(_WITH_MODEL):
        return "", refusal(400, "no parser registered matching path suffix")
    try:
        found = json.loads(body)
    except ValueError:
        return "", refusal(400, "the body is no JSON")
    model = found.get("model") if isinstance(found, dict) else None
    return (model, None) if isinstance(model, str) else ("", refusal(400, "the body has no model"))


@dataclass
class _Stream:
    """One request that Envoy asks about."""

    path: str = ""
    incoming: bytearray = field(default_factory=bytearray)
    body: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    ended: bool = False
    since: float | None = None
    """When it has come whole, while it is held."""

    def answers(self, picker: PlayedPicker, data: bytes) -> list[bytes]:
        self.incoming += data
        found: list[bytes] = []
        for message in unframed(self.incoming):
            match parse_request(message):
                case Headers(fields=fields, end=end):
                    self.path = fields.get(":path", "")
                    found += self._decide(picker) if end else []
                case Body(data=part, end=end):
                    self.body += part
                    found += self._decide(picker) if end else []
                case None:
                    pass
        return found

    def again(self, picker: PlayedPicker) -> list[bytes]:
        """The answers to a request that was held, once there are any."""
        since = self.since
        self.let_go(picker)
        return [] if since is None else self._decide(picker, since)

    def let_go(self, picker: PlayedPicker) -> None:
        """The request is not held any more."""
        picker.held -= self.since is not None
        self.since = None

    def _decide(self, picker: PlayedPicker, since: float | None = None) -> list[bytes]:
        since = time.monotonic() if since is None else since
        found = picker.answer(self.path, bytes(self.body), since=since)
        if found is None:
            self.since = since
            picker.held += 1
            return []
        endpoint, problem = found
        if problem is not None:
            return [problem]
        parts = [bytes(self.body[start : start + _CHUNK]) for start in range(0, len(self.body), _CHUNK)]
        bodies = [body_answer(part, end=part is parts[-1]) for part in parts]
        return [headers_answer({DESTINATION: endpoint}), *bodies]


class _Connection(asyncio.Protocol):
    """One connection of Envoy's, with its streams."""

    def __init__(self, picker: PlayedPicker, connections: set[asyncio.Transport]) -> None:
        self._picker, self._connections = picker, connections
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._streams: dict[int, _Stream] = {}
        self._looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(transport)
        self._http.initiate_connection()
        transport.write(self._http.data_to_send())

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self._transport)
        for stream in self._streams.values():
            stream.let_go(self._picker)
        self._streams.clear()

    def _look_again(self) -> None:
        self._looking = None
        for number, stream in list(self._streams.items()):
            for message in stream.again(self._picker):
                stream.outgoing += framed(message)
            self._send(number)
        self._transport.write(self._http.data_to_send())
        self._look_later()

    def _look_later(self) -> None:
        if self._looking is None and any(stream.since is not None for stream in self._streams.values()):
            self._looking = asyncio.get_running_loop().call_later(_LOOK, self._look_again)

    def data_received(self, data: bytes) -> None:
        try:
            events = self._http.receive_data(data)
        except ProtocolError:
            self._transport.close()
            return
        for event in events:
            match event:
                case RequestReceived(stream_id=number) if number is not None:
                    self._streams[number] = _Stream()
                    self._http.send_headers(number, [(":status", "200"), ("content-type", "application/grpc")])
                case DataReceived(stream_id=number, data=part) if number in self._streams:
                    self._http.acknowledge_received_data(event.flow_controlled_length or 0, number)
                    stream = self._streams[number]
                    for message in stream.answers(self._picker, part or b""):
                        stream.outgoing += framed(message)
                case StreamEnded(stream_id=number) if number in self._streams:
                    self._streams[number].ended = True
                case StreamReset(stream_id=number):
                    if (gone := self._streams.pop(number, None)) is not None:
                        gone.let_go(self._picker)
                case WindowUpdated():
                    pass
        for number in list(self._streams):
            self._send(number)
        self._transport.write(self._http.data_to_send())
        self._look_later()

    def _send(self, number: int) -> None:
        stream = self._streams[number]
        while stream.outgoing:
            room = min(self._http.local_flow_control_window(number), self._http.max_outbound_frame_size)
            if room <= 0:
                return
            self._http.send_data(number, bytes(stream.outgoing[:room]))
            del stream.outgoing[:room]
        if stream.ended and stream.since is None:
            self._http.send_headers(number, [("grpc-status", "0")], end_stream=True)
            del self._streams[number]


@asynccontextmanager
async def running_picker(
    host: str, port: int, endpoints: Callable[[], Sequence[str]], *, folder: Path, holding: Holding | None = None
) -> AsyncIterator[PlayedPicker]:
    """A picker that listens while the context lasts; afterwards its connections are cut, as when its pod is killed.

    As the real one does, it speaks TLS with a certificate of its own, which is written into `folder`.
    """
    folder.mkdir(exist_ok=True)
    authority = new_authority(folder / f"authority-{host}", name="picker")
    pair = authority.server(folder / f"picker-{host}", name="picker", hosts=[host])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    context.set_alpn_protocols(["h2"])
    picker = PlayedPicker(endpoints, holding)
    connections: set[asyncio.Transport] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(picker, connections), host, port, ssl=context)
    try:
        yield picker
    finally:
        server.close()
        for transport in list(connections):
            transport.abort()
        await server.wait_closed()
