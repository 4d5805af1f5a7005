"""How many Jobs of one sort run at a time, and who is next."""

from __future__ import annotations

from airunway.process.jobs import Slots
from airunway.resource import ObjectKey


def key(name: str) -> ObjectKey:
    return ObjectKey("team", name)


def order(number: int) -> tuple[str, str, str]:
    return f"2026-01-01T00:00:0{number}Z", "team", str(number)


def test_the_oldest_that_waits_is_next() -> None:
    slots = Slots(1)
    assert slots.take(key("a"), order(1))
    assert not slots.take(key("c"), order(3))
    assert not slots.take(key("b"), order(2))
    assert (slots.running, slots.queued) == (1, 2)
    assert slots.give_back(key("a")) == [key("b")]
    assert not slots.take(key("c"), order(3)), "an older one waits"
    assert slots.take(key("b"), order(2))


def test_a_slot_is_taken_once_and_given_back_once() -> None:
    slots = Slots(2)
    assert slots.take(key("a"), order(1))
    assert slots.take(key("a"), order(1))
    assert slots.running == 1
    assert slots.give_back(key("a")) == []
    assert slots.give_back(key("a")) == []
    assert not slots.has(key("a"))


def test_one_that_stops_waiting_lets_the_next_one_go_first() -> None:
    slots = Slots(1)
    slots.claim(key("a"))
    assert not slots.take(key("b"), order(2))
    assert not slots.take(key("c"), order(3))
    assert slots.give_back(key("b")) == []
    assert slots.give_back(key("a")) == [key("c")]


def test_what_runs_already_keeps_its_slot_although_there_are_fewer() -> None:
    slots = Slots(1)
    for name in ("a", "b", "c"):
        slots.claim(key(name))
    assert slots.running == 3
    assert not slots.take(key("d"), order(1))
    assert slots.give_back(key("a")) == []
    slots.clear()
    assert (slots.running, slots.queued) == (0, 0)
    assert slots.take(key("d"), order(1))
