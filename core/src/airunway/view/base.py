"""The common form of all views: frozen dataclasses that become JSON in one way."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from airunway.redaction import bounded
from airunway.resource import Resource, format_time

__all__ = ["SHORT", "View", "line", "resource_of", "word"]

SHORT = 253
"""Bytes kept of a name or a word: the longest name that Kubernetes allows."""


class View:
    """A dataclass of this package. Its texts are single lines without control characters and credentials."""

    def as_resource(self) -> Resource:
        """Returns the view as JSON: fields in camelCase, all of them always present, times as RFC 3339 in UTC."""
        found: Resource = resource_of(self)
        return found


def resource_of(value: object) -> Any:
    """Returns the JSON of a view, or of a part of one."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_camel(field.name): resource_of(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [resource_of(each) for each in value]
    return format_time(value) if isinstance(value, datetime) else value


def _camel(name: str) -> str:
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part.capitalize() for part in rest)


def line(value: object, limit: int = 1024) -> str:
    """Returns a text of another party as one plain line of at most `limit` bytes; empty for anything but a text."""
    return bounded(value, limit) if isinstance(value, str) else ""


def word(value: object) -> str:
    """Returns a name or a word of another party: as `line`, shorter."""
    return line(value, SHORT)
