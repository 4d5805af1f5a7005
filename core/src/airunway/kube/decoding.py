"""Decodes what an API server sends: JSON documents, pages of a list, the events of a watch, and lines of text.

orjson refuses documents with more than 1,024 levels, but an API server stores them: one such object would make the list
and the watch of its whole kind unreadable. What is too deep is cut off; the rest of the object is then read, validated
and refused like any other.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson

from airunway.gc_tuning import gc_paused
from airunway.kube.errors import AnswerTooLarge, ConnectionFailed, MalformedAnswer, api_error
from airunway.kube.kinds import EVENT, Kind
from airunway.resource import Resource, dig

MAX_DEPTH = 512
"""Levels that are kept of a document that is too deep for orjson."""

TOO_DEEP = "<nested too deeply>"
"""Replaces an array or object below MAX_DEPTH."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]')
"""A complete JSON string, or a bracket."""

_COPYABLE = 250
"""Levels of a value that can be copied and compared by recursion."""


def decoded(text: bytes | bytearray) -> Any:
    """Returns the JSON value. Raises orjson.JSONDecodeError if the text is not JSON, even after the cut.

    The cut takes half a second for a megabyte: use `decoded_aside` on the event loop.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not _is_too_deep(error) or (shortened := _cut(text)) is None:
            raise
        return orjson.loads(shortened)


async def decoded_aside(text: bytes) -> Any:
    """Like `decoded`, but cuts in a thread."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not _is_too_deep(error):
            raise
        return await asyncio.to_thread(decoded, text)


async def decoded_object(text: bytes, what: str) -> Resource:
    """Returns the JSON object of an answer. Raises MalformedAnswer."""
    try:
        return _object(await decoded_aside(text), what)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswer(f"{what}: the answer is not JSON ({error})") from error


def _object(value: Any, what: str) -> Resource:
    if not isinstance(value, dict):
        raise MalformedAnswer(f"{what}: the answer is not a JSON object")
    return value


def shallow(value: Any) -> Any:
    """Cuts off in place what is too deep for the value to be copied and compared by recursion.

    It walks the value: serializing it with orjson (which allows 254 levels) would take many times its memory.
    """
    level = [value]
    for _ in range(_COPYABLE):
        level = [child for node in level for _, child in _entries(node) if isinstance(child, dict | list)]
        if not level:
            return value
    for node in level:
        for place, child in list(_entries(node)):
            if isinstance(child, dict | list):
                node[place] = TOO_DEEP
    return value


def _entries(node: Any) -> Any:
    if isinstance(node, dict):
        return node.items()
    return enumerate(node) if isinstance(node, list) else ()


def _is_too_deep(error: orjson.JSONDecodeError) -> bool:
    """Whether orjson failed because of the nesting, and not because the text is not JSON."""
    return "limit" in str(error).lower()


def _cut(text: bytes | bytearray) -> bytes | None:
    """Returns `text` with everything below MAX_DEPTH replaced; None if nothing is that deep."""
    parts: list[bytes | bytearray] = []
    depth, kept_to, cut_from = 0, 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                cut_from = match.start()
        elif token in b"]}":
            if depth == MAX_DEPTH + 1:
                parts += [text[kept_to:cut_from], orjson.dumps(TOO_DEEP)]
                kept_to = match.end()
            depth -= 1
    return b"".join([*parts, text[kept_to:]]) if parts else None


# --------------------------------------------------------------------------------------------------- pages of a list

MAX_PAGE = 4 * 2**20
"""Bytes of a page of several objects. Decoded, hostile JSON takes 27 times as much memory; usual pages have 0.5 MiB."""

_SMALLER = 4
"""The factor by which a page shrinks if it was too large or too deep; after every other page it grows by 2."""


class Page(NamedTuple):
    """One page of a list."""

    items: list[Resource]
    resource_version: str
    continue_token: str
    remaining: int | None
    """The server's estimate of how many objects follow; None: unknown."""


Fetch = Callable[[str, int, int | None], asyncio.Task[bytes]]
"""``fetch(token, size, most)`` requests the page at `token` with `size` objects (0: all) and at most `most` bytes."""


