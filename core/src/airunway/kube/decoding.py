"""Decodes the JSON of an API server, even if it is nested very deeply.

orjson refuses documents with more than 1,024 levels, but an API server stores them: one such object would make the list
and the watch of its whole kind unreadable. What is too deep is cut off; the rest of the object is then read, validated
and refused like any other.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson

__all__ = ["MAX_DEPTH", "TOO_DEEP", "decoded", "decoded_aside", "is_too_deep", "shallow"]

MAX_DEPTH = 512
"""Levels that are kept of a document that is too deep for orjson."""

TOO_DEEP = "<nested too deeply>"
"""Replaces an array or object below MAX_DEPTH."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]')
"""A complete JSON string, or a bracket."""


def decoded(text: bytes | bytearray) -> Any:
    """Returns the JSON value. Raises orjson.JSONDecodeError if the text is not JSON, even after the cut.

    The cut takes half a second for a megabyte: use `decoded_aside` on the event loop.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not is_too_deep(error):
            raise
        shortened = _cut(text)
        if shortened is None:
            raise
        return orjson.loads(shortened)


async def decoded_aside(text: bytes) -> Any:
    """Like `decoded`, but cuts in a thread."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not is_too_deep(error):
            raise
        return await asyncio.to_thread(decoded, text)


def shallow(value: Any, *, levels: int = 250) -> Any:
    """Cuts off in place what is deeper than `levels`, so that the value can be copied and compared by recursion.

    It walks the value: serializing it with orjson (which allows 254 levels) would take many times its memory.
    """
    level = [value]
    for _ in range(levels):
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]
        if not level:
            return value
    for node in level:
        for place, child in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if isinstance(child, dict | list):
                node[place] = TOO_DEEP
    return value


def _children(node: Any) -> Any:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def is_too_deep(error: orjson.JSONDecodeError) -> bool:
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
