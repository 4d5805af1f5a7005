"""Decoding what an API server sends, whatever is nested in it.

orjson refuses documents nested deeper than 1,024, and an API server stores deeper ones: one such object would make the
list and the watch of its whole kind unreadable for us. What is too deep is cut off; the object around it is then read,
judged and refused like any other.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson

__all__ = ["MAX_DEPTH", "TOO_DEEP", "decoded", "decoded_aside", "is_too_deep", "shallow"]

MAX_DEPTH = 512
"""Levels that survive where a document is too deep for orjson."""

TOO_DEEP = "<nested too deeply>"
"""What stands in place of an array or object below MAX_DEPTH."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]')
"""A text as a whole, or a bracket."""


def decoded(text: bytes | bytearray) -> Any:
    """The JSON value. Raises orjson.JSONDecodeError for what is not JSON even after the cut.

    The cut takes half a second for a megabyte: where others wait, `decoded_aside` is to be used.
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
    """As `decoded`; what has to be cut is cut in a thread."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not is_too_deep(error):
            raise
        return await asyncio.to_thread(decoded, text)


def shallow(value: Any, *, levels: int = 250) -> Any:
    """A decoded value that may be copied and compared by recursion; what is deeper than `levels` is cut off in place.

    Found by a walk: writing the value as JSON (which orjson does down to 254 levels) takes many times its memory.
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
    """Whether orjson gave up because of the nesting, and not because the text is no JSON."""
    return "limit" in str(error).lower()


def _cut(text: bytes | bytearray) -> bytes | None:
    """`text` with everything below MAX_DEPTH replaced; None if nothing is that deep."""
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
