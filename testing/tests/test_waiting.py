"""Looking again until it is so."""

from __future__ import annotations

import pytest

from airunway_testing.eventually import eventually, pause


async def test_what_is_true_in_the_end_is_given_whether_it_is_looked_up_or_awaited() -> None:
    seen: list[int] = []

    def look() -> list[int]:
        seen.append(len(seen))
        return seen if len(seen) == 3 else []

    assert await eventually(look) == [0, 1, 2]

    async def ask() -> str:
        seen.pop()
        return "" if seen else "none is left"

    assert await eventually(ask) == "none is left"


async def test_what_never_comes_is_named_with_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"still 0 after 0 s"):
        await eventually(lambda: 0, patience=0.02)


def test_it_looks_less_often_the_longer_it_waits_and_ten_times_a_second_at_least() -> None:
    waited, looks = 0.0, 0
    while waited < 10:
        waited += pause(waited)
        looks += 1
    assert 100 <= looks <= 150
    assert pause(0) == 0.01
    assert pause(0, shortest=0.04) == 0.04
    assert pause(3600) == 0.1
