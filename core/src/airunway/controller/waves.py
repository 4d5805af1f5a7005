"""Which deployments of a config take new pod settings next, with ``rollout: Immediately`` (platform.md, "Waves"). Pure.

Example: ``maxConcurrentRollouts`` is 1, and the config has three deployments that serve. The oldest is granted; once it
has the settings and is Ready the second is granted, then the third. If one fails, no further one is granted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.resource import ObjectKey

__all__ = ["Member", "Wave", "next_wave"]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One deployment of a config."""

    key: ObjectKey
    created: str
    """Its ``creationTimestamp``."""
    current: bool = False
    """Whether it has what is rolled out, as its provider reports it."""
    granted_at: datetime | None = None
    """When it was granted that; None: it was not."""
    waits: bool = True
    """Whether it serves and its provider would take new settings now."""
    ready: bool = False
    """Whether it is Ready."""
    failed: bool = False
    """Whether its phase is Failed."""


@dataclass(frozen=True, kw_only=True)
class Wave:
    """The state of a rollout."""

    granted: frozenset[ObjectKey] = frozenset()
    """Deployments to grant now, in addition to those that are granted already."""
    stalled_by: ObjectKey | None = None
    """The deployment that stops the rollout."""
    failed: bool = False
    """Whether that deployment failed; otherwise it is not done in time."""
    wake_after: float | None = None
    """Seconds until a deployment that is under way is late; None: none is under way."""
    busy: int = 0
    """How many deployments are under way, those that are granted now included."""


def next_wave(members: Iterable[Member], *, limit: int, patience: timedelta, now: datetime) -> Wave:
    """Returns what to grant, at most `limit` deployments at a time, the oldest first.

    A granted deployment is done when it is current and Ready. One that failed, or is not done after `patience`, stops
    the rollout until it is done.
    """
    ordered = sorted(members, key=lambda member: (member.created, member.key))
    candidates = [each for each in ordered if each.granted_at is None and each.waits and not each.current]
    under_way = [each for each in ordered if each.granted_at is not None and not (each.current and each.ready)]
    if not candidates:
        # All have the settings: what breaks later has nothing to do with the rollout.
        under_way = [each for each in under_way if not each.current]
    left = {each.key: (each.granted_at or now) + patience - now for each in under_way}
    for each in under_way:
        if each.failed or left[each.key] <= timedelta(0):
            return Wave(stalled_by=each.key, failed=each.failed, busy=len(under_way))
    granted = frozenset(each.key for each in candidates[: max(0, limit - len(under_way))])
    waiting = [*left.values(), *(patience for _ in granted)]
    return Wave(granted=granted, wake_after=min(waiting).total_seconds() if waiting else None, busy=len(waiting))