async def read_pages(fetch: Fetch, *, kind: Kind, limit: int) -> AsyncGenerator[Page, None]:
    """Yields the pages of a list, with at most `limit` objects each (0: the server decides), and reads one page ahead.

    A page of more than `MAX_PAGE` bytes, or with an object that is nested too deeply for the decoder, is requested
    again with fewer objects, until the large object is alone on its page. A page of one object has no limit.
    """
    token, size = "", limit

    def ask() -> asyncio.Task[bytes]:
        return fetch(token, size, None if size == 1 else MAX_PAGE)

    pending: asyncio.Task[bytes] | None = ask()
    try:
        while pending is not None:
            try:
                body = await _decoded_page(await pending, kind=kind, alone=size == 1)
            except AnswerTooLarge:
                body = None
            if body is None:
                size = max(1, (size or _SMALLER * 100) // _SMALLER)
                pending = ask()
                continue
            page = page_of(body, kind)
            token, size = page.continue_token, min(limit, size * 2) if limit else size * 2
            pending = ask() if token else None
            yield page
    finally:
        if pending is not None:
            pending.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await pending  # the result is not needed any more


async def _decoded_page(text: bytes, *, kind: Kind, alone: bool) -> Resource | None:
    """Returns the body of a page; None if it is nested too deeply and `alone` is false. Raises MalformedAnswer."""
    what = f"list of {kind}"
    try:
        with gc_paused():
            return _object(orjson.loads(text), what)
    except orjson.JSONDecodeError as error:
        if not _is_too_deep(error):
            raise MalformedAnswer(f"{what}: the answer is not JSON ({error})") from error
    return await decoded_object(text, what) if alone else None


def page_of(body: Resource, kind: Kind) -> Page:
    """Returns a decoded list as a page. Raises MalformedAnswer."""
    items, metadata = body.get("items"), body.get("metadata")
    if items is None and "metadata" in body:
        items = []
    if not isinstance(items, list) or not isinstance(metadata, dict) or not all(isinstance(i, dict) for i in items):
        raise MalformedAnswer(f"list of {kind}: the answer is not a list")
    for item in items:
        if "kind" not in item:  # typed lists have the kind only once, in the list itself
            item["apiVersion"] = kind.api_version
            item["kind"] = kind.kind
    remaining = metadata.get("remainingItemCount")
    return Page(
        items=items,
        resource_version=str(metadata.get("resourceVersion") or ""),
        continue_token=str(metadata.get("continue") or ""),
        remaining=remaining if isinstance(remaining, int) else None,
    )


# ------------------------------------------------------------------------------------------------ events of a watch

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

_EVENT_TYPES = frozenset(("ADDED", "MODIFIED", "DELETED", "BOOKMARK"))


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
    """Yields the events in a stream of byte chunks, which may be split anywhere: one JSON document per line.

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
                yield await _decoded_event(line)
        parts.clear()
        if tail:
            parts.append(tail)
    if parts:
        raise ConnectionFailed("the watch ended in the middle of an event")


async def _decoded_event(line: bytes) -> WatchEvent:
    try:
        event = await decoded_aside(line)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswer(f"a line of the watch is not JSON ({error})") from error
    type_, obj = dig(event, "type"), dig(event, "object")
    if type_ == "ERROR":
        code = dig(obj, "code")
        raise api_error(code if isinstance(code, int) else 500, obj)
    metadata = dig(obj, "metadata")
    if type_ not in _EVENT_TYPES or not isinstance(metadata, dict):
        raise MalformedAnswer(f"a line of the watch is not an event (type {type_!r})")
    version = metadata.get("resourceVersion")
    return WatchEvent(type_, obj, version if isinstance(version, str) else "")


# ---------------------------------------------------------------------------------------------------- lines of text

LONGEST_LINE = 16 * 2**10
"""Bytes of a line that are kept: as many as container runtimes write into one record of a log."""


async def text_lines(
    chunks: AsyncIterator[bytes], *, longest: int = LONGEST_LINE, most: int | None = None
) -> AsyncGenerator[str, None]:
    """Yields the lines of a stream of chunks, which may be split anywhere; a last line without a line break counts.

    Invalid UTF-8 is replaced. Of a line only `longest` bytes are kept, an ellipsis marks the cut; the rest takes no
    memory. Raises AnswerTooLarge once more than `most` bytes have come.
    """
    kept, cut, total = bytearray(), False, 0

    def keep(part: bytes) -> None:
        nonlocal cut
        room = longest - len(kept)
        kept.extend(part[:room])
        cut = cut or len(part) > room

    def line() -> str:
        text = kept.removesuffix(b"\r").decode(errors="ignore" if cut else "replace")
        return f"{text}…" if cut else text

    async for chunk in chunks:
        total += len(chunk)
        if most is not None and total > most:
            raise AnswerTooLarge(f"more than {most} bytes of text")
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            keep(part)
            yield line()
            kept.clear()
            cut = False
        keep(rest)
    if kept or cut:
        yield line()
