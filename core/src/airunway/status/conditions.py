"""Builds conditions, and keeps the transition times of the previous ones.

Parts of a condition come from third parties (a plugin's reason, an upstream's message). They are brought into a form
that the API server accepts, because it would refuse the whole status otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from airunway.redaction import MESSAGE_LIMIT, bounded
from airunway.resource import Resource, format_time, parse_time

__all__ = ["MESSAGE_LIMIT", "Condition", "as_word", "bounded", "conditions_in", "written"]

WORD_LIMIT = 256
"""Longest reason, in characters (the limit of `status.reason`)."""

_WORD = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LETTERS = re.compile(r"[A-Za-z0-9]+")

_STATUS = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition to be written."""

    type: str
    status: bool | None
    """None means ``Unknown``."""
    reason: str
    message: str = ""


def as_word(text: str, *, otherwise: str = "Unknown") -> str:
    """Returns `text` as the one word that a reason must be: unchanged if it is one, else its letters and digits."""
    if len(text) <= WORD_LIMIT and _WORD.fullmatch(text):
        return text
    parts = _LETTERS.findall(text)
    word = "".join(f"{part[0].upper()}{part[1:]}" for part in parts).lstrip("0123456789")[:WORD_LIMIT]
    return word or otherwise


def conditions_in(status: Resource) -> list[Resource]:
    """Returns the conditions of a status; malformed entries are left out."""
    found = status.get("conditions")
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("type"), str)]


def written(
    conditions: Iterable[Condition], *, previous: Iterable[Resource], generation: int, now: datetime
) -> list[Resource]:
    """Returns the conditions for ``status.conditions``, sorted by type.

    ``lastTransitionTime`` is kept unless the status changed. Of two conditions with the same type the last one wins.
    """
    before = {c["type"]: c for c in conditions_in({"conditions": list(previous)})}
    result = {}
    for condition in conditions:
        status = _STATUS[condition.status]
        old = before.get(condition.type) or {}
        moved = old.get("status") != status or parse_time(old.get("lastTransitionTime")) is None
        result[condition.type] = {
            "type": condition.type,
            "status": status,
            "reason": as_word(condition.reason),
            "message": bounded(condition.message),
            "observedGeneration": generation,
            "lastTransitionTime": format_time(now) if moved else old["lastTransitionTime"],
        }
    return [result[type_] for type_ in sorted(result)]
