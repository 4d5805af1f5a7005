"""What is remembered of objects, by name and uid."""

from __future__ import annotations

from airunway.process.memories import Memories
from airunway.resource import Resource, key_of


def made(name: str, uid: str) -> Resource:
    return {"metadata": {"namespace": "team", "name": name, "uid": uid}}


def test_a_memory_stays_until_the_object_is_another_one() -> None:
    memories = Memories[list[int]](list)
    assert memories.find(made("a", "1")) is None
    memories.of(made("a", "1")).append(1)
    assert memories.of(made("a", "1")) == [1]
    assert memories.find(made("a", "2")) is None
    assert memories.of(made("a", "2")) == []


def test_what_is_gone_is_forgotten() -> None:
    memories = Memories[list[int]](list)
    for name in ("a", "b", "c"):
        memories.of(made(name, name)).append(1)
    memories.forget(key_of(made("a", "a")))
    memories.forget(key_of(made("a", "a")))
    memories.keep({key_of(made("b", "b"))})
    assert [memories.find(made(name, name)) for name in ("a", "b", "c")] == [None, [1], None]
