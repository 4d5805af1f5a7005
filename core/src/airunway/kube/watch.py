"""The watch protocol on the wire: a stream of JSON documents, one per line, of any length."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal, NamedTuple, TypeAlias

import orjson

from airunway.kube.decoding import decoded_aside
from airunway.kube.errors import ConnectionFailed, MalformedAnswer, api_error
from airunway.kube.kinds import EVENT, Kind
from airunway.resource import Resource, dig

__all__ = ["EventType", "WatchEvent", "decoded_events", "stream_seconds"]

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

_TYPES = frozenset(("ADDED", "MODIFIED", "DELETED", "BOOKMARK"))


class WatchEvent(NamedTuple):
    """One event. Of a bookmark only `resource_version` means anything."""

    type: EventType
    object: Resource
    resource_version: str


def stream_seconds(kind: Kind, inactivity: float) -> int:
    """For how long the server is asked to keep a watch open: 290–350 s, so that watches do not end together.

    An API server sends bookmarks from its cache, and it has none for events: a watch of those may be silent as long as
    it lasts, and must end before silence counts as death (`inactivity` seconds).
    """
    if (kind.group, kind.plural) == (EVENT.group, EVENT.plural):
        return max(1, int(inactivity * 0.8))
    return random.randint(290, 350)


async def decoded_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[WatchEvent, None]:
    """The events in a stream of byte chunks that are cut anywhere.

    Lines are put together here and not by aiohttp's `readline`, whose limit a large object would exceed. Raises the
    ApiError that an ``ERROR`` event carries, MalformedAnswer for a line that is no event, ConnectionFailed when the
    stream ends in the middle of a line (it is not an event yet, whatever it looks like: resuming will bring it again).
    """
    parts: list[bytes] = []  # of a line that has no end yet; joined once, so that long lines cost no more than linear
    async for chunk in chunks:
        head, newline, rest = chunk.partition(b"\n")
        if not newline:
            if chunk:
                parts.append(chunk)
            continue
        parts.append(head)
        *lines, tail = rest.split(b"\n")
        for line in (b"".join(parts), *lines):
            if line:
                yield await _decoded(line)
        parts.clear()
        if tail:
            parts.append(tail)
    if parts:
        raise ConnectionFailed("the watch ended in the middle of an event")


async def _decoded(line: bytes) -> WatchEvent:
    try:
        event = await decoded_aside(line)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswer(f"a line of the watch is not JSON ({error})") from error
    type_, obj = dig(event, "type"), dig(event, "object")
    if type_ == "ERROR":
        code = dig(obj, "code")
        raise api_error(code if isinstance(code, int) else 500, obj)
    metadata = dig(obj, "metadata")
    if type_ not in _TYPES or not isinstance(metadata, dict):
        raise MalformedAnswer(f"a line of the watch is not an event (type {type_!r})")
    version = metadata.get("resourceVersion")
    return WatchEvent(type_, obj, version if isinstance(version, str) else "")
