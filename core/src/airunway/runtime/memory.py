"""What the runtime remembers of each deployment between passes.

Nothing depends on it after a restart: it dates faults, spaces retries and counts reverts.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from airunway.kube import KubeError, backoff_delay, retry_after_of
from airunway.plugins.contract import Finding
from airunway.resource import Resource, dig
from airunway.runtime.error_policies import Refused, policy_of
from airunway.runtime.report import StepResult
from airunway.runtime.state import Identity
from airunway.status import DEPENDENCY_GRACE, Fault, since
from airunway.status.codes import CODES
from airunway.status.evidence import parse_moment
from airunway.status.rootcause import RootCause

__all__ = [
    "CAP",
    "FIGHT_PAUSE",
    "FIGHT_REVERTS",
    "FIGHT_WINDOW",
    "SCHEMA_TRIES",
    "Attempts",
    "FailedTry",
    "Failure",
    "Fight",
    "Memory",
    "Subject",
    "Waiting",
    "previous_cause",
    "without_numbers",
]

FIGHT_WINDOW = timedelta(minutes=2)


FIGHT_REVERTS = 5
"""More reverts of one object than this within the window are a fight with another writer."""


FIGHT_PAUSE = timedelta(seconds=30)
"""Time between reverts during a fight."""


_JUST_MADE = timedelta(seconds=30)
"""How long an object that we made may be missing in an upstream's cache."""


BASE = 0.2
"""Seconds until the first new try; each further failure doubles it, up to CAP."""


CAP = 300.0
"""Seconds between tries at most."""


SCHEMA_TRIES = 6
"""Tries (some ten seconds) of what a schema refuses, before only another schema brings the next: a CRD that changed
reaches the servers of a control plane one after the other, and us before some of them."""


T = TypeVar("T")


_RANDOM = random.Random()


_WORD = re.compile(r"[\w.:+-]+")


_NUMBERED = re.compile(r"\d|^[0-9a-f]{8,}$")


Failure = Refused | KubeError | StepResult
"""How a try may fail: an object is refused, the API server fails, or a dry run is refused."""


class Subject(NamedTuple):
    """What a try is about. A new generation, plan or upstream state is a new subject, which is tried at once.

    `wanted` names what is to be done and carries the digests of the objects; `upstream` is what the outcome depends on.
    """

    uid: str
    generation: int
    wanted: tuple[str, ...]
    upstream: tuple[object, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FailedTry(Generic[T]):
    """A failure that stands: `what` became of the try, how many there were, and when the next one is due."""

    subject: Subject
    what: T
    text: str
    attempt: int
    due: float
    left: float | None
    """Seconds until then, None where no time will do."""


@dataclass(kw_only=True, slots=True)
class Attempts(Generic[T]):
    """The last failure of a deployment; `clock` in seconds, from any beginning.

    Anything may trigger a pass: its own status write, a pod, a user who edits labels in a loop. A failure is retried
    when it is due, or when its subject has changed, and for no other reason: otherwise an error whose text differs each
    time (a port, a request id) would make a loop of status writes, each triggering the next.
    """

    clock: Callable[[], float] = monotonic
    rng: random.Random = _RANDOM
    last: FailedTry[T] | None = None

    def failed_try(self, subject: Subject) -> FailedTry[T] | None:
        """The failure because of which `subject` is not tried now; None if it may be."""
        last, now = self.last, self.clock()
        if last is None or last.subject != subject or last.due <= now:
            return None
        return replace(last, left=None if last.due == inf else last.due - now)

    def failed(
        self, subject: Subject, *, what: T, text: str, at_least: float = 0.0, at_most: float = CAP, lasts: bool = False
    ) -> FailedTry[T]:
        """Note that a try failed. The answer has the earlier `what` if only numbers in `text` differ.

        `at_least` (the server's seconds) counts for more than `at_most`; with `lasts`, after SCHEMA_TRIES only another
        subject is tried.
        """
        last = self.last if self.last is not None and self.last.subject == subject else None
        masked, attempt = without_numbers(text), last.attempt + 1 if last is not None else 1
        if isinstance(what, BaseException):
            what = _bare(what)
        if last is not None and last.text == masked:
            what = last.what
        pause = max(backoff_delay(attempt, base=BASE, cap=at_most, rng=self.rng), at_least)
        left = None if lasts and attempt >= SCHEMA_TRIES else pause
        due = inf if left is None else self.clock() + left
        self.last = FailedTry(subject=subject, what=what, text=masked, attempt=attempt, due=due, left=left)
        return self.last

    def over(self) -> None:
        """Forget the failure: the try succeeded, or there is nothing left to do."""
        self.last = None


@dataclass(frozen=True, kw_only=True)
class Fight:
    """Another writer keeps changing one object back."""

    retry_after: float
    """Seconds until its next revert is due; not above zero where it is due."""
    expires_in: float
    """Seconds until the fight is over if nothing more happens."""


@dataclass(kw_only=True)
class Waiting:
    """The result of comparing what runs with the newest way to write it, and the input that was `compared`."""

    compared: object = None
    found: tuple[Finding, ...] = ()


@dataclass(kw_only=True)
class Memory:
    """What is remembered of one deployment."""

    faults: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """Since when each fault lasts, by component and reason."""
    failing: datetime | None = None
    """Since when writes fail."""
    reverts: dict[Identity, deque[datetime]] = field(default_factory=dict)
    """When which object was reverted."""
    made: dict[Identity, datetime] = field(default_factory=dict)
    """When each object was created, of those created lately."""
    tries: Attempts[Failure] = field(default_factory=Attempts)
    """What failed last, and when it is retried."""
    last_words: str = ""
    """The termination message of the pod that failed last."""
    waiting: Waiting = field(default_factory=Waiting)
    """Whether a newer transformer or newer settings wait."""

    def failed(self, subject: Subject, failure: Failure) -> FailedTry[Failure]:
        """Note that a try failed. `FailedTry.what` is the earlier failure if the message is the same."""
        match failure:
            case Refused():
                return self.tries.failed(subject, what=failure, text=failure.message, lasts=failure.policy.lasts)
            case StepResult():
                return self.tries.failed(subject, what=failure, text=failure.message)
            case _:
                return self.tries.failed(subject, what=failure, text=str(failure), at_least=retry_after_of(failure))

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

    def outage(self, error: KubeError, *, now: datetime) -> StepResult | None:
        """The result for a transient failure to write; None until it lasts.

        The upstream's own admission webhook may be behind an API server's 500: without this, a user would wait for
        ever and see no reason.
        """
        begun = self.failing = min(self.failing or now, now)
        if now - begun < DEPENDENCY_GRACE:
            return None
        message = f"The upstream resources cannot be written: {error}"
        reason = policy_of(error).reason
        return StepResult(condition="ResourceCreated", reason=reason, message=message, blocks_ready=True, since=begun)

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


def _bare(error: T) -> T:
    """The same error without its traceback and causes: their frames hold all that the pass had in hand."""
    assert isinstance(error, BaseException)
    found = type(error).__new__(type(error), *error.args)
    found.__dict__.update(error.__dict__)
    return found


def without_numbers(text: str) -> str:
    """`text` for comparison: words with a digit in them, and runs of eight or more hex letters, are all alike.

    Ports, addresses, counts, times, request ids: they differ from one failure to the next and tell nothing new.
    """
    return _WORD.sub(lambda word: "#" if _NUMBERED.search(word[0]) else word[0], text)
