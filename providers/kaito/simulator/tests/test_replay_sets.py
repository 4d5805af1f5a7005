"""The simulated InferenceSet controller, fed with what became of its Workspaces, writes what the real one wrote.

Compared are all writes onto the InferenceSet in their order, the Workspaces that it makes, and which it deletes. Not
compared, because a recording does not hold it: digits of hashes, and times beyond a few seconds (`test_replay`). Edits
of the spec were recorded by the name of the script's step only: `EDITS` says them again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.recorded import recorded_by

from airunway.resource import Resource
from airunway_kaito_simulator.recordings import Recording, with_recorded_times
from airunway_kaito_simulator.set_recordings import RecordedSetWorld


def scaled(replicas: int) -> Callable[[Resource], None]:
    return lambda spec: spec.update(replicas=replicas)


def labelled(spec: Resource) -> None:
    spec["template"]["metadata"]["labels"] = {"airunway.ai/model-deployment": "llama-8b"}


def replaced(spec: Resource) -> None:
    spec["template"]["inference"]["preset"]["name"] = "microsoft/Phi-4-mini-instruct"


EDITS: dict[str, dict[int, Callable[[Resource], None]]] = {
    "g1-inferenceset": {2: scaled(3), 3: replaced, 4: labelled, 5: scaled(1), 6: scaled(0), 7: scaled(2)},
    "g3-inferenceset-template": {},
}


World = Callable[[str], RecordedSetWorld]


@pytest.fixture
def world_of() -> World:
    def make(recording: str) -> RecordedSetWorld:
        path = recorded_by("kaito-v0.12.0") / f"{recording}.jsonl"
        return RecordedSetWorld(Recording(path, "llama-8b", kind="InferenceSet"), EDITS[recording])

    return make


@pytest.mark.parametrize("recording", list(EDITS))
async def test_writes_onto_the_set_are_the_recorded_ones(world_of: World, recording: str) -> None:
    world = world_of(recording)
    await world.run()

    recorded = world.recording.writes()
    assert len(recorded) > 8
    assert with_recorded_times(world.writes, recorded) == recorded


@pytest.mark.parametrize("recording", list(EDITS))
async def test_the_workspaces_made_are_the_recorded_ones(world_of: World, recording: str) -> None:
    world = world_of(recording)
    await world.run()

    recorded = [row["object"] for row in world.recording.of("Workspace", "ADDED")]
    assert len(recorded) == len(world.made) > 2
    for made, real in zip(world.made, recorded, strict=True):
        assert made["metadata"]["labels"] == real["metadata"]["labels"]
        assert made["metadata"]["annotations"] == real["metadata"].get("annotations", {})
        (ours,), (theirs,) = made["metadata"]["ownerReferences"], real["metadata"]["ownerReferences"]
        assert {**ours, "uid": ""} == {**theirs, "uid": ""}
        assert made["inference"] == real["inference"]
        assert made["resource"].items() <= real["resource"].items()


async def test_what_scaling_down_and_deletion_take_away_is_what_was_recorded_to_go(world_of: World) -> None:
    world = world_of("g1-inferenceset")
    await world.run()

    went = [row["name"] for row in world.recording.of("Workspace", "MODIFIED") if row.get("deletionTimestamp")]
    assert len(went) == 5
    assert sorted(world.deleted) == sorted(went)
