"""Which deployments take what waits for them next: the decision, and the memory of who is under way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airunway.api import names
from airunway.controller.waves import Member, Rollouts, Wave, next_wave
from airunway.resource import ObjectKey, Resource, format_time, key_of

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


# ------------------------------------------------------------------------------------------- the memory of a leader


ALL = ("cache", "settings", "template", "provider")


def deployment(name: str, *, waits: Collection[str] = ("settings",), written: str = "old", taken: str = "old",
               ready: bool = True, **status: object) -> Resource:  # fmt: skip
    """A deployment that serves: of `waits` something newer is there, `taken` is its revision, and `written` that of its
    objects.
    """
    of_provider: Resource = {
        "revision": written,
        **({"newer": {"changes": ["image x"]}} if "provider" in waits else {}),
    }
    parts = sorted(set(waits) - {"provider"})
    conditions = [
        {"type": type_, "status": str(holds), "lastTransitionTime": format_time(NOW)}
        for type_, holds in (("Served", True), ("Validated", True), ("Ready", ready))
    ]
    return {
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-11-20T00:00:00Z"},
        "spec": {},
        "status": {
            "revision": {"hash": taken, **({"pending": {"parts": parts}} if parts else {})},
            "provider": of_provider,
            "conditions": conditions,
            **status,
        },
    }


def turn(
    rollouts: Rollouts, *users: Resource, parts: Collection[str] = ALL, limit: int = 1, now: datetime = NOW
) -> Wave:
    users_ = {key_of(each): each for each in users}
    return rollouts.next(users_, parts=parts, limit=limit, patience=PATIENCE, now=now)


def names_of(found: Wave) -> list[str]:
    return sorted(key.name for key in found.granted)


def test_one_after_the_other_takes_what_waits_and_is_done_when_it_is_ready_with_it() -> None:
    rollouts, a, b = Rollouts(), deployment("a"), deployment("b")
    assert names_of(turn(rollouts, a, b)) == ["a"]
    assert (rollouts.granted(a, ALL), rollouts.granted(b, ALL)) == (frozenset(ALL), frozenset())
    for under_way in (
        a,
        deployment("a", waits=(), taken="new"),
        deployment("a", waits=(), taken="new", ready=False),
        deployment("a", waits=(), taken="new", written="new", ready=False),
    ):
        assert names_of(turn(rollouts, under_way, b)) == []
    done = deployment("a", waits=(), taken="new", written="new")
    assert names_of(turn(rollouts, done, b)) == ["b"]
    assert not rollouts.is_under_way(key_of(done))


@pytest.mark.parametrize("part", ALL)
def test_only_parts_that_the_config_rolls_out_are_granted_and_all_of_them_in_the_same_restart(part: str) -> None:
    rollouts, user = Rollouts(), deployment("a", waits=(part,))
    assert names_of(turn(rollouts, user, parts=set(ALL) - {part})) == []
    assert names_of(turn(rollouts, user, parts={part})) == ["a"]
    assert rollouts.granted(user, {part}) == {part}
    assert names_of(turn(Rollouts(), deployment("a", waits=("cache", "settings")), parts=ALL)) == ["a"]


@pytest.mark.parametrize(
    "held",
    [
        {"spec": {"suspend": True}},
        {"metadata": {"annotations": {names.PAUSED: "true"}}},
        {"metadata": {"annotations": {names.DRY_RUN: "true"}}},
        {"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}},
    ],
)
def test_what_changes_nothing_now_holds_no_place(held: Resource) -> None:
    a, b = deployment("a"), deployment("b")
    a = {**a, **held, "metadata": {**a["metadata"], **held.get("metadata", {})}}
    assert names_of(turn(Rollouts(), a, b)) == ["b"]
    rollouts = Rollouts()
    rollouts.begin([a], now=NOW)
    assert not rollouts.is_under_way(key_of(a))


def test_one_that_is_late_or_has_failed_stalls_all_until_it_is_done() -> None:
    rollouts, b = Rollouts(), deployment("b")
    turn(rollouts, deployment("a"), b)
    late = deployment("a", waits=(), taken="new", written="new", ready=False)
    found = turn(rollouts, late, b, now=NOW + PATIENCE)
    assert (found.stalled_by, found.failed, names_of(found)) == (ObjectKey("team", "a"), False, [])
    failed = {**late, "status": {**late["status"], "phase": "Failed"}}
    assert turn(rollouts, failed, b).failed
    assert names_of(turn(rollouts, deployment("a", waits=(), taken="new", written="new"), b)) == ["b"]


def test_a_second_edit_reaches_the_one_under_way_before_the_next_deployment() -> None:
    rollouts, b = Rollouts(), deployment("b")
    turn(rollouts, deployment("a"), b)
    again = deployment("a", taken="new", written="new")
    assert names_of(turn(rollouts, again, b)) == []
    assert rollouts.granted(again, ALL)
    assert names_of(turn(rollouts, deployment("a", waits=(), taken="newer", written="newer"), b)) == ["b"]


@pytest.mark.parametrize(
    ("earlier", "under_way"),
    [
        ({"waits": (), "taken": "new"}, True),
        ({"waits": (), "taken": "new", "written": "new", "ready": False}, True),
        ({"waits": (), "taken": "new", "written": "new"}, False),
        ({}, False),
    ],
    ids=["taken and not written", "written and not Ready", "done", "it waits"],
)
def test_a_new_leader_goes_on_with_what_is_under_way(earlier: Resource, under_way: bool) -> None:
    rollouts, a, b = Rollouts(), deployment("a", **earlier), deployment("b")
    rollouts.begin([a, b], now=NOW)
    assert rollouts.is_under_way(key_of(a)) == under_way
    assert names_of(turn(rollouts, a, b)) == ([] if under_way else ["b"] if earlier else ["a"])
    rollouts.forget(key_of(a))
    assert not rollouts.is_under_way(key_of(a))


def test_a_rollout_that_its_config_ends_lets_the_others_go() -> None:
    rollouts, a = Rollouts(), deployment("a")
    turn(rollouts, a)
    assert rollouts.granted(a, ()) == frozenset(), "the config says OnNextChange now"
