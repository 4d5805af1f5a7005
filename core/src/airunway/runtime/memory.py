"""What the runtime remembers of each deployment between passes, and when it tries a failed write again.

Nothing depends on it after a restart: it dates faults, spaces retries (docs/architecture.md) and counts reverts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from airunway.kube import KubeError, backoff_delay, retry_after_of
from airunway.owned.apply import WriteHistory
from airunway.owned.writer import Refused, policy_of
from airunway.plugins.rules import PODS
from airunway.resource import Resource, dig, entries_at
from airunway.runtime.report import StepResult
from airunway.status.evidence import Evidence, parse_moment
from airunway.status.reasons import CODES, Category
from airunway.status.rollup import DEPENDENCY_GRACE, Fault, since
from airunway.status.rootcause import RootCause

# ----------------------------------------------------------------------------------- when a failed write is tried again


BASE = 0.2
"""Seconds until the first retry; each further failure doubles it, up to CAP."""

CAP = 300.0
"""Maximum seconds between retries."""

READ_ON = 5.0
"""Seconds until a pass reads the workloads that were too many for the one before. It doubles: events that any user can
write must not keep a provider reading.
"""

SCHEMA_TRIES = 6
"""Number of tries (about six seconds) of a write that the schema refuses; after that, only a changed schema triggers
another. A changed CRD reaches the API servers of a control plane one after the other, and may reach us before them.
"""

T = TypeVar("T")

_RANDOM = random.Random()

_WORD = re.compile(r"[\w.:+-]+")

_NUMBERED = re.compile(r"\d|^[0-9a-f]{8,}$")


class RetryKey(NamedTuple):
    """What is tried. A new generation, plan or upstream state is a new key, which is tried at once."""

    uid: str
    """The uid of the deployment."""
    generation: int
    wanted: tuple[str, ...]
    """The action, and the digests of the objects."""
    upstream: tuple[object, ...] = ()
    """The upstream state on which the outcome depends."""


@dataclass(frozen=True, kw_only=True)
class FailedTry(Generic[T]):
    """The last failure of a try."""

    key: RetryKey
    failure: T
    """The failure."""
    text: str
    """Its message without numbers."""
    attempt: int
    """Number of failed tries."""
    due: float
    """Time of the next try, by the clock of `Attempts`."""
    left: float | None
    """Seconds until the next try; None if only what has another key is tried."""


@dataclass(kw_only=True, slots=True)
class Attempts(Generic[T]):
    """The last failure of a deployment; `clock` returns monotonic seconds.

    A pass can be triggered by its own status write, by a pod, or by a user who edits labels in a loop. A failure is
    retried only when it is due or its key has changed. Otherwise an error whose text differs each time (a port, a
    request id) would cause an endless loop of status writes, each triggering the next.
    """

    clock: Callable[[], float] = monotonic
    rng: random.Random = _RANDOM
    last: FailedTry[T] | None = None

    def failed_try(self, key: RetryKey) -> FailedTry[T] | None:
        """The failure because of which `key` must not be tried now; None if it may be tried."""
        last, now = self.last, self.clock()
        if last is None or last.key != key or last.due <= now:
            return None
        return replace(last, left=None if last.due == inf else last.due - now)

    def failed(
        self, key: RetryKey, *, failure: T, text: str, at_least: float = 0.0, at_most: float = CAP, lasts: bool = False
    ) -> FailedTry[T]:
        """Note that a try failed. The result has the earlier `failure` if only numbers in `text` differ.

        `at_least` (the server's Retry-After in seconds) has precedence over `at_most`. With `lasts`, only another
        key is tried after SCHEMA_TRIES.
        """
        last = self.last if self.last is not None and self.last.key == key else None
        masked, attempt = without_numbers(text), last.attempt + 1 if last is not None else 1
        if isinstance(failure, BaseException):
            failure = _bare(failure)
        if last is not None and last.text == masked:
            failure = last.failure
        pause = max(backoff_delay(attempt, base=BASE, cap=at_most, rng=self.rng), at_least)
        left = None if lasts and attempt >= SCHEMA_TRIES else pause
        due = inf if left is None else self.clock() + left
        self.last = FailedTry(key=key, failure=failure, text=masked, attempt=attempt, due=due, left=left)
        return self.last

    def reset(self) -> None:
        """Forget the failure: the try succeeded, or there is nothing left to do."""
        self.last = None


def _bare(error: T) -> T:
    """The error without its traceback and causes, whose frames keep all objects of the pass in memory."""
    assert isinstance(error, BaseException)
    found = type(error).__new__(type(error), *error.args)
    found.__dict__.update(error.__dict__)
    return found


def without_numbers(text: str) -> str:
    """`text` for comparison, with words that contain a digit and runs of eight or more hex letters masked.

    Ports, addresses, counts, times and request ids differ between failures of the same cause.
    """
    return _WORD.sub(lambda word: "#" if _NUMBERED.search(word[0]) else word[0], text)


# --------------------------------------------------------------------------------- what is remembered of one deployment


Failure = Refused | KubeError | StepResult
"""The causes of a failed try: an object is refused, the API server fails, or a dry run is refused."""


@dataclass(kw_only=True)
class Waiting:
    """The result of comparing the live objects with what the newest transformer and settings would write."""

    compared: object = None
    """The input of the last comparison."""
    found: Resource = field(default_factory=dict)
    """Its result."""


class Announced(NamedTuple):
    """A replacement of the primary object that event and status have announced."""

    uid: str
    """The uid of the old object."""
    generation: int
    """The generation of the deployment that needs a new one."""


@dataclass(kw_only=True)
class Memory(WriteHistory):
    """What the runtime remembers of one deployment."""

    faults: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """When each fault began, by component and reason."""
    failing: datetime | None = None
    """When writes began to fail; None if they do not."""
    tries: Attempts[Failure] = field(default_factory=Attempts)
    """The last failure and its retry."""
    last_words: str = ""
    """The termination message of the pod that failed last."""
    waiting: Waiting = field(default_factory=Waiting)
    """What a newer transformer or newer settings would write otherwise."""
    announced: Announced | None = None
    """The last replacement that the status has announced; the status need not name it, if there is a worse fault."""
    unread: int = 0
    """Number of passes in a row that have left workloads to read, because of events about them, to the next one."""

    def failed(self, key: RetryKey, failure: Failure) -> FailedTry[Failure]:
        """Note that a try failed. `FailedTry.failure` is the earlier failure if the message is the same."""
        match failure:
            case Refused():
                return self.tries.failed(key, failure=failure, text=failure.message, lasts=failure.policy.lasts)
            case StepResult():
                return self.tries.failed(key, failure=failure, text=failure.message)
            case _:
                return self.tries.failed(key, failure=failure, text=str(failure), at_least=retry_after_of(failure))

    def read_on(self, evidence: Evidence | None) -> float | None:
        """Seconds until the next pass, if this one has left workloads unread; otherwise None."""
        self.unread = self.unread + 1 if evidence is not None and evidence.unread else 0
        return backoff_delay(self.unread, base=READ_ON, cap=CAP, rng=_RANDOM) if self.unread else None

    def date(self, faults: Iterable[Fault], *, status: Resource, now: datetime) -> dict[tuple[str, str], datetime]:
        """The beginning of each of `faults`, by component and reason; all other faults are forgotten.

        A fault keeps its beginning while it lasts, whatever other faults come and go; one that recurs begins anew. For
        a fault that is new to this process, the beginning is read from `status`, or otherwise from the fault itself.
        """
        found: dict[tuple[str, str], datetime] = {}
        for fault in faults:
            name = (fault.component, fault.reason)
            if name not in found:
                # What pods cannot reach counts from when it is seen: its first sign may be older.
                sign = None if fault.kind is Category.CONNECTIVITY and fault.component == PODS else fault.since
                begun = self.faults.get(name) or _restored(fault, status) or sign or now
                found[name] = min(begun, now)
        self.faults = found
        return found

    def outage(self, error: KubeError, *, now: datetime) -> StepResult | None:
        """The result for a transient failure to write; None until it lasts for DEPENDENCY_GRACE.

        The cause may be permanent: the upstream's own admission webhook can be behind an API server's 500. Without this
        result a user would wait without seeing a reason.
        """
        begun = self.failing = min(self.failing or now, now)
        if now - begun < DEPENDENCY_GRACE:
            return None
        message = f"The upstream resources cannot be written: {error}"
        reason = policy_of(error).reason
        return StepResult(condition="ResourceCreated", reason=reason, message=message, blocks_ready=True, since=begun)


def _restored(fault: Fault, status: Resource) -> datetime | None:
    """When a fault began according to an earlier status: exactly from a root cause, at the latest from a condition."""
    of_pods = fault.kind is Category.CONNECTIVITY and fault.component == PODS
    cause = previous_cause(status) if not of_pods else None
    if cause is not None and cause.code in CODES and fault.reason in CODES[cause.code].reasons:
        return cause.since
    return since(entries_at(status, "conditions"), f"{fault.component}Ready", fault.reason)


def previous_cause(status: Resource) -> RootCause | None:
    """The live ``status.rootCause``; None if there is none, or none that we can have written."""
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
