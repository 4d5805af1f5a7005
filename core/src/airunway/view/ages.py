"""Ages as people read them: ``45s``, ``3m``, ``2h``, ``5d``."""

from __future__ import annotations

from datetime import datetime

__all__ = ["short_age"]

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
