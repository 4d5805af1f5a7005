"""Deployments as rows: what the sandbox shows while it runs, and what its demo ends with."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace

from airunway.redaction import printable
from airunway.resource import Resource, dig, key_of
from airunway.table import format_table


@dataclass(frozen=True)
class Row:
    """One deployment, in the columns of ``kubectl get md``, with its message."""

    name: str
    model: str
    engine: str
    provider: str
    phase: str
    ready: str
    reason: str
    message: str


def row_of(deployment: Resource) -> Row:
    status = deployment.get("status") or {}
    return Row(
        name=key_of(deployment).name,
        model=dig(deployment, "spec", "model", "id", default=""),
        engine=dig(status, "engine", "type", default="-"),
        provider=dig(status, "provider", "name", default="-"),
        phase=status.get("phase", "-"),
        ready=dig(status, "replicas", "summary", default="-"),
        reason=status.get("reason", "-"),
        message=printable(status.get("message", "")),
    )


LONGEST = 62
"""Characters of a message in the table."""


def short(message: str) -> str:
    """The beginning of a message, as it stands in the table."""
    return textwrap.shorten(message, LONGEST, placeholder=" …")


def as_text(rows: Iterable[Row]) -> str:
    """The rows as kubectl would print them, with the beginnings of their messages."""
    cells = [astuple(replace(row, message=short(row.message))) for row in rows]
    return format_table([field.name for field in fields(Row)], cells)
