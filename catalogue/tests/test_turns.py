"""Which sources scan a registry, and that no turn is lost, whatever becomes of those that wait."""

from __future__ import annotations

from random import Random

from airunway.resource import ObjectKey
from airunway_catalogue.sources import Turns


def key(number: int) -> ObjectKey:
    return ObjectKey("", f"s-{number}")


def test_the_turn_of_the_one_that_waits_the_longest_comes_first() -> None:
    woken: list[ObjectKey] = []
    turns = Turns(most=2, wake=woken.append)
    assert [turns.take(key(number), "a") for number in range(4)] == [True, True, False, False]
    assert turns.take(key(9), "b"), "another registry"
    assert not turns.take(key(2), "a"), "another pass keeps its place"
    turns.give_back("a")
    assert woken == [key(2)]
    assert turns.take(key(2), "a")
    turns.give_back("a")
    assert woken == [key(2), key(3)]


def test_one_that_scans_no_more_waits_nowhere_and_its_turn_is_that_of_the_next() -> None:
    woken: list[ObjectKey] = []
    turns = Turns(most=1, wake=woken.append)
    turns.take(key(0), "a")
    for number in range(1, 6):
        assert not turns.take(key(number), "a")
    turns.leave(key(1))  # paused while it waits
    assert turns.take(key(2), "b"), "an edit moved it to another registry"
    turns.give_back("a")
    assert woken == [key(3)]
    turns.leave(key(3))  # paused between its turn and its pass
    assert woken == [key(3), key(4)]
    assert not turns.take(key(4), "b"), "moved there between its turn and its pass"
    assert woken == [key(3), key(4), key(5)]
    assert turns.take(key(5), "a")
    turns.give_back("b")
    assert woken[-1] == key(4)


def test_no_source_is_forgotten() -> None:
    """Sources are paused, moved and reconciled in any order. When nothing runs and none is woken, none waits."""
    for seed in range(300):
        assert settled(Random(seed)), f"{seed=}"


def settled(random: Random) -> bool:
    """Whether all sources that are not paused in the end have scanned."""
    queue: list[ObjectKey] = []
    turns = Turns(most=1, wake=queue.append)
    registry = {key(number): random.choice("aab") for number in range(6)}
    queue.extend(registry)
    done: set[ObjectKey] = set()
    running: list[tuple[ObjectKey, str]] = []
    edits = 6
    while queue or running:
        if edits and random.random() < 0.3:
            edits -= 1
            edited = random.choice(sorted(registry))
            registry[edited] = random.choice(["a", "b", ""])  # empty: it is paused
            queue.append(edited)
        if running and (not queue or random.random() < 0.3):
            ended, host = running.pop(random.randrange(len(running)))
            done.add(ended)
            turns.give_back(host)
            continue
        looked = random.choice([each for each in queue if each not in dict(running)] or [None])
        if looked is None:  # a source has one pass at a time
            ended, host = running.pop()
            done.add(ended)
            turns.give_back(host)
            continue
        queue.remove(looked)
        if not registry[looked] or looked in done:
            turns.leave(looked)
        elif turns.take(looked, registry[looked]):
            running.append((looked, registry[looked]))
        assert all([host for _, host in running].count(host) <= 1 for host in "ab")
    return {each for each, host in registry.items() if host} <= done
