"""Reading our own writes before the watch brings them."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kube import CONFIG_MAP, Backoff, Client, Handler, MutationCache, Reflector, strip_managed_fields
from airunway.resource import ObjectKey, Resource
from airunway_testing.eventually import Eventually

KEY = ObjectKey("n", "a")


class PlainCache:
    """A cache that the test fills by hand."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Resource] = {}
        self.handlers: list[Handler] = []

    def get(self, key: ObjectKey) -> Resource | None:
        return self.objects.get(key)

    def add_handler(self, handler: Handler) -> None:
        self.handlers.append(handler)

    def put(self, new: Resource | None) -> None:
        old = self.objects.pop(KEY, None)
        if new is not None:
            self.objects[KEY] = new
        for handler in self.handlers:
            handler(KEY, old, new)


def obj(version: str, uid: str = "u") -> Resource:
    return {"metadata": {"namespace": "n", "name": "a", "resourceVersion": version, "uid": uid}}


def test_the_answer_counts_until_the_watch_has_caught_up() -> None:
    cache, now = PlainCache(), [0.0]
    overlay = MutationCache(cache, clock=lambda: now[0])
    cache.put(obj("1"))
    assert overlay.get(KEY) == obj("1")
    overlay.note(obj("5"))
    assert overlay.get(KEY) == obj("5")
    assert overlay.unconfirmed(KEY)
    cache.put(obj("3"))
    assert overlay.get(KEY) == obj("5"), "an event from before our write"
    cache.put(obj("5"))
    assert overlay.get(KEY) is cache.get(KEY)
    assert not overlay.unconfirmed(KEY)
    cache.put(obj("7"))
    assert overlay.get(KEY) == obj("7")


def test_an_object_we_created_is_there_and_goes_with_its_deletion() -> None:
    cache = PlainCache()
    overlay = MutationCache(cache)
    overlay.note(obj("5"))
    assert overlay.get(KEY) == obj("5")
    cache.put(obj("5"))
    overlay.note(obj("6"))
    cache.put(None)
    assert overlay.get(KEY) is None
    # Deleting an older object of the same name does not take the new one away.
    cache.put(obj("8", uid="old"))
    overlay.note(obj("9", uid="new"))
    cache.put(None)
    assert overlay.get(KEY) == obj("9", uid="new")


def test_an_answer_that_is_never_confirmed_is_dropped() -> None:
    cache, now = PlainCache(), [0.0]
    overlay = MutationCache(cache, patience=10, clock=lambda: now[0])
    overlay.note(obj("5"))
    now[0] = 10.0
    assert overlay.get(KEY) is not None
    now[0] = 10.1
    assert overlay.get(KEY) is None


@pytest.mark.parametrize("version", ["", "x9"])
def test_versions_that_are_no_numbers_let_the_cache_win(version: str) -> None:
    cache = PlainCache()
    overlay = MutationCache(cache)
    cache.put(obj("1"))
    overlay.note(obj(version))
    assert overlay.get(KEY) == obj("1")


@pytest.mark.apiserver
async def test_over_a_cache_that_lags(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    lagging = True
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=Backoff(base=0.02, cap=0.1))
    overlay = MutationCache(reflector, project=strip_managed_fields())
    proxy.inject(Fault("status", verb="watch", status=503, count=None, where=lambda _: lagging))
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    desired = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": "a"}}
    key = ObjectKey(namespace, "a")
    answer = await client.apply(CONFIG_MAP, desired, manager="tests")
    overlay.note(answer)
    assert reflector.get(key) is None
    seen = overlay.get(key)
    assert seen is not None
    assert "managedFields" not in seen["metadata"]
    lagging = False
    await eventually(lambda: reflector.get(key) is not None)
    assert overlay.get(key) is reflector.get(key)
    task.cancel()
    await asyncio.wait({task})


