"""Conditions: making them, and carrying transition times over from the ones before.

What goes into them is partly a third party's word (a plugin's reason, an upstream's message): here it is brought into
the form that the API server takes, since a status that it refuses would tell nothing at all.
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
"""Longest reason, in characters (that of `status.reason`)."""

_WORD = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LETTERS = re.compile(r"[A-Za-z0-9]+")

_STATUS = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition to be written. `status` None means ``Unknown``."""

    type: str
    status: bool | None
    reason: str
    message: str = ""


def as_word(text: str, *, otherwise: str = "Unknown") -> str:
    """`text` as the one CamelCase word that a reason has to be: itself where it is one, else what is left of it."""
    if len(text) <= WORD_LIMIT and _WORD.fullmatch(text):
        return text
    parts = _LETTERS.findall(text)
    word = "".join(f"{part[0].upper()}{part[1:]}" for part in parts).lstrip("0123456789")[:WORD_LIMIT]
    return word or otherwise


def conditions_in(status: Resource) -> list[Resource]:
    """The conditions of a status as it stands; whatever is none is left out."""
    found = status.get("conditions")
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("type"), str)]


def written(
    conditions: Iterable[Condition], *, previous: Iterable[Resource], generation: int, now: datetime
) -> list[Resource]:
    """The conditions as they go into ``status.conditions``, sorted by type.

    ``lastTransitionTime`` is the previous one's unless the status changed. Of two conditions of one type the last wins.
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
