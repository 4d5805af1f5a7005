"""How often edits bring passes: single ones at once, floods once a second, the last edit always."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clocks import Seconds

from airunway.kube import Priority, WorkQueue
from airunway.process.base_controller import BURST, INTERVAL, BaseController, EditRateLimiter
from airunway.resource import ObjectKey, Resource
from airunway_testing.eventually import PATIENCE

KEY = ObjectKey("team", "llama")


def test_l3_the_first_edits_are_acted_on_at_once_and_then_one_a_second() -> None:
    now = Seconds()
    edits: EditRateLimiter[str] = EditRateLimiter(now)
    passes, rests_until = 0, 0.0
    for number in range(500):  # fifty a second, for ten
        now.now = number / 50
        rest = edits.rest_after("a")
        passes += now.now >= rests_until and rest == 0
        if rest and now.now >= rests_until:
            passes += 1  # at the end of the rest
        rests_until = max(rests_until, now.now + rest)
    assert BURST <= passes <= BURST + 10 / INTERVAL + 1
    assert edits.rest_after("b") == 0, "another object"


def test_l3_edits_at_a_quiet_pace_never_rest() -> None:
    now = Seconds()
    edits: EditRateLimiter[str] = EditRateLimiter(now)
    for _ in range(100):
        assert edits.rest_after("a") == 0
        now.now += INTERVAL


def test_l3_a_burst_is_whole_again_after_a_while() -> None:
    now = Seconds()
    edits: EditRateLimiter[str] = EditRateLimiter(now)
    for _ in range(100):
        edits.rest_after("a")
    now.now += (BURST + 1) * INTERVAL
    assert [edits.rest_after("a") for _ in range(BURST)] == [0] * BURST
    assert edits.rest_after("a") > 0


@given(st.lists(st.floats(0, 3), max_size=60))
def test_l3_no_rest_is_longer_than_the_interval(pauses: list[float]) -> None:
    now = Seconds()
    edits: EditRateLimiter[str] = EditRateLimiter(now)
    for pause in pauses:
        now.now += pause
        assert 0 <= edits.rest_after("a") <= INTERVAL + 1e-6


def test_l3_objects_that_are_edited_no_more_are_forgotten() -> None:
    now = Seconds()
    edits: EditRateLimiter[int] = EditRateLimiter(now)
    for number in range(100_000):
        now.now += 0.01
        edits.rest_after(number)
    assert len(edits._whole_at) < 5_000


def follower() -> tuple[BaseController, WorkQueue[ObjectKey]]:
    """A leading follower of nothing, with its queue."""
    caches: Any = SimpleNamespace(
        client=None,
        metrics=SimpleNamespace(show_events=lambda *_: None, show_queue=lambda *_, **__: None),
        project=None,
        deployments=lambda: SimpleNamespace(items=dict),
    )
    found = BaseController(cast("Any", caches), component="tests")
    found.leads = True
    return found, found.queue("tests")


def deployment(generation: int, phase: str = "") -> Resource:
    return {"metadata": {"name": "llama", "namespace": "team", "generation": generation}, "status": {"phase": phase}}


async def handed_out(queue: WorkQueue[ObjectKey]) -> bool:
    if not queue.depth:
        return False
    queue.done(await queue.get())
    return True


async def test_l3_what_is_edited_without_end_is_looked_at_at_once_then_rests_and_is_looked_at_again() -> None:
    found, queue = follower()
    immediate = 0
    for generation in range(1, 40):
        found.enqueue(KEY, deployment(generation), deployment(generation + 1))
        immediate += await handed_out(queue)
    assert immediate == BURST
    queue.add(KEY, Priority.URGENT)
    assert not queue.depth, "its pods do not wake it either: each pass would take the newest spec"
    assert KEY in queue, "and nothing is lost"
    async with asyncio.timeout(PATIENCE):
        assert await queue.get() == KEY


@pytest.mark.parametrize("old", [None, deployment(1)])
async def test_l3_what_others_tell_of_a_deployment_never_makes_it_rest(old: Resource | None) -> None:
    found, queue = follower()
    for _ in range(100):
        found.enqueue(KEY, old, deployment(1, phase="Running"))
        assert await handed_out(queue)
