"""How many Jobs of one sort run at a time, and who is next."""

from __future__ import annotations

from airunway.process.jobs import Slots
from airunway.resource import ObjectKey, Resource


def key(name: str) -> ObjectKey:
    return ObjectKey("team", name)


def work(name: str, *, made: int) -> Resource:
    return {"metadata": {"namespace": "team", "name": name, "creationTimestamp": f"2026-01-01T00:00:0{made}Z"}}


A, B, C, D = work("a", made=1), work("b", made=2), work("c", made=3), work("d", made=1)


class Woken(list[ObjectKey]):
    """The keys that were woken since the last look."""

    def now(self) -> list[ObjectKey]:
        found = list(self)
        self.clear()
        return found


def test_the_oldest_that_waits_is_next() -> None:
    woken = Woken()
    slots = Slots(1, wake=woken.append)
    assert slots.take(A)
    assert not slots.take(C)
    assert not slots.take(B)
    assert (slots.running, slots.queued) == (1, 2)
    slots.give_back(key("a"))
    assert woken.now() == [key("b")]
    assert not slots.take(C), "an older one waits"
    assert slots.take(B)


def test_of_two_of_the_same_second_the_first_by_name_is_next() -> None:
    woken = Woken()
    slots = Slots(1, wake=woken.append)
    assert slots.take(B)
    assert not slots.take(D)
    assert not slots.take(A)
    slots.give_back(key("b"))
    assert woken.now() == [key("a")]


def test_a_slot_is_taken_once_and_given_back_once() -> None:
    woken = Woken()
    slots = Slots(2, wake=woken.append)
    assert slots.take(A)
    assert slots.take(A)
    assert slots.running == 1
    slots.give_back(key("a"))
    slots.give_back(key("a"))
    assert not woken.now()
    assert not slots.has(key("a"))


def test_one_that_stops_waiting_lets_the_next_one_go_first() -> None:
    woken = Woken()
    slots = Slots(1, wake=woken.append)
    slots.claim(key("a"))
    assert not slots.take(B)
    assert not slots.take(C)
    slots.give_back(key("b"))
    assert not woken.now()
    slots.give_back(key("a"))
    assert woken.now() == [key("c")]


def test_what_runs_already_keeps_its_slot_although_there_are_fewer() -> None:
    woken = Woken()
    slots = Slots(1, wake=woken.append)
    for name in ("a", "b", "c"):
        slots.claim(key(name))
    assert slots.running == 3
    assert not slots.take(D)
    slots.give_back(key("a"))
    assert not woken.now()
    slots.clear()
    assert (slots.running, slots.queued) == (0, 0)
    assert slots.take(D)
