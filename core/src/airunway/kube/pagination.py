"""Reads lists page by page; pages become smaller if objects are very large or deeply nested."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from airunway.gc_tuning import gc_paused
from airunway.kube.decoding import decoded_aside, is_too_deep
from airunway.kube.errors import AnswerTooLarge, MalformedAnswer
from airunway.kube.kinds import Kind
from airunway.resource import Resource

__all__ = ["MAX_PAGE", "Page", "decoded_object", "page_of", "read_pages"]

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
                body = await _decoded(await pending, kind=kind, alone=size == 1)
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


async def decoded_object(text: bytes, what: str) -> Resource:
    """Returns the JSON object of an answer. Raises MalformedAnswer."""
    try:
        value = await decoded_aside(text)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswer(f"{what}: the answer is not JSON ({error})") from error
    return _object(value, what)


async def _decoded(text: bytes, *, kind: Kind, alone: bool) -> Resource | None:
    """Returns the body of a page; None if it is nested too deeply and `alone` is false. Raises MalformedAnswer."""
    what = f"list of {kind}"
    try:
        with gc_paused():
            return _object(orjson.loads(text), what)
    except orjson.JSONDecodeError as error:
        if not is_too_deep(error):
            raise MalformedAnswer(f"{what}: the answer is not JSON ({error})") from error
    return await decoded_object(text, what) if alone else None


def _object(value: Any, what: str) -> Resource:
    if not isinstance(value, dict):
        raise MalformedAnswer(f"{what}: the answer is not a JSON object")
    return value


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
