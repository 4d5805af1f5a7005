"""The work queue: its promises as a state machine, and what waiting means."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airunway.kube import Priority, WorkQueue, backoff_delay


class FakeHandle:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeTimers:
    """A clock that moves when told to, and calls what is due on the way."""

    def __init__(self) -> None:
        self.now = 0.0
        self.heap: list[tuple[float, int, FakeHandle]] = []
        self.made = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> FakeHandle:
        handle = FakeHandle(callback)
        self.made += 1
        heapq.heappush(self.heap, (when, self.made, handle))
        return handle

    @property
    def set(self) -> int:
        return sum(handle.callback is not None for _, _, handle in self.heap)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.heap and self.heap[0][0] <= end:
            when, _, handle = heapq.heappop(self.heap)
            self.now = max(self.now, when)
            if handle.callback is not None:
                handle.callback()
        self.now = end


KEYS = st.sampled_from("abcde")
PRIORITIES = st.sampled_from(Priority)
EIGHTH = 8
"""Of keys that are handed out: from the lowest priority that waits, if none of it came before."""


class QueueMachine(RuleBasedStateMachine):
    """The queue beside a plain model of it: who waits, who is held, who is owed a delivery, who is due when."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = FakeTimers()
        self.queue: WorkQueue[str] = WorkQueue(timers=self.timers, rng=random.Random(7), base=0.2, cap=300)
        self.runner = asyncio.Runner()
        self.ready: dict[Priority, list[str]] = {priority: [] for priority in Priority}
        self.passed_over = dict.fromkeys(Priority, 0)
        self.held: set[str] = set()
        self.again: dict[str, Priority] = {}
        self.due: dict[str, float] = {}
        self.rests: dict[str, float] = {}
        self.after_rest: dict[str, Priority] = {}
        self.attempts: dict[str, int] = {}

    def teardown(self) -> None:
        self.runner.close()

    def model_add(self, key: str, priority: Priority = Priority.NORMAL) -> None:
        if key in self.held:
            self.again[key] = min(priority, self.again.get(key, priority))
            return
        waiting = next((level for level, keys in self.ready.items() if key in keys), None)
        if waiting is None and key in self.rests:
            self.after_rest[key] = min(priority, self.after_rest.get(key, priority))
            return
        if waiting is not None and waiting <= priority:
            return
        if waiting is not None:
            self.ready[waiting].remove(key)
        self.ready[priority].append(key)

    def all_ready(self) -> list[str]:
        return [key for priority in Priority for key in self.ready[priority]]

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        self.queue.add(key, priority)
        self.model_add(key, priority)

    @rule(key=KEYS, seconds=st.floats(-1, 100))
    def add_after(self, key: str, seconds: float) -> None:
        self.queue.add_after(key, seconds)
        if seconds <= 0:
            self.model_add(key)
        else:
            self.due[key] = min(self.due.get(key, float("inf")), self.timers.now + seconds)

    @rule(key=KEYS, seconds=st.floats(-1, 100))
    def rest(self, key: str, seconds: float) -> None:
        self.queue.rest(key, seconds)
        if seconds > 0:
            self.rests[key] = max(self.rests.get(key, 0.0), self.timers.now + seconds)

    @rule(key=KEYS, seconds=st.none() | st.floats(-1, 100))
    def reschedule(self, key: str, seconds: float | None) -> None:
        self.queue.reschedule(key, seconds)
        self.due.pop(key, None)
        if seconds is not None and seconds <= 0:
            self.model_add(key)
        elif seconds is not None:
            self.due[key] = self.timers.now + seconds

    @precondition(lambda self: self.all_ready())
    @rule()
    def get(self) -> None:
        key = self.runner.run(self.queue.get())
        chosen = next(priority for priority, keys in self.ready.items() if keys[:1] == [key])
        waiting = [priority for priority, keys in self.ready.items() if keys]
        starved = [priority for priority in waiting if self.passed_over[priority] >= EIGHTH - 1]
        assert chosen == (starved[-1] if starved else waiting[0])
        self.ready[chosen].pop(0)
        for priority in Priority:
            skipped = priority != chosen and self.ready[priority]
            self.passed_over[priority] = self.passed_over[priority] + 1 if skipped else 0
        assert key not in self.held, "two holders"
        assert key not in self.after_rest, "it was added once"
        self.held.add(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), failed=st.booleans(), at_least=st.floats(0, 500))
    def finish(self, data: st.DataObject, failed: bool, at_least: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        if failed:
            self.attempts[key] = self.attempts.get(key, 0) + 1
            delay = self.queue.retry(key, at_least)
            assert max(0.2, at_least) <= delay <= max(300, at_least)
            assert delay >= min(300, 0.2 * 0.8 * 2 ** (self.attempts[key] - 1))
            self.due[key] = self.timers.now + delay
        else:
            self.attempts.pop(key, None)
            self.queue.forget(key)
        self.queue.done(key)
        self.held.remove(key)
        if key in self.again:
            self.model_add(key, self.again.pop(key))

    @rule(seconds=st.floats(0.01, 200))
    def time_passes(self, seconds: float) -> None:
        self.timers.advance(seconds)
        passed = [(when, 0, key) for key, when in self.due.items() if when <= self.timers.now]
        passed += [(when, 1, key) for key, when in self.rests.items() if when <= self.timers.now]
        for _, is_rest, key in sorted(passed):
            if not is_rest:
                del self.due[key]
                self.model_add(key)
                continue
            del self.rests[key]
            if (priority := self.after_rest.pop(key, None)) is not None:
                self.model_add(key, priority)
        # Deadlines at the very same instant may come in either order.
        for keys in self.ready.values():
            keys.sort(key=self.queue_order().index)

    def queue_order(self) -> list[str]:
        return list(self.queue.waiting())

    @invariant()
    def same_as_the_model(self) -> None:
        assert self.queue_order() == self.all_ready()
        assert self.queue.depth == len(self.all_ready()) + len(self.again)
        assert self.queue.held == len(self.held)
        assert self.queue.scheduled == len(self.due.keys() | self.after_rest.keys())
        assert self.timers.set == (1 if self.due else 0) + len(self.rests), "one timer for all deadlines"
        assert all(self.queue.attempts(key) == self.attempts.get(key, 0) for key in "abcde")
        assert all(
            (key in self.queue)
            == any(key in waits for waits in (self.all_ready(), self.again, self.due, self.after_rest))
            for key in "abcde"
        )


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(st.integers(1, 5000), st.integers())
def test_backoff_stays_within_its_bounds(attempt: int, seed: int) -> None:
    delay = backoff_delay(attempt, base=0.2, cap=300.0, rng=random.Random(seed))
    assert 0.2 <= delay <= 300
    if attempt >= 12:
        assert delay >= 240


def test_backoff_has_jitter() -> None:
    assert len({backoff_delay(5, base=0.2, cap=300, rng=random.Random(seed)) for seed in range(20)}) == 20


async def test_a_waiting_worker_is_woken_at_the_deadline() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("late", 0.05)
    queue.add_after("early", 0.02)
    assert [await queue.get(), await queue.get()] == ["early", "late"]


async def test_the_earliest_deadline_wins() -> None:
    timers = FakeTimers()
    queue: WorkQueue[str] = WorkQueue(timers=timers)
    queue.add_after("a", 100)
    queue.add_after("a", 10)
    queue.add_after("a", 50)
    timers.advance(10)
    assert await queue.get() == "a"
    queue.done("a")
    timers.advance(1000)
    assert queue.depth == 0, "one delivery, not three"


async def test_a_failed_key_is_not_retried_sooner_because_an_earlier_pass_asked_for_it() -> None:
    timers = FakeTimers()
    queue: WorkQueue[str] = WorkQueue(timers=timers)
    queue.reschedule("a", 5)
    timers.advance(1)
    queue.add("a")
    assert await queue.get() == "a"
    assert queue.retry("a", 60) == 60
    queue.done("a")
    timers.advance(59.9)
    assert queue.waiting() == []
    timers.advance(0.1)
    assert queue.waiting() == ["a"]


async def test_a_key_that_rests_is_handed_out_afterwards_whatever_adds_it_and_others_are_not_kept() -> None:
    timers = FakeTimers()
    queue: WorkQueue[str] = WorkQueue(timers=timers)
    queue.add("a")
    assert await queue.get() == "a"
    queue.rest("a", 5)
    queue.rest("a", 1)  # the longer one counts
    queue.add("a")  # while it is held
    queue.done("a")
    queue.add("a", Priority.URGENT)
    queue.add_after("a", 2)
    queue.add("b")
    timers.advance(4.9)
    assert queue.waiting() == ["b"]
    timers.advance(0.1)
    assert queue.waiting() == ["a", "b"], "as urgent as the most urgent that added it"
    assert await queue.get_timed() == ("a", 0), "it waited for a worker no longer"
    queue.done("a")
    timers.advance(100)
    assert queue.waiting() == ["b"], "one delivery for all of them"


async def test_a_cancelled_waiter_takes_no_key_with_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("a")  # wakes the first, which is cancelled before it runs
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_how_long_a_key_waited() -> None:
    timers = FakeTimers()
    queue: WorkQueue[str] = WorkQueue(timers=timers)
    queue.add("a")
    timers.advance(3)
    queue.add("a")
    queue.add("b")
    timers.advance(2)
    assert await queue.get_timed() == ("a", 5)
    queue.add("a")  # while it is held
    timers.advance(4)
    queue.done("a")
    assert [await queue.get_timed(), await queue.get_timed()] == [("b", 6), ("a", 4)]


async def taken(queue: WorkQueue[str], number: int) -> list[str]:
    keys = [await queue.get() for _ in range(number)]
    for key in keys:
        queue.done(key)
    return keys


async def test_what_moved_upstream_comes_before_what_is_new_and_a_relist_comes_last() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for number in range(3):
        queue.add(f"listed-{number}", Priority.BULK)
    queue.add("new-1")
    queue.add("moved", Priority.URGENT)
    queue.add("new-2")
    queue.add("listed-2", Priority.URGENT)  # moves up, behind what waits there
    queue.add("moved", Priority.BULK)  # and nothing moves down
    assert await taken(queue, 6) == ["moved", "listed-2", "new-1", "new-2", "listed-0", "listed-1"]


async def test_no_key_starves_however_many_urgent_ones_come() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for number in range(1000):
        queue.add(f"urgent-{number}", Priority.URGENT)
        queue.add(f"bulk-{number}", Priority.BULK)
    queue.add("new")
    handed_out = await taken(queue, 160)
    assert "new" in handed_out[:16]
    assert sum(key.startswith("bulk") for key in handed_out) in range(18, 21), "every eighth"


async def test_done_without_holding_is_a_mistake() -> None:
    queue: WorkQueue[str] = WorkQueue()
    with pytest.raises(ValueError, match="'a' is not being worked on"):
        queue.done("a")


async def drained(queue: WorkQueue[str]) -> list[str]:
    """All that waits, in the order in which one worker gets it."""
    order = []
    while queue.depth:
        order.append(await queue.get())
        queue.done(order[-1])
    return order


async def test_a_burst_of_one_tenant_does_not_make_another_wait() -> None:
    queue: WorkQueue[str] = WorkQueue(sharer_of=lambda key: key[0])
    for number in range(1_000):
        queue.add(f"evil-{number}")
    for key in ("a-0", "a-1", "b-0"):
        queue.add(key)
    order = await drained(queue)
    assert order[:6] == ["evil-0", "a-0", "b-0", "evil-1", "a-1", "evil-2"]
    assert order[6:] == [f"evil-{number}" for number in range(3, 1_000)]


async def test_a_tenant_that_adds_again_and_again_has_one_turn_in_two() -> None:
    queue: WorkQueue[str] = WorkQueue(sharer_of=lambda key: key[0])
    queue.add("evil-0")
    for number in range(10):
        queue.add(f"a-{number}")
    order = []
    for _ in range(20):
        order.append(await queue.get())
        if order[-1] == "evil-0":
            queue.add("evil-0")
        queue.done(order[-1])
    assert [key for key in order if key[0] == "a"] == [f"a-{number}" for number in range(10)]
    assert "".join(key[0] for key in order) == "ea" * 10


async def test_priorities_come_before_turns() -> None:
    queue: WorkQueue[str] = WorkQueue(sharer_of=lambda key: key[0])
    for key, priority in (("a-0", Priority.BULK), ("b-0", Priority.NORMAL), ("b-1", Priority.URGENT)):
        queue.add(key, priority)
    queue.add("a-0", Priority.NORMAL)
    assert await drained(queue) == ["b-1", "b-0", "a-0"]
