"""What the runtime remembers of each deployment between passes: one memory, forgotten at one moment.

None of it is needed to be right after a restart: it dates faults, spaces tries, counts reverts.
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
from airunway.runtime.errors import Refused, meaning_of
from airunway.runtime.report import Told
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
    "Failure",
    "Fight",
    "Memory",
    "Standing",
    "Subject",
    "Waiting",
    "previous_cause",
    "without_numbers",
]

FIGHT_WINDOW = timedelta(minutes=2)


FIGHT_REVERTS = 5
"""More reverts of one object than this within the window are a fight: somebody wants something else, and goes on."""


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


Failure = Refused | KubeError | Told
"""What may become of a try: an object is refused, the API server cannot, or a plan would be refused."""


class Subject(NamedTuple):
    """What a try is about. Another generation, another wish or another state upstream: a new subject, tried at once.

    `wanted` names what is to be done and carries the digests of the objects; `upstream` is what the outcome depends on.
    """

    uid: str
    generation: int
    wanted: tuple[str, ...]
    upstream: tuple[object, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Standing(Generic[T]):
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

    A pass may be woken by anything: by its own status write, by a pod, by somebody who edits labels in a loop. What
    failed is tried again when its time has come, or when what it was about has changed, and for no other reason:
    otherwise an error whose text differs each time (a port, a request id) makes a loop of writes, each waking the next.
    """

    clock: Callable[[], float] = monotonic
    rng: random.Random = _RANDOM
    last: Standing[T] | None = None

    def standing(self, subject: Subject) -> Standing[T] | None:
        """The failure because of which `subject` is not tried now; None if it may be."""
        last, now = self.last, self.clock()
        if last is None or last.subject != subject or last.due <= now:
            return None
        return replace(last, left=None if last.due == inf else last.due - now)

    def failed(
        self, subject: Subject, *, what: T, text: str, at_least: float = 0.0, at_most: float = CAP, lasts: bool = False
    ) -> Standing[T]:
        """A try failed. The answer has the earlier `what` if only numbers in `text` differ: nothing new was said.

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
        self.last = Standing(subject=subject, what=what, text=masked, attempt=attempt, due=due, left=left)
        return self.last

    def over(self) -> None:
        """It worked, or there is nothing more to do for the deployment."""
        self.last = None


@dataclass(frozen=True, kw_only=True)
class Fight:
    """Over one object. `truce`: seconds until its next revert is due, not above zero where it is; `peace`: until the
    fight is over if nothing more happens.
    """

    truce: float
    peace: float


@dataclass(kw_only=True)
class Waiting:
    """What came of comparing what runs with the newest way to write it, and everything that was `compared`."""

    compared: object = None
    found: tuple[Finding, ...] = ()


@dataclass(kw_only=True)
class Memory:
    """Of one deployment: since when each fault lasts, since when writes fail, when we reverted which object.

    `made` is when we made each object, `tries` what failed last, and when it is tried again. `last_words` are those of
    the pod that failed last.
    """

    faults: dict[tuple[str, str], datetime] = field(default_factory=dict)
    failing: datetime | None = None
    reverts: dict[Identity, deque[datetime]] = field(default_factory=dict)
    made: dict[Identity, datetime] = field(default_factory=dict)
    tries: Attempts[Failure] = field(default_factory=Attempts)
    last_words: str = ""
    waiting: Waiting = field(default_factory=Waiting)

    def failed(self, subject: Subject, failure: Failure) -> Standing[Failure]:
        """A try failed. `Standing.what` is the earlier failure if this one says nothing new."""
        match failure:
            case Refused():
                return self.tries.failed(subject, what=failure, text=failure.message, lasts=failure.meaning.lasts)
            case Told():
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

    def reverted(self, identity: Identity, now: datetime) -> None:
        """What somebody changed about this object is as it was."""
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
                truce=(times[-1] + FIGHT_PAUSE - now).total_seconds(),
                peace=max(1.0, (times[0] + FIGHT_WINDOW - now).total_seconds()),
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
