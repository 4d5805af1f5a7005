"""The simulated operator, fed with what the real one saw, must write what the real one wrote.

Each recording is replayed in virtual time: pods, the dashboard's answers and edits come as recorded, all that the
operator writes comes only from the simulator. Compared are every status of the RayService and of each RayCluster that
stood for `SETTLED` seconds, the operator's events about the RayService, and the objects made.

What is not compared, because a recording does not hold it or because it is an accident of timing:

* Times, random names, messages of containers and of applications, how long a start took.
* What the RayService copies of its cluster's status; CPU, memory and addresses in the status of a RayCluster.
* Whose fields are whose: the API server keeps account of that, and a test on a real one shows it (tests/kuberay).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.recorded import recorded_by

from airunway.resource import Resource, copy_of, dig, labels_of
from airunway_kuberay_simulator import names
from airunway_kuberay_simulator.recordings import RecordedWorld, Recording
from airunway_testing.simulators.replay import lacking, settled

SETTLED = 0.6

Edit = Callable[[Resource], None]


def put(path: str, value: object) -> Edit:
    """Set what stands at ``a.b.0.c`` below the spec; None takes it away."""

    def edit(service: Resource) -> None:
        node: Any = service["spec"]
        *steps, last = path.split(".")
        for step in steps:
            node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value

    return edit


def image(tag: str) -> Edit:
    def edit(service: Resource) -> None:
        config = service["spec"]["rayClusterConfig"]
        for group in (config["headGroupSpec"], *config["workerGroupSpecs"]):
            group["template"]["spec"]["containers"][0]["image"] = f"rayproject/ray-llm:{tag}-py312-cu130"

    return edit


def another_group(service: Resource) -> None:
    groups = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    groups.append({**copy_of(groups[0]), "groupName": "extra", "replicas": 1, "minReplicas": 1})


def two_workers(service: Resource) -> None:
    service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0].update(replicas=2, minReplicas=2)


def patient(service: Resource) -> None:
    service["metadata"].setdefault("annotations", {})[names.TIMEOUT] = "20s"


GROUP = "rayClusterConfig.workerGroupSpecs.0"
PORTS = "rayClusterConfig.headGroupSpec.template.spec.containers.0.ports"
BAD_YAML = "applications: [\n"

CREATED: dict[str, Edit] = {
    "a-exclude-head": put("excludeHeadPodFromServeSvc", True),
    "f-replica-change": put("rayClusterConfig.enableInTreeAutoscaling", None),
    "f-server-side-apply-with-scalestrategy": put(f"{GROUP}.scaleStrategy", {}),
    "f-upgrade-strategy-none": put("upgradeStrategy.type", "None"),
    "h-created-suspended": put("suspend", True),
    "i-initializing-timeout": patient,
    "i-invalid-spec": put(f"{GROUP}.minReplicas", 9),
    "i-no-serve-port": put(PORTS, [{"name": "dashboard", "containerPort": 8265}]),
    "i-serveconfig-unparsable": put("serveConfigV2", BAD_YAML),
}
"""What a recording was created with beside kuberay-a."""

EDITS: dict[str, dict[int, Edit]] = {
    "b-deploy-failed": {3: put("serveConfigV2", "applications: [{name: fixed}]")},
    "b-deploy-failed-then-new-image": {3: image("2.57.0")},
    "f-replica-change": {3: two_workers, 4: another_group},
    "f-server-side-apply": {
        3: put(f"{GROUP}.scaleStrategy", None),
        4: put("serveConfigV2", "applications: [{name: other}]"),
    },
    "f-serveconfig-in-place": {n: put("serveConfigV2", f"applications: [{{name: v{n}}}]") for n in (3, 4, 5)},
    "f-upgrade-failed-and-reverted": {3: image("2.57.0"), 4: image("2.56.0")},
    "f-upgrade-image": {3: image("2.57.0")},
    "f-upgrade-strategy-none": {3: image("2.57.0")},
    "h-created-suspended": {3: put("suspend", False)},
    "h-suspend": {3: put("suspend", True), 4: put("suspend", False)},
    "i-initializing-timeout": {3: image("2.57.0")},
    "i-invalid-spec": {3: put(f"{GROUP}.minReplicas", 1)},
    "i-invalid-spec-after-running": {3: put(f"{GROUP}.minReplicas", 9), 4: put(f"{GROUP}.minReplicas", 1)},
}
"""The edits, which a recording names and does not hold, by the generation that they made."""

REPLAYED = [
    "a-as-written",
    "a-exclude-head",
    "a-happy",
    "a-happy-instant-pods",
    "a-happy-pd",
    "a-worker-without-serve-proxy",
    "b-deploy-failed",
    "b-deploy-failed-then-new-image",
    "c-dashboard-down",
    "c-head-pod-lost",
    "c-operator-restart",
    "c-unhealthy",
    "c-worker-pod-lost",
    "d-head-crashloop",
    "d-head-imagepull",
    "d-worker-crashloop-after-running",
    "d-worker-imagepull",
    "e-quota",
    "e-unschedulable",
    "f-replica-change",
    "f-serveconfig-in-place",
    "f-server-side-apply",
    "f-server-side-apply-with-scalestrategy",
    "f-upgrade-failed-and-reverted",
    "f-upgrade-image",
    "f-upgrade-strategy-none",
    "g-delete-foreground",
    "g-delete-operator-down",
    "g-delete-while-pending",
    "g-owner-deleted",
    "h-created-suspended",
    "h-suspend",
    "i-initializing-timeout",
    "i-invalid-name",
    "i-invalid-spec",
    "i-invalid-spec-after-running",
    "i-no-serve-port",
    "i-put-rejected",
    "i-serveconfig-unparsable",
]


@pytest.fixture(scope="session")
def traces() -> Path:
    return recorded_by("kuberay-v1.7.0")


def manifest(traces: Path, name: str) -> Resource:
    """The RayService as it was created: as it stands among the objects, without what KubeRay has written into it."""
    source = "a-happy-pd" if name == "a-happy-pd" else "a-happy"
    objects = json.loads((traces / f"{source}.objects.json").read_text(encoding="utf-8"))
    made = copy_of(next(obj for obj in objects if obj["kind"] == "RayService"))
    first = next(row for row in Recording(traces / f"{name}.jsonl", {}).of("RayService"))
    made["metadata"] = {"name": first["name"], "labels": labels_of(made)}
    for group in made["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        group.pop("scaleStrategy")
    if name in CREATED:
        CREATED[name](made)
    return made


@pytest.fixture(params=REPLAYED)
async def world(request: pytest.FixtureRequest, traces: Path) -> RecordedWorld:
    """One recording, played to its end."""
    name = request.param
    played = RecordedWorld(Recording(traces / f"{name}.jsonl", manifest(traces, name), EDITS.get(name)))
    await played.run()
    return played


def short(world: RecordedWorld) -> Callable[[Resource], Resource]:
    """A status of the RayService as far as it is compared."""
    known = world.recording.clusters

    def shortened(status: Resource) -> Resource:
        found: Resource = {key: status.get(key) for key in ("observedGeneration", "numServeEndpoints", "serviceStatus")}
        for condition in status.get("conditions", []):
            message = condition["message"].partition("Time spent")[0].partition(" label: ")[0].partition(" label")[0]
            kept = (condition["status"], condition["reason"], message, condition.get("observedGeneration"))
            found[condition["type"]] = kept
        for side in ("activeServiceStatus", "pendingServiceStatus"):
            name = dig(status, side, "rayClusterName")
            apps = dig(status, side, "applicationStatuses") or {}
            found[side] = (
                known.index(name) if name in known else name and "unknown",
                {
                    app: (
                        entry["status"],
                        sorted({part["status"] for part in (entry.get("serveDeploymentStatuses") or {}).values()}),
                    )
                    for app, entry in apps.items()
                },
            )
        return found

    return shortened


def of_cluster(status: Resource) -> Resource:
    """A status of a RayCluster as far as it is compared."""
    counts = ("desiredWorkerReplicas", "availableWorkerReplicas", "readyWorkerReplicas", "state")
    found: Resource = {key: status.get(key) for key in counts}
    for condition in status.get("conditions", []):
        message = re.sub(r'pods "[^"]*"', "pods", condition["message"].partition("; ")[0])
        found[condition["type"]] = (condition["status"], condition["reason"], message)
    return found


def compare(recorded: list[tuple[float, Resource]], ours: list[tuple[float, Resource]], end: float, look: Any) -> None:
    """What stood for a while in one comes in the other, in the same order."""
    assert recorded, "a recording without a status compares nothing"
    stood = [look(status) for status in settled(recorded, until=end, for_at_least=SETTLED)]
    assert lacking(stood, [look(status) for _, status in ours]) == [], "recorded, and not written by the simulator"
    standing = [look(status) for status in settled(ours, until=end, for_at_least=SETTLED)]
    assert lacking(standing, [look(status) for _, status in recorded]) == [], "written by the simulator alone"


def test_the_statuses_of_the_service_are_the_recorded_ones_in_their_order(world: RecordedWorld) -> None:
    end = world.recording.rows[-1]["t"]
    recorded = world.recording.statuses("RayService")
    compare(recorded, world.written.service, end, short(world))


def test_the_statuses_of_its_clusters_are_the_recorded_ones(world: RecordedWorld) -> None:
    assert sorted(world.written.clusters) == sorted(world.recording.clusters)
    for name in world.recording.clusters:
        rows = [row for row in world.recording.of("RayCluster") if row["name"] == name]
        gone = next((row["t"] for row in rows if row.get("event") == "DELETED"), world.recording.rows[-1]["t"])
        recorded = [(t, s) for t, s in world.recording.statuses("RayCluster", name) if t < gone]
        ours = [(t, s) for t, s in world.written.clusters[name] if t < gone]
        compare(recorded, ours, gone, of_cluster)


REASONS = (
    "CreatedRayCluster",
    "UpdatedRayCluster",
    "FailedToUpdateServeApplications",
    "InvalidRayServiceMetadata",
    "InvalidRayServiceSpec",
    "RayServiceInitializingTimeout",
)


def test_the_story_in_its_events_is_the_recorded_one(world: RecordedWorld) -> None:
    ours = [event.reason for event in world.written.events if event.reason in REASONS and not event.cluster]
    recorded = [row for row in world.recording.of("Event") if row["name"].startswith("RayService/")]
    assert ours == [row["reason"] for row in recorded if row["reason"] in REASONS]


def test_what_it_warns_of_in_its_clusters_is_the_recorded_text(world: RecordedWorld) -> None:
    """Of each kind the first: a real one tries again and again, and says the same of pods of other names."""
    rows = [row for row in world.recording.of("Event") if row["type"] == "Warning"]
    recorded = [(row["reason"], row["message"]) for row in rows if row["name"].startswith("RayCluster/")]
    ours = [(event.reason, event.note) for event in world.written.events if event.cluster]
    assert warned(ours) == warned(recorded)


def warned(told: list[tuple[str, str]]) -> dict[str, str]:
    return {reason: re.sub(r'pods "[^"]*"|the cluster [^,]*', "…", text) for reason, text in told}


async def test_real_kuberay_6_a_missing_service_account_is_an_event_and_nothing_else(traces: Path) -> None:
    """No status of the RayCluster, no pod: what the real one did for as long as it was looked at (ray-2.56/noacct)."""
    made = manifest(traces, "a-happy")
    made["metadata"]["name"] = "noacct"
    put(f"{GROUP}.scaleStrategy", {})(made)
    made["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = "does-not-exist"
    recording = Recording(recorded_by("ray-2.56") / "noacct.jsonl", made)
    world = RecordedWorld(recording)
    await world.run()
    (recorded,) = (row for row in recording.of("Event") if row["type"] == "Warning")
    (event,) = (event for event in world.written.events if event.type == "Warning")
    assert (event.reason, f"RayCluster/{event.cluster}") == (recorded["reason"], recorded["name"])
    assert "ServiceAccount does-not-exist is not found" in event.note
    assert "ServiceAccount does-not-exist is not found" in recorded["message"]
    assert list(world.written.clusters) == []
    assert [row["status"] for row in recording.of("RayCluster")] == [{}, {}], "recorded: it never has one"
    assert {obj["kind"] for obj in world.written.created} == {"RayCluster"}
    compare(recording.statuses("RayService"), world.written.service, recording.rows[-1]["t"], short(world))


def test_objects_made_are_the_recorded_ones(world: RecordedWorld) -> None:
    kinds = ("RayCluster", "Service")
    ours = {(obj["kind"], obj["metadata"]["name"]) for obj in world.written.created if obj["kind"] in kinds}
    rows = [row for row in world.recording.rows if row["kind"] in kinds and row.get("event") == "ADDED"]
    assert ours == {(row["kind"], row["name"]) for row in rows}


def test_the_finalizer_makes_a_generation_of_its_own(world: RecordedWorld) -> None:
    """Writing it back, KubeRay fills in ``scaleStrategy`` where nobody has (fact 1)."""
    filled_in = "with-scalestrategy" not in world.recording.namespace
    assert world.written.generations[0] == (2 if filled_in else 1)
