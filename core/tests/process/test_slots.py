"""How many Jobs of one sort run at a time, and who is next."""

from __future__ import annotations

from airunway.process.jobs import Slots
from airunway.resource import ObjectKey, Resource


def key(name: str, namespace: str = "team") -> ObjectKey:
    return ObjectKey(namespace, name)


def work(name: str, *, made: int, namespace: str = "team") -> Resource:
    return {"metadata": {"namespace": namespace, "name": name, "creationTimestamp": f"2026-01-01T00:00:0{made}Z"}}


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


def test_downloads_of_one_namespace_that_never_end_do_not_stop_those_of_another() -> None:
    slots = Slots(4, wake=Woken().append)
    assert [slots.take(work(f"slow-{i}", made=i)) for i in range(6)] == [True, True, True, False, False, False]
    assert slots.take(work("quick", made=9, namespace="other")), "although three that wait are older"
    assert (slots.running, slots.queued) == (4, 3)
    slots.give_back(key("quick", "other"))
    assert not slots.take(work("slow-3", made=3)), "the last one stays free for a namespace that has none"
    assert slots.take(work("next", made=9, namespace="other"))


def test_of_fewer_than_four_slots_none_is_kept_for_others() -> None:
    slots = Slots(3, wake=Woken().append)
    assert [slots.take(work(f"slow-{i}", made=i)) for i in range(4)] == [True, True, True, False]


def test_namespaces_take_turns_and_each_begins_with_its_oldest() -> None:
    woken = Woken()
    slots = Slots(4, wake=woken.append)
    for name in ("a", "b", "c"):
        slots.claim(key(name))
    slots.claim(key("z", "other"))
    for made in (1, 2):
        assert not slots.take(work(f"old-{made}", made=made))
        assert not slots.take(work(f"new-{made}", made=made + 5, namespace="other"))
    slots.give_back(key("a"))
    assert not woken.now(), "both have some, and it is the last"
    slots.give_back(key("z", "other"))
    assert woken.now() == [key("new-1", "other")], "it has none now"
    assert slots.take(work("new-1", made=6, namespace="other"))
    slots.give_back(key("b"))
    assert woken.now() == [key("old-1")], "both have one"


def test_a_single_slot_goes_to_the_oldest_of_all_namespaces() -> None:
    woken = Woken()
    slots = Slots(1, wake=woken.append)
    slots.claim(key("a"))
    assert not slots.take(work("late", made=5))
    assert not slots.take(work("early", made=2, namespace="other"))
    slots.give_back(key("a"))
    assert woken.now() == [key("early", "other")]
