"""The controller: one pass per key at a time, and no failure that stops anything else."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from airunway.kube import (
    ConnectionFailed,
    Controller,
    Forbidden,
    PassResult,
    Priority,
    TooManyRequests,
    WorkQueue,
    api_error,
)
from airunway_testing.eventually import Eventually


async def test_a_key_is_never_worked_on_twice_at_once(eventually: Eventually) -> None:
    queue: WorkQueue[str] = WorkQueue()
    busy: Counter[str] = Counter()
    most_at_once = 0
    passes: Counter[str] = Counter()

    async def reconcile(key: str) -> float | None:
        nonlocal most_at_once
        busy[key] += 1
        assert busy[key] == 1
        most_at_once = max(most_at_once, sum(busy.values()))
        await asyncio.sleep(0.001)
        busy[key] -= 1
        passes[key] += 1
        return None

    controller = Controller("test", queue, reconcile, workers=4)
    task = asyncio.create_task(controller.run())
    for _ in range(50):
        for key in "abcdefgh":
            queue.add(key)
        await asyncio.sleep(0.0005)
    await eventually(lambda: queue.depth == 0 and queue.held == 0)
    task.cancel()
    await asyncio.wait({task})
    assert set(passes) == set("abcdefgh")
    assert most_at_once == 4, "as many at once as there are workers"
    assert sum(passes.values()) < 400, "what was added while waiting was not added twice"


@pytest.mark.parametrize(
    "error",
    [
        api_error(409, {"reason": "Conflict"}),
        api_error(429, {}),
        api_error(503, "upstream connect error"),
        ConnectionFailed("reset"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_passing_trouble_is_retried_quietly(
    error: Exception, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    queue: WorkQueue[str] = WorkQueue(base=0.001, cap=0.01)
    results: list[PassResult] = []
    failures = [error, error]

    async def reconcile(key: str) -> float | None:
        if failures:
            raise failures.pop()
        return None

    controller = Controller("test", queue, reconcile, on_pass=lambda result, seconds: results.append(result))
    task = asyncio.create_task(controller.run())
    with caplog.at_level(logging.WARNING):
        queue.add("a")
        await eventually(lambda: len(results) == 3)
    assert results == ["retry", "retry", "success"]
    assert queue.attempts("a") == 0
    assert not caplog.records
    task.cancel()
    await asyncio.wait({task})


async def test_retry_after_is_honoured() -> None:
    queue: WorkQueue[str] = WorkQueue(base=0.001, cap=0.01)
    done = asyncio.Event()

    async def reconcile(key: str) -> float | None:
        done.set()
        raise TooManyRequests(429, retry_after=3600.0)

    controller = Controller("test", queue, reconcile)
    task = asyncio.create_task(controller.run())
    queue.add("a")
    await done.wait()
    await asyncio.sleep(0.1)  # ten times the longest backoff
    assert (queue.depth, queue.scheduled, queue.attempts("a")) == (0, 1, 1)
    task.cancel()
    await asyncio.wait({task})


async def test_a_bug_in_one_key_does_not_stop_the_others(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    queue: WorkQueue[str] = WorkQueue(base=0.001, cap=0.002)
    fine: set[str] = set()
    tries = 0

    async def reconcile(key: str) -> float | None:
        nonlocal tries
        if key == "bad":
            tries += 1
            raise ZeroDivisionError("a bug")
        fine.add(key)
        return None

    controller = Controller("test", queue, reconcile, workers=1)
    task = asyncio.create_task(controller.run())
    with caplog.at_level(logging.ERROR):
        queue.add("bad")
        for number in range(20):
            queue.add(f"good-{number}")
        await eventually(lambda: len(fine) == 20 and tries >= 3)
    assert not task.done()
    assert caplog.records[0].exc_info is not None
    assert "bad" in caplog.records[0].getMessage()
    task.cancel()
    await asyncio.wait({task})


async def test_a_right_that_is_missing_is_told_in_the_api_server_s_words(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    queue: WorkQueue[str] = WorkQueue(base=0.001, cap=0.002)
    tries = 0

    async def reconcile(key: str) -> float | None:
        nonlocal tries
        tries += 1
        raise Forbidden(403, "Forbidden", "somebody cannot patch toys")

    task = asyncio.create_task(Controller("test", queue, reconcile).run())
    with caplog.at_level(logging.ERROR):
        queue.add("a")
        await eventually(lambda: tries >= 2)
    assert "a failed: somebody cannot patch toys" in caplog.records[0].getMessage()
    assert caplog.records[0].exc_info is None
    task.cancel()
    await asyncio.wait({task})


async def test_a_cancellation_inside_a_pass_is_not_ours(eventually: Eventually) -> None:
    queue: WorkQueue[str] = WorkQueue(base=0.001, cap=0.002)
    results: list[PassResult] = []

    async def reconcile(key: str) -> float | None:
        if not results:
            inner = asyncio.create_task(asyncio.sleep(10))
            inner.cancel()
            await inner
        return None

    controller = Controller("test", queue, reconcile, on_pass=lambda result, seconds: results.append(result))
    task = asyncio.create_task(controller.run())
    queue.add("a")
    await eventually(lambda: len(results) == 2)
    assert results == ["error", "success"]
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_requeue_and_waiting_times(eventually: Eventually) -> None:
    queue: WorkQueue[str] = WorkQueue()
    answers: list[float | None] = [0.0, 0.01, None]
    results: list[PassResult] = []
    waits: list[float] = []

    async def reconcile(key: str) -> float | None:
        return answers.pop(0)

    controller = Controller(
        "test", queue, reconcile, on_pass=lambda result, seconds: results.append(result), on_wait=waits.append
    )
    task = asyncio.create_task(controller.run())
    queue.add("a")
    await eventually(lambda: not answers and queue.held == 0)
    assert results == ["requeue", "requeue", "success"]
    assert len(waits) == 3
    assert all(wait >= 0 for wait in waits)
    task.cancel()
    await asyncio.wait({task})


async def test_h7_unchanged_deployments_at_a_fail_over_never_keep_the_loop(eventually: Eventually) -> None:
    queue: WorkQueue[int] = WorkQueue()
    run, longest, done, turns = 0, 0, 0, 0

    async def reconcile(key: int) -> float | None:  # as a pass that writes nothing: it waits for nothing
        nonlocal run, longest, done
        run, done = run + 1, done + 1
        longest = max(longest, run)
        return None

    async def somebody_else() -> None:
        nonlocal run, turns
        while True:
            run, turns = 0, turns + 1
            await asyncio.sleep(0)

    for key in range(10_000):
        queue.add(key, Priority.BULK)
    tasks = [
        asyncio.create_task(somebody_else()),
        asyncio.create_task(Controller("test", queue, reconcile, workers=16).run()),
    ]
    await eventually(lambda: done == 10_000)
    assert longest == 1
    assert turns >= 10_000
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_h7_a_cancelled_controller_leaves_no_key_behind_that_nobody_holds() -> None:
    queue: WorkQueue[int] = WorkQueue()
    passes: list[int] = []

    async def reconcile(key: int) -> float | None:
        passes.append(key)
        return None

    for turns in range(12):  # cancelled at each of its first steps
        queue.add(turns)
        task = asyncio.create_task(Controller("test", queue, reconcile, workers=2).run())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert queue.held == 0
    assert sorted([*passes, *queue.waiting()]) == list(range(12))
