"""Not doing again at once what has just failed.

A pass may be woken by anything: by its own status write, by a pod, by somebody who edits labels in a loop. What failed
is tried again when its time has come, or when what it was about has changed, and for no other reason: otherwise an
error whose text differs each time (a port, a request id) makes a loop of writes, each waking the next.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from airunway.kube import backoff_delay
from airunway.resource import ObjectKey

__all__ = ["BASE", "CAP", "Attempts", "Standing", "Subject", "without_numbers"]

BASE = 0.2
"""Seconds until the first new try; each further failure doubles it, up to CAP."""

CAP = 300.0
"""Seconds between tries at most."""

SCHEMA_TRIES = 6
"""Tries (some ten seconds) of what a schema refuses, before only another schema brings the next: a CRD that changed
reaches the servers of a control plane one after the other, and us before some of them."""

T = TypeVar("T")

_WORD = re.compile(r"[\w.:+-]+")
_NUMBERED = re.compile(r"\d|^[0-9a-f]{8,}$")


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


class Attempts(Generic[T]):
    """The last failure of each deployment; `clock` in seconds, from any beginning."""

    def __init__(
        self,
        *,
        base: float = BASE,
        cap: float = CAP,
        clock: Callable[[], float] = monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._base, self._cap, self._clock, self._rng = base, cap, clock, rng or random.Random()
        self._last: dict[ObjectKey, Standing[T]] = {}

    def standing(self, key: ObjectKey, subject: Subject) -> Standing[T] | None:
        """The failure because of which `subject` is not tried now; None if it may be."""
        last = self._last.get(key)
        if last is None or last.subject != subject or last.due <= self._clock():
            return None
        return self._at(last, self._clock())

    def last(self, key: ObjectKey) -> T | None:
        """What became of the last try, if that failed."""
        last = self._last.get(key)
        return None if last is None else last.what

    def failed(
        self, key: ObjectKey, subject: Subject, *, what: T, text: str, at_least: float = 0.0, lasts: bool = False
    ) -> Standing[T]:
        """A try failed. The answer has the earlier `what` if only numbers in `text` differ: nothing new was said.

        `at_least` are the server's seconds; with `lasts`, after SCHEMA_TRIES only another subject is tried.
        """
        now, last, masked = self._clock(), self._last.get(key), without_numbers(text)
        if isinstance(what, BaseException):
            what = _bare(what)
        attempt = last.attempt + 1 if last is not None and last.subject == subject else 1
        if last is not None and last.subject == subject and last.text == masked:
            what = last.what
        delay = backoff_delay(attempt, base=self._base, cap=self._cap, rng=self._rng)
        due = inf if lasts and attempt >= SCHEMA_TRIES else now + max(delay, at_least)
        found = Standing(subject=subject, what=what, text=masked, attempt=attempt, due=due, left=None)
        self._last[key] = found
        return self._at(found, now)

    def over(self, key: ObjectKey) -> None:
        """It worked, or there is nothing more to do for the deployment."""
        self._last.pop(key, None)

    def _at(self, found: Standing[T], now: float) -> Standing[T]:
        return Standing(
            subject=found.subject,
            what=found.what,
            text=found.text,
            attempt=found.attempt,
            due=found.due,
            left=None if found.due == inf else found.due - now,
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
