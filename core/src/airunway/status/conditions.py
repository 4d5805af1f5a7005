"""Conditions: making them, and carrying transition times over from the ones before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from airunway.resource import Resource, format_time

__all__ = ["MESSAGE_LIMIT", "Condition", "bounded", "written"]

MESSAGE_LIMIT = 1024
"""Longest message, in characters (spec/api.md: 1 KiB)."""

_STATUS = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition to be written. `status` None means ``Unknown``."""

    type: str
    status: bool | None
    reason: str
    message: str = ""


def bounded(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """`text` cut to `limit` characters, with an ellipsis where something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def written(
    conditions: Iterable[Condition], *, previous: Iterable[Resource], generation: int, now: datetime
) -> list[Resource]:
    """The conditions as they go into ``status.conditions``, sorted by type.

    ``lastTransitionTime`` is the previous one's unless the status changed. Of two conditions of one type the last wins.
    """
    before = {c.get("type"): c for c in previous if isinstance(c, dict)}
    result = {}
    for condition in conditions:
        status = _STATUS[condition.status]
        old = before.get(condition.type) or {}
        moved = old.get("status") != status or not old.get("lastTransitionTime")
        result[condition.type] = {
            "type": condition.type,
            "status": status,
            "reason": condition.reason,
            "message": bounded(condition.message),
            "observedGeneration": generation,
            "lastTransitionTime": format_time(now) if moved else old["lastTransitionTime"],
        }
    return [result[type_] for type_ in sorted(result)]
