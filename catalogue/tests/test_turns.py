"""Which sources scan a registry, and that no turn is lost, whatever becomes of those that wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airunway.resource import ObjectKey
from airunway_catalogue.turns import Turns


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


@given(st.data())
def test_no_source_is_forgotten(data: st.DataObject) -> None:
    """Sources are paused, moved and looked at in any order. When nothing runs and nothing was woken, none waits."""
    queue: list[ObjectKey] = []
    turns = Turns(most=2, wake=queue.append)
    wish: dict[ObjectKey, str] = {key(number): data.draw(st.sampled_from("ab")) for number in range(6)}
    done: set[ObjectKey] = set()
    running: list[tuple[ObjectKey, str]] = []
    queue.extend(wish)
    for _ in range(400):
        steps = ["pass"] * bool(queue) + ["end"] * bool(running)
        if not steps:
            break
        if data.draw(st.integers(0, 4)) == 0:
            edited = data.draw(st.sampled_from(sorted(wish)))
            wish[edited] = data.draw(st.sampled_from(["a", "b", ""]))
            queue.append(edited)
        if data.draw(st.sampled_from(steps)) == "end":
            ended, host = running.pop(data.draw(st.integers(0, len(running) - 1)))
            done.add(ended)
            turns.give_back(host)
            continue
        looked = queue.pop(data.draw(st.integers(0, len(queue) - 1)))
        if any(looked == each for each, _ in running):
            queue.append(looked)  # a source has one pass at a time
            continue
        if not wish[looked] or looked in done:
            turns.leave(looked)
        elif turns.take(looked, wish[looked]):
            running.append((looked, wish[looked]))
        assert all(sum(at == host for _, at in running) <= 2 for host in "ab")
    else:
        return  # it was edited to the end
    assert {each for each in wish if wish[each]} <= done
