"""What all views share: one form as JSON, plain texts, ages."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from airunway.redaction import bounded
from airunway.resource import Resource, format_time

SHORT = 253
"""Bytes kept of a name or a word: the longest name that Kubernetes allows."""


class ViewModel:
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
    if isinstance(value, StrEnum):
        return value.value  # YAML has no representation of an enum's member
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


_STEPS = ((86400, "d"), (3600, "h"), (60, "m"))


def short_age(moment: datetime | None, now: datetime) -> str:
    """Returns the time since `moment` in its largest unit of which there are two, like kubectl; empty for None."""
    if moment is None:
        return ""
    seconds = max(0, int((now - moment).total_seconds()))
    for size, unit in _STEPS:
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
