"""When a failed write is tried again: its subject, its last failure, the pause (spec/core.md, the backoff)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from airunway.kube import backoff_delay

__all__ = ["BASE", "CAP", "SCHEMA_TRIES", "Attempts", "FailedTry", "Subject", "without_numbers"]


BASE = 0.2
"""Seconds until the first retry; each further failure doubles it, up to CAP."""


CAP = 300.0
"""Maximum seconds between retries."""


SCHEMA_TRIES = 6
"""Number of tries (about ten seconds) of a write that the schema refuses; after that, only a changed schema triggers
another. A changed CRD reaches the API servers of a control plane one after the other, and may reach us before them.
"""


T = TypeVar("T")


_RANDOM = random.Random()


_WORD = re.compile(r"[\w.:+-]+")


_NUMBERED = re.compile(r"\d|^[0-9a-f]{8,}$")


class Subject(NamedTuple):
    """What is tried. A new generation, plan or upstream state is a new subject, which is tried at once."""

    uid: str
    """The uid of the deployment."""
    generation: int
    wanted: tuple[str, ...]
    """The action, and the digests of the objects."""
    upstream: tuple[object, ...] = ()
    """The upstream state on which the outcome depends."""


@dataclass(frozen=True, kw_only=True)
class FailedTry(Generic[T]):
    """The last failure of a subject."""

    subject: Subject
    what: T
    """The failure."""
    text: str
    """Its message without numbers."""
    attempt: int
    """Number of failed tries."""
    due: float
    """Time of the next try, by the clock of `Attempts`."""
    left: float | None
    """Seconds until the next try; None if only another subject is tried."""


@dataclass(kw_only=True, slots=True)
class Attempts(Generic[T]):
    """The last failure of a deployment; `clock` returns monotonic seconds.

    A pass can be triggered by its own status write, by a pod, or by a user who edits labels in a loop. A failure is
    retried only when it is due or its subject has changed. Otherwise an error whose text differs each time (a port, a
    request id) would cause an endless loop of status writes, each triggering the next.
    """

    clock: Callable[[], float] = monotonic
    rng: random.Random = _RANDOM
    last: FailedTry[T] | None = None

    def failed_try(self, subject: Subject) -> FailedTry[T] | None:
        """The failure because of which `subject` must not be tried now; None if it may be tried."""
        last, now = self.last, self.clock()
        if last is None or last.subject != subject or last.due <= now:
            return None
        return replace(last, left=None if last.due == inf else last.due - now)

    def failed(
        self, subject: Subject, *, what: T, text: str, at_least: float = 0.0, at_most: float = CAP, lasts: bool = False
    ) -> FailedTry[T]:
        """Note that a try failed. The result has the earlier `what` if only numbers in `text` differ.

        `at_least` (the server's Retry-After in seconds) has precedence over `at_most`. With `lasts`, only another
        subject is tried after SCHEMA_TRIES.
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
