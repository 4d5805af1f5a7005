"""H7: a loop that is blocked is seen from outside."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clocks import Seconds

from airunway.process.metrics import INTERVAL, WINDOW, EventLoopLag, Metrics
from airunway_testing.eventually import PATIENCE


@given(st.lists(st.tuples(st.floats(0.1, 40), st.floats(0, 10)), max_size=30))
def test_h7_the_longest_gap_of_the_last_minute_is_shown(story: list[tuple[float, float]]) -> None:
    clock = Seconds()
    gaps = EventLoopLag(clock=clock)
    noted: list[tuple[float, float]] = []
    for pause, seconds in story:
        clock.now += pause
        gaps.note(seconds)
        noted.append((clock.now, seconds))
        assert gaps.longest() == max(gap for when, gap in noted if clock.now - when <= WINDOW)
    clock.now += WINDOW + 1
    assert gaps.longest() == 0


async def test_h7_a_pass_that_keeps_the_loop_is_measured_and_shown() -> None:
    clock = Seconds()
    metrics = Metrics("test", event_loop_lag=EventLoopLag(clock=clock))
    looking = asyncio.create_task(metrics.event_loop_lag.run())
    await asyncio.sleep(0)
    clock.now += INTERVAL + 4  # nothing else ran meanwhile
    async with asyncio.timeout(PATIENCE):
        while not metrics.event_loop_lag.longest():
            await asyncio.sleep(0.01)
    page, _ = await metrics.page()
    shown = next(line for line in page.decode().splitlines() if line.startswith("airunway_event_loop_lag_seconds "))
    assert float(shown.split()[1]) == pytest.approx(4)
    looking.cancel()
    await asyncio.wait({looking})
