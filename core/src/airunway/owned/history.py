"""What a writer remembers of the objects of one owner: recent reverts, which may be a fight, and creations. Pure.

Nothing depends on it after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airunway.api import names
from airunway.owned.objects import Identity, identity_in, named
from airunway.owned.plan import Plan, Step
from airunway.resource import Resource, annotations_of

__all__ = [
    "FIGHT_PAUSE",
    "FIGHT_REVERTS",
    "FIGHT_WINDOW",
    "Fight",
    "WriteHistory",
    "fight_text",
    "fought",
    "is_drift",
]

FIGHT_WINDOW = timedelta(minutes=2)


FIGHT_REVERTS = 5
"""Number of reverts of one object within the window above which they are a fight with another writer."""


FIGHT_PAUSE = timedelta(seconds=30)
"""Minimum time between reverts during a fight."""


_JUST_MADE = timedelta(seconds=30)
"""Time for which a new object of ours may be missing in another controller's cache."""


@dataclass(frozen=True, kw_only=True)
class Fight:
    """A fight with another writer over one object."""

    retry_after: float
    """Seconds until the next revert is due; zero or less if it is due."""
    expires_in: float
    """Seconds until the fight is over if no further revert follows."""


@dataclass(kw_only=True)
class WriteHistory:
    """The recent writes of one owner's objects."""

    reverts: dict[Identity, deque[datetime]] = field(default_factory=dict)
    """Times of recent reverts, by object."""
    made: dict[Identity, datetime] = field(default_factory=dict)
    """When each object was created, for objects created lately."""

    def note_made(self, obj: Identity, *, now: datetime) -> None:
        """Note that the object was just created; forget objects created long ago."""
        self.made = {one: when for one, when in self.made.items() if now - when < _JUST_MADE}
        self.made[obj] = now

    def just_made(self, obj: Identity, *, now: datetime) -> bool:
        """Whether the object was created so recently that others may not know of it yet."""
        when = self.made.get(obj)
        return when is not None and now - when < _JUST_MADE

    def reverted(self, identity: Identity, now: datetime) -> None:
        """Count a revert of a foreign change to this object."""
        self.reverts.setdefault(identity, deque()).append(now)

    def fights(self, now: datetime) -> dict[Identity, Fight]:
        """The objects with too many reverts within the window."""
        for identity, times in list(self.reverts.items()):
            while times and now - times[0] > FIGHT_WINDOW:
                times.popleft()
            if not times:
                del self.reverts[identity]
        return {
            identity: Fight(
                retry_after=(times[-1] + FIGHT_PAUSE - now).total_seconds(),
                expires_in=max(1.0, (times[0] + FIGHT_WINDOW - now).total_seconds()),
            )
            for identity, times in self.reverts.items()
            if len(times) > FIGHT_REVERTS
        }


def is_drift(step: Step) -> bool:
    """Whether a step writes what was written before because another writer changed the object."""
    live, wanted = step.live, step.wanted
    return step.writes and live is not None and wanted is not None and _hash(live) == _hash(wanted)


def fought(plan: Plan, fights: Mapping[Identity, Fight]) -> list[tuple[Step, Fight]]:
    """The steps about objects that another writer keeps changing; empty for nearly all deployments."""
    if not fights:
        return []
    about = ((step, fights.get(identity_in(step.subject))) for step in plan.steps)
    return [(step, fight) for step, fight in about if fight is not None]


def fight_text(steps: Sequence[Step]) -> str:
    """The message where another writer keeps changing what we keep reverting."""
    return (
        f"{', '.join(named(step.subject) for step in steps[:3])} {'was' if len(steps) == 1 else 'were each'} changed "
        f"and reverted more than {FIGHT_REVERTS} times within "
        f"{FIGHT_WINDOW.seconds // 60} minutes; reverts now wait {FIGHT_PAUSE.seconds} s. "
        "The event DriftDetected names the field and who changes it"
    )


def _hash(obj: Resource) -> str | None:
    return annotations_of(obj).get(names.SPEC_HASH)
