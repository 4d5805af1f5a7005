"""Looking again until it is so."""

from __future__ import annotations

import pytest

from airunway_testing.eventually import eventually


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
