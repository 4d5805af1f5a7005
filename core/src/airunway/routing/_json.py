"""Readers for JSON of other writers: a value of another type counts as absent."""

from __future__ import annotations

from typing import Any

from airunway.resource import Resource, dig

__all__ = ["entries", "mapping", "number", "text"]


def text(obj: object, *path: str) -> str:
    """The text at `path`; empty if there is none."""
    value = dig(obj, *path)
    return value if isinstance(value, str) else ""


def number(obj: object, *path: str) -> int:
    """The integer at `path`; 0 if there is none (true and false are none)."""
    value = dig(obj, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def mapping(obj: object, *path: str) -> dict[str, Any]:
    """The object at `path`; empty if there is none."""
    value = dig(obj, *path)
    return value if isinstance(value, dict) else {}


def entries(obj: object, *path: str) -> list[Resource]:
    """The objects of the list at `path`; entries of another type are left out."""
    value = dig(obj, *path)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
