"""The few messages of Envoy's ``ext_proc`` protocol that an endpoint picker needs, encoded and decoded by hand.

Field numbers are those of ``ProcessingRequest`` and ``ProcessingResponse`` in ``envoy.service.ext_proc.v3``. A gRPC
library and generated code would weigh more than all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Headers:
    """The request's headers, pseudo-headers included."""

    fields: Mapping[str, str]
    end: bool


@dataclass(frozen=True, kw_only=True)
class Body:
    """A part of the request's body."""

    data: bytes
    end: bool


def parse_request(message: bytes) -> Headers | Body | None:
    """What Envoy sends: headers, a part of the body, or something else, which needs no answer of a picker."""
    for number, value in _fields(message):
        if number == 2 and isinstance(value, bytes):
            return _headers(value)
        if number == 4 and isinstance(value, bytes):
            found = dict(_fields(value))
            data = found.get(1, b"")
            return Body(data=data if isinstance(data, bytes) else b"", end=bool(found.get(2)))
        if number == 6:  # trailers end a body that was sent without its end
            return Body(data=b"", end=True)
    return None


def _headers(message: bytes) -> Headers:
    fields: dict[str, str] = {}
    end = False
    for number, value in _fields(message):
        if number == 1 and isinstance(value, bytes):
            for _, entry in _fields(value):
                pair = dict(_fields(entry)) if isinstance(entry, bytes) else {}
                name, text = pair.get(1, b""), pair.get(3) or pair.get(2, b"")
                if isinstance(name, bytes) and isinstance(text, bytes):
                    fields[name.decode()] = text.decode("utf-8", "replace")
        elif number == 3:
            end = bool(value)
    return Headers(fields=fields, end=end)


def headers_answer(added: Mapping[str, str]) -> bytes:
    """Go on with the request, with these headers set."""
    options = [_field(1, _field(1, _field(1, name) + _field(3, text)) + _field(3, 2)) for name, text in added.items()]
    mutation = _field(2, b"".join(options)) if options else b""
    return _field(1, _field(1, mutation))


def body_answer(data: bytes, *, end: bool) -> bytes:
    """Send this part of the body on."""
    streamed = _field(1, data) + _field(2, int(end))
    return _field(3, _field(1, _field(3, _field(3, streamed))))


def refusal(code: int, text: str) -> bytes:
    """Answer the client with this HTTP status instead of sending the request on."""
    return _field(7, _field(1, _field(1, code)) + _field(3, text))


def framed(message: bytes) -> bytes:
    """The message as gRPC frames it."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def unframed(buffer: bytearray) -> Iterator[bytes]:
    """Takes the whole messages out of the buffer."""
    while len(buffer) >= 5 and len(buffer) >= 5 + (size := int.from_bytes(buffer[1:5], "big")):
        message = bytes(buffer[5 : 5 + size])
        del buffer[: 5 + size]
        yield message


def _field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        match tag & 7:
            case 0:
                value, position = _read_varint(message, position)
                yield tag >> 3, value
            case 2:
                size, position = _read_varint(message, position)
                yield tag >> 3, message[position : position + size]
                position += size
            case 1 | 5 as width:
                position += 8 if width == 1 else 4
            case other:
                raise ValueError(f"protobuf wire type {other}")


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
