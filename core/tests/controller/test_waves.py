"""Which deployments of a config are granted its settings next: the pure decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airunway.controller.waves import Member, Wave, next_wave
from airunway.resource import ObjectKey

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PATIENCE = timedelta(minutes=15)


def member(name: str, **fields: object) -> Member:
    base = Member(key=ObjectKey("team", name), created="2026-11-20T00:00:00Z", ready=True)
    return replace(base, **fields)  # type: ignore[arg-type] # each test gives fields of the right type


def wave(*members: Member, limit: int = 1) -> Wave:
    return next_wave(members, limit=limit, patience=PATIENCE, now=NOW)


def granted(*members: Member, limit: int = 1) -> list[str]:
    return sorted(key.name for key in wave(*members, limit=limit).granted)


UNDER_WAY = member("a", granted_at=NOW - timedelta(minutes=1), ready=False)
DONE = member("a", granted_at=NOW - timedelta(hours=1), current=True)


@pytest.mark.parametrize(
    ("members", "limit", "expected"),
    [
        ([], 1, []),
        ([member("b"), member("a")], 1, ["a"]),
        ([member("b", created="2026-11-19T00:00:00Z"), member("a")], 1, ["b"]),
        ([member("a"), member("b"), member("c")], 2, ["a", "b"]),
        ([member("a", current=True), member("b")], 1, ["b"]),
        ([member("a", waits=False), member("b")], 1, ["b"]),
        ([UNDER_WAY, member("b")], 1, []),
        ([UNDER_WAY, member("b"), member("c")], 2, ["b"]),
        ([DONE, member("b")], 1, ["b"]),
        ([replace(DONE, ready=False), member("b")], 1, []),
        ([replace(UNDER_WAY, ready=True), member("b")], 1, []),
        ([UNDER_WAY, replace(UNDER_WAY, key=ObjectKey("team", "b")), member("c")], 1, []),
    ],
    ids=[
        "nobody uses it",
        "the first by name of the same age",
        "the oldest",
        "as many as allowed",
        "one that has the settings already",
        "one that has not served takes them anyway",
        "one is under way",
        "one is under way and two are allowed",
        "one is done",
        "one has the settings and is not Ready yet",
        "one is Ready with the old settings",
        "the limit was lowered",
    ],
)
def test_c12_who_is_granted(members: Sequence[Member], limit: int, expected: list[str]) -> None:
    assert granted(*members, limit=limit) == expected


@pytest.mark.parametrize(
    ("stuck", "failed"),
    [
        (replace(UNDER_WAY, failed=True), True),
        (replace(UNDER_WAY, granted_at=NOW - PATIENCE), False),
        (replace(DONE, ready=False), False),
    ],
)
def test_c12_one_that_does_not_come_back_stops_the_rollout(stuck: Member, failed: bool) -> None:
    found = wave(stuck, member("b"), member("c"), limit=2)
    assert (found.stalled_by, found.failed, found.granted) == (stuck.key, failed, frozenset())


def test_a_rollout_that_is_over_is_not_stalled_by_what_breaks_later() -> None:
    assert wave(replace(DONE, ready=False, failed=True)) == Wave()


def test_it_is_looked_at_again_when_the_one_under_way_is_late() -> None:
    assert wave(UNDER_WAY, member("b")).wake_after == timedelta(minutes=14).total_seconds()
    assert wave(member("b")).wake_after == PATIENCE.total_seconds()
    assert wave(DONE).wake_after is None
