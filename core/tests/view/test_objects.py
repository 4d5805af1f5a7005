"""How an object of any kind is doing, by its conditions, counts and phase."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from core.tests.any_json import anything
from hypothesis import given
from hypothesis import strategies as st

from airunway.resource import Resource
from airunway.view.pods import Health
from airunway.view.tree import state_of


def made(*conditions: tuple[str, str, str], wanted: int | None = None, **status: Any) -> Resource:
    """An object with conditions (type, status, reason), replicas that it wants, and more of its status."""
    listed = [{"type": type_, "status": value, "reason": reason} for type_, value, reason in conditions]
    spec = {} if wanted is None else {"replicas": wanted}
    return {"metadata": {"name": "a"}, "spec": spec, "status": {**status, "conditions": listed}}


@pytest.mark.parametrize(
    ("obj", "word", "health"),
    [
        (made(), "", Health.OK),
        (made(phase="Bound"), "Bound", Health.OK),
        (made(phase="Lost"), "Lost", Health.PROBLEM),
        (made(wanted=2), "0/2 ready", Health.PROGRESS),
        (made(("Available", "True", ""), wanted=2, replicas=2, readyReplicas=2), "2/2 ready", Health.OK),
        (made(("Available", "True", ""), wanted=2, replicas=2), "0/2 ready", Health.PROGRESS),
        (made(("Available", "True", ""), wanted=1), "Available", Health.OK),
        (made(("ThingSucceeded", "True", ""), wanted=1), "ThingSucceeded", Health.OK),
        (made(("Ready", "False", "StartingUp"), wanted=1), "StartingUp", Health.PROGRESS),
        (made(("Ready", "Unknown", ""), wanted=1), "Ready unknown", Health.UNKNOWN),
        (made(("Ready", "True", ""), ("Stalled", "True", "Stuck")), "Stuck", Health.PROBLEM),
        ({**made(), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "Terminating", Health.PROGRESS),
    ],
)
def test_the_state_of_an_object(obj: Resource, word: str, health: Health) -> None:
    found = state_of(obj)
    assert (found.word, found.health) == (word, health)


@given(st.randoms())
def test_every_status_has_a_state(chance: Random) -> None:
    keys = ("conditions", "phase", "replicas", "readyReplicas", "type", "status", "reason", "message", "parents")
    status = anything(chance, keys=keys)
    assert isinstance(state_of({"metadata": {"name": "a"}, "spec": {"replicas": 1}, "status": status}).health, Health)
