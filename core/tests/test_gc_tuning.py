"""The collector's pauses: what a process holds for long is not gone through again, and what dies is still found."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import pytest

from airunway.gc_tuning import gc_paused

_PROLOGUE = """
import gc, weakref
from airunway.gc_tuning import short_gc_pauses

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
        with short_gc_pauses():
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
        with short_gc_pauses():
            dead = [cycle() for _ in range(1_000)]
            kept = [[] for _ in range(100_000)]
        print(sum(each() is not None for each in dead))
    """)
    assert int(said) == 0


def test_a_cycle_that_dies_after_it_was_put_aside_is_found_in_the_end() -> None:
    said = _alone("""
        import airunway.gc_tuning as gc_tuning
        gc_tuning._THAW = 5
        with short_gc_pauses():
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


def test_a_collection_does_not_disturb_a_thread_that_fills_a_tuple() -> None:
    """It has ended a core that was starting: "SystemError: bad argument to internal function", in a `tuple(…)`."""
    said = _alone("""
        import sys, threading

        sys.setswitchinterval(1e-6)
        collected = threading.Event()

        def fill():
            made = 0
            while not collected.is_set():
                made += len(tuple(each for each in ([] for _ in range(30))))
            print(made > 0)

        gc.callbacks.clear()
        with short_gc_pauses():
            filling = threading.Thread(target=fill)
            filling.start()
            kept = [[] for _ in range(1_000)]
            for _ in range(10_000):
                gc.collect()
            collected.set()
            filling.join()
    """)
    assert said.split() == ["True"]


def test_no_collection_happens_where_none_is_wanted() -> None:
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_back_after_an_error() -> None:
    with pytest.raises(RuntimeError), gc_paused():
        raise RuntimeError
    assert gc.isenabled()
