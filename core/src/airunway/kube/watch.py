"""The wire format of a watch: a stream of JSON documents, one per line, of any length."""

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
    """One event. In a bookmark only `resource_version` has a meaning."""

    type: EventType
    object: Resource
    resource_version: str


def stream_seconds(kind: Kind, inactivity: float) -> int:
    """Returns how long the server should keep a watch open: 290–350 s, at random, so that watches do not end together.

    The API server sends bookmarks from its cache, and it has no cache for Events: a watch of Events may stay silent all
    the time, so it must end before `inactivity` (seconds), after which a silent watch counts as broken.
    """
    if kind.plural == EVENT.plural and kind.group in (EVENT.group, ""):
        return max(1, int(inactivity * 0.8))
    return random.randint(290, 350)


async def decoded_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[WatchEvent, None]:
    """Yields the events in a stream of byte chunks, which may be split anywhere.

    It joins lines itself, because a large object would exceed the limit of aiohttp's `readline`. Raises the ApiError of
    an ``ERROR`` event, MalformedAnswer for a line that is not an event, and ConnectionFailed if the stream ends in the
    middle of a line. Such a line is not used even if it looks complete: the resumed watch will deliver the event.
    """
    parts: list[bytes] = []  # of an incomplete line; joined once, so that long lines take linear time
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
