"""Which faults a proxy knows, and which one strikes a request: by rule, or at random from a seed.

The random choice for the n-th request to a path depends on the seed, the path and n only, so that the same faults meet
the same requests however requests interleave.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, TypeAlias

from tests.support.proxied_requests import ProxiedRequest

Action: TypeAlias = Literal[
    "status",  # answer with an error instead of forwarding
    "garbage",  # answer 200 with something that is not JSON
    "reset",  # reset the connection instead of forwarding
    "lose-answer",  # forward, then reset: the server acted, the client does not know
    "hang",  # accept, and never answer
    "slow",  # wait `seconds`, then forward
    "late",  # forward, and answer `seconds` later: watches tell of it first
    # Of a watch that has forwarded `after_events` events:
    "error-event",  # an ERROR event with `status`, then the end
    "cut",  # reset the connection
    "close",  # end the stream cleanly
    "truncate",  # half a line, then a clean end
    "freeze",  # forward nothing more, keep the connection (half-open)
    "delay",  # hold every further event back for `seconds`
    "duplicate",  # send the next event twice
    "repeat-late",  # send the next event again after the one that follows it
    "reorder",  # swap the next two events
]

STREAM_ACTIONS = frozenset(
    ("error-event", "cut", "close", "truncate", "freeze", "delay", "duplicate", "repeat-late", "reorder")
)


@dataclass(frozen=True)
class Fault:
    """A rule: what to do to requests that match all of `verb`, `resource`, `name` and `where` (empty: any).

    Verbs are get, list, watch, create, update, patch, apply, delete. It strikes `count` times (None: for ever) after
    letting `skip` matching requests pass. ``{n}`` in `message` becomes another number in every answer.
    """

    action: Action
    _: KW_ONLY
    verb: str = ""
    resource: str = ""
    name: str = ""
    where: Callable[[ProxiedRequest], bool] | None = None
    count: int | None = 1
    skip: int = 0
    status: int = 500
    reason: str = ""
    message: str = ""
    retry_after: int | None = None
    after_events: int = 0
    seconds: float = 0.5

    def matches(self, request: ProxiedRequest) -> bool:
        if self.action in STREAM_ACTIONS and request.verb != "watch":
            return False
        return (
            self.verb in ("", request.verb)
            and self.resource in ("", request.resource)
            and self.name in ("", request.name)
            and (self.where is None or self.where(request))
        )


CHAOS: tuple[Fault, ...] = (
    Fault("status", status=409, reason="Conflict", where=lambda r: r.verb in ("update", "patch", "apply", "delete")),
    Fault("status", status=429, reason="TooManyRequests", retry_after=1),
    Fault("status", status=500, reason="InternalError"),
    Fault("status", status=503, reason="ServiceUnavailable"),
    Fault("status", status=410, reason="Expired", where=lambda r: r.verb == "watch" or "continue" in r.query),
    Fault("reset"),
    Fault("lose-answer", where=lambda r: r.verb != "watch"),
    Fault("slow", seconds=0.3),
    Fault("late", seconds=0.3, where=lambda r: r.verb != "watch"),
    Fault("garbage"),
    Fault("error-event", status=410, reason="Expired", after_events=2),
    Fault("error-event", status=500, reason="InternalError", after_events=1),
    Fault("cut", after_events=3),
    Fault("close", after_events=1),
    Fault("truncate", after_events=2),
    Fault("delay", seconds=0.2),
    Fault("duplicate", after_events=1),
    Fault("repeat-late", after_events=1),
    Fault("reorder", after_events=1),
)
"""What `unleash` chooses from: all that passes quickly (`hang` and `freeze` last until a timeout of the client)."""


@dataclass
class _Rule:
    fault: Fault
    skip: int
    left: int | None


@dataclass(frozen=True, kw_only=True)
class _Chaos:
    seed: int
    rate: float
    faults: tuple[Fault, ...]


class FaultPlan:
    """The rules in force and the random mode; remembers how often each has struck."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._chaos: _Chaos | None = None
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def inject(self, faults: Sequence[Fault]) -> None:
        self._rules += [_Rule(fault=fault, skip=fault.skip, left=fault.count) for fault in faults]

    def clear(self) -> None:
        self._rules.clear()
        self._chaos = None

    def unleash(self, *, seed: int, rate: float, faults: Sequence[Fault]) -> None:
        self._chaos = _Chaos(seed=seed, rate=rate, faults=tuple(faults))
        self._counts.clear()

    @property
    def pending(self) -> list[Fault]:
        return [rule.fault for rule in self._rules if rule.left is not None and rule.left > 0]

    def choose(self, request: ProxiedRequest) -> Fault | None:
        """The fault that strikes this request, or None. It counts as struck."""
        for rule in self._rules:
            if rule.left == 0 or not rule.fault.matches(request):
                continue
            if rule.skip:
                rule.skip -= 1
                continue
            if rule.left is not None:
                rule.left -= 1
            return rule.fault
        if self._chaos is None:
            return None
        # Not the path: tests have namespaces of random names, and the same seed is to do the same again.
        place = (request.verb, request.resource, request.name)
        self._counts[place] += 1
        rng = random.Random(f"{self._chaos.seed} {place} {self._counts[place]}")
        if rng.random() >= self._chaos.rate:
            return None
        fitting = [fault for fault in self._chaos.faults if fault.matches(request)]
        if not fitting:
            return None
        chosen = rng.choice(fitting)
        return replace(chosen, after_events=rng.randint(0, 2 * chosen.after_events))
