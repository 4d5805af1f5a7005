"""The simulated controller, fed with what the real one saw, must write what the real one wrote.

Each recording is replayed in virtual time: pods, the status of StatefulSets, deletions and edits of the set come as
recorded, all that the controller writes comes only from the simulator. Compared are every status of the set that
stood for `SETTLED` seconds, replicas and partition of the leaders' StatefulSet, the groups made anew, and the objects
made.

What is not compared, because a recording does not hold it or because it is an accident of timing:

* Times of conditions, digits of hashes, statuses that stood for an instant between two writes.
* ``e-delete-orphan``, ``g-owner-deleted``, ``h-controller-down``: nothing that the controller does.
* ``g-children-touched-by-hand``: the recording does not tell the script's edits of a StatefulSet from the controller's.
* The conditions of ``c-replicas-and-template``: its edit falls into the instant in which the set becomes available, so
  that the order of rows decides whether it ever was.
* ``a-exclusive-topology``, ``a-subdomain-unique``: not played (README).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.recorded import recorded_by

from airunway.resource import Resource, copy_of, dig, labels_of
from airunway_testing.simulators.replay import lacking, settled
from airunway_vllm_simulator import names
from airunway_vllm_simulator.recordings import RecordedWorld, Recording

SETTLED = 0.6
REPLAYED = [
    "a-happy",
    "a-happy-2x3",
    "a-no-leader-template",
    "a-server-side-apply",
    "a-size1",
    "a-startup-leaderready",
    "b-crash-leader-default",
    "b-crash-leader-none",
    "b-crash-worker-default",
    "b-crash-worker-none",
    "b-crash-worker-recreategroupafterstart",
    "b-crashloop-start-none",
    "b-crashloop-start-recreategroupafterstart",
    "b-crashloop-start-recreategrouponpodrestart",
    "b-deleted-leader",
    "b-deleted-worker",
    "b-evicted-worker",
    "b-imagepull-leader",
    "b-imagepull-worker",
    "b-quota",
    "b-unschedulable-worker",
    "b-worker-unready",
    "c-replicas-and-template",
    "c-rollout",
    "c-rollout-stuck-and-reverted",
    "c-rollout-surge",
    "d-scale-1-3-1-0-1",
    "d-scale-by-other-writer",
    "d-size-2-3-1-2",
    "e-delete-and-recreate-at-once",
    "e-delete-background",
    "e-delete-foreground",
    "e-delete-while-pending",
    "g-service-name-clash-lws-first",
    "g-service-name-clash-ours-first",
]


@pytest.fixture(scope="session")
def traces() -> Path:
    return recorded_by("llmd-lws")


@pytest.fixture(scope="session")
def objects(traces: Path) -> list[Resource]:
    """The objects of the recording a-happy, whole."""
    found: list[Resource] = json.loads((traces / "a-happy.objects.json").read_text())
    return found


@pytest.fixture(params=REPLAYED)
async def world(request: pytest.FixtureRequest, traces: Path, objects: list[Resource]) -> RecordedWorld:
    """One recording, played to its end."""
    template = copy_of(objects[0])
    if request.param == "a-no-leader-template":
        del template["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    played = RecordedWorld(Recording(traces / f"{request.param}.jsonl", template))
    await played.run()
    return played


def plain(status: Resource) -> Resource:
    """A status as recordings have it: without times, and conditions by type."""
    status = copy_of(status)
    conditions = {c.pop("type"): c for c in status.pop("conditions", [])}
    for condition in conditions.values():
        condition.pop("lastTransitionTime", None)
    return {**status, "conditions": conditions} if status or conditions else {}


def test_the_statuses_are_the_recorded_ones_in_their_order(world: RecordedWorld) -> None:
    """What stood for a while in one comes in the other, in the same order; the last one is the same."""
    end = world.recording.rows[-1]["t"]
    recorded, ours = world.recording.statuses(), world.written.statuses
    compared = counters if world.recording.namespace == "c-replicas-and-template" else plain
    stood = [compared(status) for status in settled(recorded, until=end, for_at_least=SETTLED) if status]
    assert stood, "a recording without a status that stood compares nothing"
    assert lacking(stood, [compared(status) for _, status in ours]) == []
    standing = settled(ours, until=end, for_at_least=SETTLED)
    stood_here = [compared(status) for status in standing if status]
    assert lacking(stood_here, [compared(status) for _, status in recorded]) == []


def counters(status: Resource) -> Resource:
    return {key: value for key, value in plain(status).items() if key != "conditions"}


def test_the_same_groups_are_made_anew_for_the_same_pods(world: RecordedWorld) -> None:
    ours = [message for reason, message in world.written.events if reason == "RecreateGroup"]
    assert ours == world.recording.told("RecreateGroup")


def test_leaders_are_scaled_and_rolled_as_recorded(world: RecordedWorld) -> None:
    recorded: list[tuple[int, int]] = []
    for row in world.recording.of("StatefulSet"):
        if row["name"] != "big" or "replicas" not in row.get("spec", {}):
            continue
        scale = (row["spec"]["replicas"], dig(row, "spec", "updateStrategy", "rollingUpdate", "partition"))
        if not recorded or recorded[-1] != scale:
            recorded.append(scale)
    assert world.written.scales == recorded


def test_objects_made_are_the_recorded_ones(world: RecordedWorld) -> None:
    ours = [short(obj) for obj in world.written.created if obj["kind"] in ("StatefulSet", "Service")]
    theirs = [
        (row["kind"], row["name"], known(row["labels"]), dig(row, "spec", "replicas"))
        for row in world.recording.rows
        if row["kind"] in ("StatefulSet", "Service") and row.get("event") == "ADDED" and row.get("ownerReferences")
    ]
    assert sorted(ours, key=str) == sorted(theirs, key=str)


def short(obj: Resource) -> tuple[object, ...]:
    return obj["kind"], obj["metadata"]["name"], known(labels_of(obj)), dig(obj, "spec", "replicas")


def known(labels: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in (names.REVISION, names.GROUP_KEY)}