class Heard:
    """What a listener was told: the versions before and after, and whether it was an echo."""

    def __init__(self) -> None:
        self.changes: list[tuple[str | None, str | None, bool]] = []

    def __call__(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        before, after = (None if each is None else each["metadata"]["resourceVersion"] for each in (old, new))
        self.changes.append((before, after, echo))


def listened_to() -> tuple[PlainCache, MutationCache, Heard]:
    """An empty cache, the overlay on it, and what its listener hears."""
    cache, heard = PlainCache(), Heard()
    overlay = MutationCache(cache)
    overlay.add_listener(heard)
    return cache, overlay, heard


def test_an_echo_is_told_from_a_change_by_others() -> None:
    cache, overlay, heard = listened_to()
    cache.put(obj("1"))
    with overlay.writing(KEY):
        overlay.note(obj("3"))
    cache.put(obj("2"))
    cache.put(obj("3"))
    cache.put(obj("4"))
    cache.put(None)
    assert heard.changes == [
        (None, "1", False),
        ("1", "2", False),
        ("2", "3", True),
        ("3", "4", False),
        ("4", None, False),
    ]


def test_what_happens_during_a_write_is_told_after_it_as_one_change() -> None:
    cache, overlay, heard = listened_to()
    cache.put(obj("1"))
    with overlay.writing(KEY):
        cache.put(obj("2"))
        cache.put(obj("3"))  # the watch is faster than the answer
        assert heard.changes == [(None, "1", False)]
        overlay.note(obj("3"))
    assert heard.changes[1:] == [("1", "3", True)]
    with overlay.writing(KEY):
        overlay.note(obj("5"))
        cache.put(obj("5"))
        cache.put(obj("6"))
    assert heard.changes[2:] == [("3", "6", False)], "somebody wrote after us"


def test_an_echo_that_comes_during_the_next_write_is_an_echo() -> None:
    cache, overlay, heard = listened_to()
    cache.put(obj("1"))
    with overlay.writing(KEY):
        overlay.note(obj("2"))
    with overlay.writing(KEY):
        cache.put(obj("2"))  # the watch is slower than two writes
        overlay.note(obj("4"))
    assert heard.changes[1:] == [("1", "2", True)]
    with overlay.writing(KEY):
        cache.put(obj("3"))
        overlay.note(obj("5"))
    assert heard.changes[2:] == [("2", "3", False)], "somebody wrote between our writes"


def test_what_happens_during_a_write_that_fails_is_told_all_the_same() -> None:
    cache, overlay, heard = listened_to()

    def fail() -> None:
        with overlay.writing(KEY):
            cache.put(obj("1"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    cache.put(obj("2"))
    assert heard.changes == [(None, "1", False), ("1", "2", False)]


def test_what_comes_and_goes_during_a_write_is_told_as_gone() -> None:
    cache, overlay, heard = listened_to()
    with overlay.writing(KEY):
        cache.put(obj("1"))
        cache.put(None)
        overlay.note(obj("1"))
    assert heard.changes == [("1", None, False)]


def test_an_answer_about_what_was_deleted_meanwhile_counts_for_nothing() -> None:
    """The watch is ahead of the answer: no event will come that could end it, and the object would seem to be there."""
    cache = PlainCache()
    overlay, told = MutationCache(cache), []
    overlay.add_listener(lambda _key, _old, new, echo: told.append((new, echo)))
    cache.put(obj("1"))
    told.clear()
    with overlay.writing(KEY):
        cache.put(obj("2"))
        cache.put(None)
        overlay.note(obj("2"))
        assert overlay.get(KEY) is None
    assert overlay.get(KEY) is None
    assert told == [(None, False)]
    with overlay.writing(KEY):
        overlay.note(obj("4", uid="another"))
    assert overlay.get(KEY) == obj("4", uid="another")


def test_an_answer_about_what_another_of_that_name_has_replaced_counts_for_nothing() -> None:
    cache = PlainCache()
    overlay = MutationCache(cache)
    cache.put(obj("1"))
    with overlay.writing(KEY):
        cache.put(obj("3", uid="another"))
        overlay.note(obj("9"))
    assert overlay.get(KEY) == obj("3", uid="another")
