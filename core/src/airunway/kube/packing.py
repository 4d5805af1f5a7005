"""Keeps large parts of a cached object as JSON: as objects they take four times the memory, many small keys twelve."""

from __future__ import annotations

import orjson

from airunway.kube.transforms import compact_bytes
from airunway.resource import Resource

_PACKED = "/packed"
"""Key of an object's packed parts; objects of the API server never have it."""


def packed(outline: Resource, parts: Resource | bytes) -> Resource:
    """Returns `outline` with parts of the whole object (or their JSON), which replace its own when it is unpacked."""
    return {**outline, _PACKED: compact_bytes(parts if isinstance(parts, bytes) else orjson.dumps(parts))}


def is_packed(obj: Resource) -> bool:
    """Whether parts of the object are packed."""
    return _PACKED in obj


def unpacked(obj: Resource) -> Resource:
    """Returns the whole object; it is itself if nothing of it is packed."""
    if _PACKED not in obj:
        return obj
    return {**{key: value for key, value in obj.items() if key != _PACKED}, **orjson.loads(obj[_PACKED])}
