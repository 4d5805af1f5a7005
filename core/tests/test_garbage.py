"""The collector's pauses: what a process holds for long is not gone through again, and what dies is still found."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import pytest

from airunway.garbage import uncollected

_PROLOGUE = """
import gc, weakref
from airunway.garbage import short_collections

walked = []
gc.callbacks.append(lambda phase, info: walked.append(len(gc.get_objects())) if phase == "start" else None)

class Node:
    pass

def cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)
"""


def _alone(script: str) -> str:
    """What a script says that has a process, and so a collector, of its own."""
    code = _PROLOGUE + textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout


def test_a_collection_does_not_go_through_what_has_been_there_for_long() -> None:
    said = _alone("""
        with short_collections():
            kept = []
            for _ in range(300_000):
                kept.append([])
        print(max(walked), gc.get_freeze_count())
    """)
    most, aside = map(int, said.split())
    assert aside > 200_000
    assert most < 60_000


def test_what_dies_young_is_collected() -> None:
    said = _alone("""
        with short_collections():
            dead = [cycle() for _ in range(1_000)]
            kept = [[] for _ in range(100_000)]
        print(sum(each() is not None for each in dead))
    """)
    assert int(said) == 0


def test_a_cycle_that_dies_after_it_was_put_aside_is_found_in_the_end() -> None:
    said = _alone("""
        import airunway.garbage as garbage
        garbage._THAW = 5
        with short_collections():
            node = Node()
            node.itself = node
            dead = weakref.ref(node)
            kept = [[] for _ in range(100_000)]
            assert gc.get_freeze_count() > 50_000
            del node
            kept += [[] for _ in range(1_000_000)]
        print(dead() is None)
    """)
    assert said.split() == ["True"]


def test_a_thread_may_make_tuples_during_a_collection() -> None:
    """What looks at all containers must not be interrupted: a tuple that somebody else holds cannot be finished."""
    said = _alone("""
        import sys, threading, time

        gc.callbacks.clear()  # what these tests look on with is no better
        sys.setswitchinterval(1e-6)
        broken, until = [], time.monotonic() + 2

        def make():
            while time.monotonic() < until and not broken:
                try:
                    tuple(str(number) for number in range(50))
                except SystemError as error:
                    broken.append(error)

        with short_collections():
            thread = threading.Thread(target=make)
            thread.start()
            while thread.is_alive():
                gc.collect()
            thread.join()
        print(broken)
    """)
    assert said.strip() == "[]"


def test_no_collection_happens_where_none_is_wanted() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_back_after_an_error() -> None:
    with pytest.raises(RuntimeError), uncollected():
        raise RuntimeError
    assert gc.isenabled()
