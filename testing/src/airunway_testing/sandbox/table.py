"""Deployments as rows: what the sandbox shows while it runs, and what its demo ends with."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from airunway.redaction import printable
from airunway.resource import Resource, dig, key_of
from airunway.table import format_table


@dataclass(frozen=True)
class Row:
    """One deployment, in the columns of ``kubectl get md``, with its share of a group's requests and its message."""

    name: str
    model: str
    engine: str
    provider: str
    phase: str
    ready: str
    share: str
    reason: str
    message: str


def row_of(deployment: Resource) -> Row:
    status = deployment.get("status") or {}
    share = dig(status, "gateway", "group", "share")
    return Row(
        name=key_of(deployment).name,
        model=dig(deployment, "spec", "model", "id", default=""),
        engine=dig(status, "engine", "type", default="-"),
        provider=dig(status, "provider", "name", default="-"),
        phase=status.get("phase", "-"),
        ready=dig(status, "replicas", "summary", default="-"),
        share=f"{share} %" if isinstance(share, int) else "-",
        reason=status.get("reason", "-"),
        message=printable(status.get("message", "")),
    )


LONGEST = 62
"""Characters of a message in the table."""


def short(message: str) -> str:
    """The beginning of a message, as it stands in the table."""
    return textwrap.shorten(message, LONGEST, placeholder=" …")


def as_text(rows: Iterable[Row]) -> str:
    """The rows as kubectl would print them, with the beginnings of their messages; shares only if there are any."""
    found = [asdict(replace(row, message=short(row.message))) for row in rows]
    names = [name for name in Row.__dataclass_fields__ if name != "share" or any(row[name] != "-" for row in found)]
    return format_table(names, [[row[name] for name in names] for row in found])
