"""A work queue of keys: each key waits once, has one holder at a time, and backs off after failures; and the backoff.

Guarantees:

- A key that was added is delivered at least once afterwards.
- A key waits at most once, no matter how often it was added.
- A key that is being worked on is not delivered again before `done`. If it was added meanwhile, it is delivered then.
- `add_after` keeps one deadline per key: the earliest.
- A key that rests (`rest`) is not delivered before its rest is over. If it was added meanwhile, it is delivered then.
- Keys of a higher `Priority` come first, but pass over a waiting lower one a limited number of times (`_PATIENCE`). A
  key that is added again at a higher priority moves up.
- Within a priority the sharers of the queue (namespaces) take turns, no matter how many keys each has. The keys of one
  sharer are delivered in the order of arrival.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from enum import IntEnum
from itertools import chain
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


_PATIENCE = 7
"""How often keys of a higher priority may pass over a waiting lower one; every eighth key is then of the lower one."""


class Priority(IntEnum):
    """Why a key is reconciled, the most urgent first."""

    URGENT = 0
    """One of its objects changed, and a user may be waiting for the new status."""
    NORMAL = 1
    """It is new, it was changed, or its requeue time has come."""
    BULK = 2
    """It is one of many that are reconciled for another reason: a relist, a policy, a new leader."""


class Handle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of an event loop that the queue uses for time; tests pass their own."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Handle: ...


class _Line(Generic[K]):
    """The keys that wait at one priority: sharers take turns, and the keys of one sharer keep their order."""

    def __init__(self, sharer_of: Callable[[K], Hashable]) -> None:
        self._sharer_of = sharer_of
        self._sharers: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._sharers.values()))

    def __bool__(self) -> bool:
        return bool(self._sharers)

    def __contains__(self, key: K) -> bool:
        return key in self._sharers.get(self._sharer_of(key), ())

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._sharers.values())

    def put(self, key: K, since: float) -> None:
        self._sharers.setdefault(self._sharer_of(key), OrderedDict())[key] = since

    def pop(self, key: K) -> float:
        """Removes `key`; returns when it was added, in the seconds of `Timers.time`."""
        sharer = self._sharer_of(key)
        keys = self._sharers[sharer]
        since = keys.pop(key)
        if not keys:
            del self._sharers[sharer]
        return since

    def take(self) -> tuple[K, float]:
        """Removes the next key; returns it, and when it was added."""
        sharer, keys = next(iter(self._sharers.items()))
        key, since = keys.popitem(last=False)
        if keys:
            self._sharers.move_to_end(sharer)
        else:
            del self._sharers[sharer]
        return key, since


class WorkQueue(Generic[K]):
    """The queue between event handlers (synchronous, fast) and workers (one `get` … `done` per key).

    `sharer_of` returns the sharer that a key belongs to: thousands of keys of one sharer do not delay those of another.
    `base` and `cap` bound the backoff of `retry`, in seconds. `timers` defaults to the running loop, so a queue without
    `timers` must be created inside a coroutine.
    """

    def __init__(
        self,
        *,
        base: float = 0.2,
        cap: float = 300.0,
        timers: Timers | None = None,
        rng: random.Random | None = None,
        sharer_of: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        self._base, self._cap = base, cap
        self._timers: Timers = timers or asyncio.get_running_loop()
        self._rng = rng or random.Random()
        self._ready: tuple[_Line[K], ...] = tuple(_Line(sharer_of) for _ in Priority)
        self._passed_over = [0] * len(Priority)
        self._held: set[K] = set()
        self._again: dict[K, tuple[Priority, float]] = {}  # added while held
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._alarm: tuple[float, Handle] | None = None
        self._rests: dict[K, tuple[float, Handle]] = {}
        self._after_rest: dict[K, Priority] = {}  # added while it rests
        self._attempts: dict[K, int] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Queues `key` for the next free worker."""
        now = self._timers.time()
        if key in self._held:
            before, since = self._again.get(key, (priority, now))
            self._again[key] = (min(before, priority), since)
        else:
            self._enqueue(key, priority, now)

    def _enqueue(self, key: K, priority: Priority, since: float) -> None:
        waiting = next((level for level in Priority if key in self._ready[level]), None)
        if waiting is None and key in self._rests:
            self._after_rest[key] = min(priority, self._after_rest.get(key, priority))
        elif waiting is None:
            self._ready[priority].put(key, since)
            self._wake_one()
        elif priority < waiting:
            self._ready[priority].put(key, self._ready[waiting].pop(key))

    def add_after(self, key: K, seconds: float) -> None:
        """Queues `key` in `seconds`, or earlier if it already has an earlier deadline."""
        if seconds <= 0:
            self.add(key)
            return
        deadline = self._timers.time() + seconds
        if deadline >= self._due.get(key, float("inf")):
            return
        self._due[key] = deadline
        self._sequence += 1
        heapq.heappush(self._heap, (deadline, self._sequence, key))
        self._set_alarm()

    def rest(self, key: K, seconds: float) -> None:
        """Delays `key` for at least `seconds`, even if it is added meanwhile; of two rests the longer one counts.

        A key that already waits for a worker is not delayed.
        """
        until = self._timers.time() + seconds
        resting = self._rests.get(key)
        if seconds <= 0 or (resting is not None and resting[0] >= until):
            return
        if resting is not None:
            resting[1].cancel()
        self._rests[key] = until, self._timers.call_at(until, lambda: self._rested(key))

    def _rested(self, key: K) -> None:
        del self._rests[key]
        priority = self._after_rest.pop(key, None)
        if priority is not None:
            self.add(key, priority)

    def reschedule(self, key: K, seconds: float | None) -> None:
        """Replaces the deadline of `key`: it is queued in `seconds`, or (None) only when it is added."""
        if self._due.pop(key, None) is not None:
            self._set_alarm()
        if seconds is not None:
            self.add_after(key, seconds)

    def retry(self, key: K, at_least: float = 0.0) -> float:
        """Queues a failed `key` after its backoff, at least `at_least` seconds; returns the delay.

        Replaces an earlier deadline, which a pass before had asked for. A key that is added meanwhile does not wait.
        """
        attempt = self._attempts.get(key, 0) + 1
        self._attempts[key] = attempt
        delay = max(at_least, backoff_delay(attempt, base=self._base, cap=self._cap, rng=self._rng))
        self.reschedule(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Resets the backoff of `key` after a success."""
        self._attempts.pop(key, None)

    def attempts(self, key: K) -> int:
        """Returns how often `key` was retried since it last succeeded."""
        return self._attempts.get(key, 0)

    async def get(self) -> K:
        """Returns the next key; the caller holds it until `done`."""
        key, _ = await self.get_timed()
        return key

    async def get_timed(self) -> tuple[K, float]:
        """Like `get`, and also returns the seconds that the key waited after it was due."""
        while not any(self._ready):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                elif any(self._ready):
                    self._wake_one()  # this waiter was woken for a key but is cancelled: wake another one
                raise
        chosen = self._next()
        for level in Priority:
            self._passed_over[level] = self._passed_over[level] + 1 if level != chosen and self._ready[level] else 0
        key, since = self._ready[chosen].take()
        self._held.add(key)
        return key, max(0.0, self._timers.time() - since)

    def _next(self) -> Priority:
        """Returns the priority of the next key; there must be a waiting key."""
        waiting = [level for level in Priority if self._ready[level]]
        impatient = (level for level in reversed(waiting) if self._passed_over[level] >= _PATIENCE)
        return next(impatient, waiting[0])

    def done(self, key: K) -> None:
        """Gives `key` back. Raises ValueError if it has no holder."""
        if key not in self._held:
            raise ValueError(f"{key!r} is not being worked on")
        self._held.remove(key)
        again = self._again.pop(key, None)
        if again is not None:
            self._enqueue(key, *again)

    @property
    def depth(self) -> int:
        """The number of keys that wait for a worker or for their holder's `done`."""
        return sum(map(len, self._ready)) + len(self._again)

    @property
    def scheduled(self) -> int:
        """The number of keys with a deadline in the future, or that were added while they rest."""
        return len(self._due.keys() | self._after_rest.keys())

    @property
    def held(self) -> int:
        """The number of keys being worked on."""
        return len(self._held)

    def waiting(self) -> list[K]:
        """Returns the keys that wait for a worker, by priority, sharer and order of arrival."""
        return list(chain.from_iterable(self._ready))

    def __contains__(self, key: K) -> bool:
        waits = any(key in keys for keys in self._ready) or key in self._again
        return waits or key in self._due or key in self._after_rest

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_alarm(self) -> None:
        """Sets the one timer of the queue to the earliest deadline."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # superseded by another deadline of the same key
        if not self._heap:
            if self._alarm is not None:
                self._alarm[1].cancel()
                self._alarm = None
            return
        when = self._heap[0][0]
        if self._alarm is not None:
            if self._alarm[0] <= when:
                return
            self._alarm[1].cancel()
        self._alarm = (when, self._timers.call_at(when, self._on_alarm))

    def _on_alarm(self) -> None:
        self._alarm = None
        now = self._timers.time()
        while self._heap and self._heap[0][0] <= now:
            deadline, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == deadline:
                del self._due[key]
                self.add(key)
        self._set_alarm()


# ------------------------------------------------------------------------------------------------------------- backoff


def backoff_delay(attempt: int, *, base: float, cap: float, rng: random.Random) -> float:
    """Returns the seconds to wait after the `attempt`-th failure in a row (the first is 1).

    The delay doubles from `base`, with a jitter of ±20 %, and is at least `base` and at most `cap`.
    """
    exponent = min(max(attempt, 1) - 1, 64)  # a larger one would overflow the float
    return min(cap, max(base, base * 2.0**exponent * rng.uniform(0.8, 1.2)))


class Backoff:
    """The delays of one activity that keeps failing, until `reset`."""

    def __init__(self, *, base: float = 0.2, cap: float = 30.0, rng: random.Random | None = None) -> None:
        self._base, self._cap, self._rng = base, cap, rng or random.Random()
        self.failures = 0

    def next(self) -> float:
        """Counts one more failure; returns the delay after it, in seconds."""
        self.failures += 1
        return backoff_delay(self.failures, base=self._base, cap=self._cap, rng=self._rng)

    def reset(self) -> None:
        self.failures = 0


def soonest(*seconds: float | None) -> float | None:
    """Returns the shortest of several delays, in seconds; None stands for no delay, and is returned if all are None."""
    return min((each for each in seconds if each is not None), default=None)
