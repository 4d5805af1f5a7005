"""Noticing that somebody else keeps changing what we keep reverting, and slowing down then (spec/core.md, "drift")."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from airunway.resource import ObjectKey
from airunway.runtime.report import Done

__all__ = ["FIGHT_REVERTS", "FIGHT_WINDOW", "Fights"]

FIGHT_WINDOW = timedelta(minutes=2)
FIGHT_REVERTS = 5
"""More reverts than this within the window are a fight: somebody else wants something else, again and again."""

FIGHT_PAUSE = timedelta(seconds=30)
"""Time between reverts during a fight."""


class Fights:
    """Remembers when each deployment's objects were reverted, as long as that counts."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._reverts: dict[ObjectKey, deque[datetime]] = {}

    def reverted(self, deployment: ObjectKey) -> None:
        """Count a revert that is made now."""
        self._reverts.setdefault(deployment, deque()).append(self._clock())

    def forget(self, deployment: ObjectKey) -> None:
        self._reverts.pop(deployment, None)

    def told(self, deployment: ObjectKey, primary: str) -> Done | None:
        """What to say of `primary` if too many reverts lie within the window already."""
        reverts, now = self._reverts.get(deployment), self._clock()
        if reverts is None:
            return None
        while reverts and now - reverts[0] > FIGHT_WINDOW:
            reverts.popleft()
        if not reverts:
            del self._reverts[deployment]
        if len(reverts) <= FIGHT_REVERTS:
            return None
        message = (
            f"{primary} was changed and reverted more than {FIGHT_REVERTS} times within "
            f"{FIGHT_WINDOW.seconds // 60} minutes; reverts now wait {FIGHT_PAUSE.seconds} s. "
            "The event DriftDetected names the field and who changes it"
        )
        return Done(ok=True, reason="RevertedTooOften", message=message)

    def truce(self, deployment: ObjectKey) -> float:
        """Seconds until the next revert is due in a fight."""
        return (self._reverts[deployment][-1] + FIGHT_PAUSE - self._clock()).total_seconds()

    def until_peace(self, deployment: ObjectKey) -> float:
        """Seconds until the fight is over if nothing more happens."""
        return max(1.0, (self._reverts[deployment][0] + FIGHT_WINDOW - self._clock()).total_seconds())
