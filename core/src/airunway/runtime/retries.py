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
