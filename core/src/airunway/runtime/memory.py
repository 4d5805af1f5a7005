"""What the runtime remembers of each deployment between passes: one memory, forgotten at one moment.

None of it is needed to be right after a restart: it dates faults, spaces tries, counts reverts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airunway.kube import KubeError
from airunway.resource import Resource, dig
from airunway.runtime.answers import meaning_of
from airunway.runtime.desired import Identity
from airunway.runtime.told import Told
from airunway.status import DEPENDENCY_GRACE, Fault, since
from airunway.status.codes import CODES
from airunway.status.evidence import parse_moment
from airunway.status.rootcause import RootCause

__all__ = ["FIGHT_PAUSE", "FIGHT_REVERTS", "FIGHT_WINDOW", "Memory", "previous_cause"]

FIGHT_WINDOW = timedelta(minutes=2)
FIGHT_REVERTS = 5
"""More reverts than this within the window are a fight: somebody else wants something else, again and again."""

FIGHT_PAUSE = timedelta(seconds=30)
"""Time between reverts during a fight."""

_JUST_MADE = timedelta(seconds=30)
"""How long an object that we made may be missing in an upstream's cache."""


@dataclass(kw_only=True)
class Memory:
    """Of one deployment: since when each fault lasts, since when writes fail, when we reverted what others changed.

    `made` is when we made each object.
    """

    faults: dict[tuple[str, str], datetime] = field(default_factory=dict)
    failing: datetime | None = None
    reverts: deque[datetime] = field(default_factory=deque)
    made: dict[Identity, datetime] = field(default_factory=dict)

    def date(self, faults: Iterable[Fault], *, status: Resource, now: datetime) -> dict[tuple[str, str], datetime]:
        """The beginning of each of `faults`, by component and reason; what is not among them is forgotten.

        A fault that lasts keeps its beginning whatever else gets better or worse meanwhile; one that goes and comes
        back begins anew. Of one that this process has not seen before, `status` may tell, else the fault itself.
        """
        found: dict[tuple[str, str], datetime] = {}
        for fault in faults:
            name = (fault.component, fault.reason)
            if name not in found:
                begun = self.faults.get(name) or _restored(fault, status) or fault.since or now
                found[name] = min(begun, now)
        self.faults = found
        return found

    def note_made(self, obj: Identity, *, now: datetime) -> None:
        """Remember that we made it just now; what was made long ago is forgotten."""
        self.made = {one: when for one, when in self.made.items() if now - when < _JUST_MADE}
        self.made[obj] = now

    def just_made(self, obj: Identity, *, now: datetime) -> bool:
        """Whether we made it so lately that others may not know of it yet."""
        when = self.made.get(obj)
        return when is not None and now - when < _JUST_MADE

    def outage(self, error: KubeError, *, now: datetime) -> Told | None:
        """What is to be said of a failure to write that may pass: nothing until it lasts.

        Behind an API server's 500 may be the upstream's own admission webhook: a user has to be told, or would wait
        for ever without a word.
        """
        begun = self.failing = min(self.failing or now, now)
        if now - begun < DEPENDENCY_GRACE:
            return None
        message = f"The upstream resources cannot be written: {error}"
        reason = meaning_of(error).reason
        return Told(condition="ResourceCreated", reason=reason, message=message, hinders=True, since=begun)

    def is_fight(self, now: datetime) -> bool:
        """Whether too many reverts lie within the window already."""
        while self.reverts and now - self.reverts[0] > FIGHT_WINDOW:
            self.reverts.popleft()
        return len(self.reverts) > FIGHT_REVERTS

    def truce(self, now: datetime) -> float:
        """Seconds until the next revert is due in a fight; not above zero where it is."""
        return (self.reverts[-1] + FIGHT_PAUSE - now).total_seconds()

    def until_peace(self, now: datetime) -> float:
        """Seconds until the fight is over if nothing more happens."""
        return max(1.0, (self.reverts[0] + FIGHT_WINDOW - now).total_seconds())


def _restored(fault: Fault, status: Resource) -> datetime | None:
    """What a status that was written before tells: the root cause exactly, a condition at least a lower bound."""
    cause = previous_cause(status)
    if cause is not None and cause.code in CODES and fault.reason in CODES[cause.code].reasons:
        return cause.since
    conditions = dig(status, "conditions")
    entries = [c for c in conditions if isinstance(c, dict)] if isinstance(conditions, list) else []
    return since(entries, f"{fault.component}Ready", fault.reason)


def previous_cause(status: Resource) -> RootCause | None:
    """``status.rootCause`` as it stands, or None if there is none (or none that could be ours)."""
    found = dig(status, "rootCause")
    begun = parse_moment(dig(found, "since"))
    code, object_ = dig(found, "code"), dig(found, "object")
    if not isinstance(code, str) or not isinstance(object_, str) or begun is None:
        return None
    return RootCause(
        code=code,
        object=object_,
        field=str(dig(found, "field", default="")),
        message=str(dig(found, "message", default="")),
        since=begun,
        remedy="",
        reason="",
    )
