"""The simulated KAITO, fed with what the real controller saw, must write what the real controller wrote.

Each Workspace of a recording is replayed in virtual time: pods, status of the StatefulSet, deletions and annotations
come as recorded, all that KAITO writes comes only from the simulator. Compared are all writes onto the Workspace in
their order, and the content of the Services, StatefulSets and ControllerRevisions.

What is not compared, because a recording does not hold it:

* Times of the writes. Transition times may differ by a few seconds: in the real controller a throttled client
  adds a third of a second per object made, here it is one pause per pass.
* Digits of revision hashes, also in names of ControllerRevisions. That an edit returns to an earlier hash is compared.
* A preset's command and KAITO's own environment variables: they come from a model catalog inside KAITO, not from the
  Workspace. Of an adapter's puller only name, image and mounts.
* Nodes, edits of ``resource``/``inference`` and the content of pod logs are inputs of which only the step's name was
  recorded: `NODE_EVENTS`, `EDITS`, `SECRET_STEPS` and `METRICS_STEPS` say them again.
* ``i1``: Workspaces ad3 and ad4 stay without any status because the admission webhook refuses the controller's own
  writes; the simulator has no webhook.
* What follows the step ``end`` (cleaning up).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.recorded import recorded_by

from airunway.resource import Resource, copy_of, dig
from airunway_kaito_simulator import names
from airunway_kaito_simulator.pods import failure_of
from airunway_kaito_simulator.recordings import RecordedWorld, Recording, Retold, with_recorded_times

RECORDINGS = recorded_by("kaito-v0.12.0")

REPLAYED = {
    "a1-preset-byo": ["llama-8b"],
    "a2-preset-benchmark": ["llama-8b"],
    "b1-template": ["llama-8b"],
    "b2-template-count2": ["llama-8b"],
    "c1-cpu-llamacpp": ["gemma-cpu"],
    "d1-no-node": ["llama-8b"],
    "d2-unschedulable": ["llama-8b"],
    "e1-imagepull": ["llama-8b"],
    "e2-crashloop-start": ["llama-8b"],
    "e3-crashloop-after-ready": ["llama-8b"],
    "e4-oom-after-ready": ["llama-8b"],
    "e5-evicted": ["llama-8b"],
    "f1-edits": ["llama-8b", "tm"],
    "g1-inferenceset": ["llama-8b-qcbcn", "llama-8b-k7l5x"],
    "g3-inferenceset-template": ["llama-8b-znz6m"],
    "h1-delete-ready": ["llama-8b"],
    "h2-delete-pending": ["llama-8b", "nn"],
    "i1-config-adapters": ["llama-8b"],
    "j1-secret-missing": ["llama-8b", "nosec", "sec", "legacy"],
    "j2-secret-missing-then-created": ["llama-8b"],
    "l1-node-notready": ["llama-8b"],
    "p1-preset-partition": ["llama-8b"],
}
CASES = [(recording, name) for recording, workspaces in REPLAYED.items() for name in workspaces]


def node(name: str, labels: dict[str, str], *, ready: bool = True) -> Resource:
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    return {"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}


LINUX = {"kubernetes.io/os": "linux"}
GPU = {**LINUX, "nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "8"}
NODES = [node("gpu-1", GPU), node("gpu-2", GPU), node("cpu-1", LINUX)]

NODE_EVENTS: dict[str, list[tuple[float, str, Resource | None]]] = {
    # The step says that the node appears; that it was not ready at the next poll follows from the status written then.
    "d1-no-node": [
        (16.52, "d1-node", node("d1-node", {"d1": "node"}, ready=False)),
        (16.75, "d1-node", node("d1-node", {"d1": "node"})),
        (36.2, "d1-node", None),
    ],
    "g1-inferenceset": [(20.4, "gpu-3", node("gpu-3", GPU))],
    # The node lifecycle controller takes the nodes one by one, first the pod's; one ready node is enough for a while.
    "l1-node-notready": [
        (51.3, "gpu-1", node("gpu-1", GPU, ready=False)),
        (56.0, "gpu-2", node("gpu-2", GPU, ready=False)),
        (84.0, "gpu-1", node("gpu-1", GPU)),
        (84.0, "gpu-2", node("gpu-2", GPU)),
    ],
}


def set_config(name: str) -> Callable[[Resource], None]:
    return lambda workspace: workspace["inference"].update(config=name)


def add_adapter(workspace: Resource) -> None:
    workspace["inference"]["adapters"] = [{"source": {"name": "ad1", "image": "docker.io/org/ad1:1"}}]


def set_image(workspace: Resource) -> None:
    # the script's merge patch replaced the list of containers
    workspace["inference"]["template"]["spec"]["containers"] = [{"name": "model", "image": "vllm/vllm-openai:v0.99.0"}]


EDITS: dict[tuple[str, str], dict[int, Callable[[Resource], None]]] = {
    # by the generation that the edit made
    ("f1-edits", "llama-8b"): {2: set_config("no-such"), 3: set_config("llama-8b-inference-config"), 4: add_adapter},
    ("f1-edits", "tm"): {2: set_image},
}
SECRET_STEPS = {
    "j1-secret-missing": ("never", "never"),
    "j2-secret-missing-then-created": ("Secret hf-token created", "delete the Secret while ready, poke"),
}
METRICS_STEPS = {"a2-preset-benchmark": "the pod's log now has a benchmark result", "p1-preset-partition": "begin"}


def retold(path: Path, name: str) -> Retold:
    recording = path.stem
    secret_since, secret_until = SECRET_STEPS.get(recording, ("begin", "never"))
    metrics = dig(Recording(path, name).writes()[-1][1], "performance", "metrics")
    return Retold(
        nodes=NODES,
        node_events=NODE_EVENTS.get(recording, []),
        edits=EDITS.get((recording, name), {}),
        secret_since=secret_since,
        secret_until=secret_until,
        benchmark_since=METRICS_STEPS.get(recording, "never"),
        benchmark_metrics=metrics,
    )


def world_of(recording: str, name: str) -> RecordedWorld:
    path = RECORDINGS / f"{recording}.jsonl"
    return RecordedWorld(Recording(path, name), retold(path, name))


@pytest.mark.parametrize(("recording", "name"), CASES)
async def test_writes_onto_the_workspace_are_the_recorded_ones(recording: str, name: str) -> None:
    world = world_of(recording, name)
    await world.run()

    recorded = world.recording.writes()
    assert len(recorded) >= 3
    assert with_recorded_times(world.writes, recorded) == recorded


def recorded_objects(recording: Recording, kind: str) -> list[Resource]:
    """The objects of a kind as they were made, in order, in the form of our own: with kind and name, without status."""
    return [
        {"kind": kind, **row["object"], "metadata": {"name": row["name"], **row["object"]["metadata"]}}
        for row in recording.of(kind, "ADDED")
    ]


def missing(ours: object, theirs: object, path: str = "") -> list[str]:
    """Where `theirs` lacks or contradicts what `ours` says. Theirs may say more: an API server fills in defaults."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            found
            for key, value in ours.items()
            for found in (missing(value, theirs[key], f"{path}.{key}") if key in theirs else [f"{path}.{key}"])
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [found for index, (one, other) in pairs for found in missing(one, other, f"{path}[{index}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} instead of {theirs!r}"]


def comparable(obj: Resource) -> Resource:
    """Without what the module's docstring names: identity, revision digits, the model catalog's part of a preset."""
    obj = copy_of(obj)
    obj.pop("apiVersion", None)
    obj["metadata"].pop("namespace", None)
    if obj["kind"] == "ControllerRevision":
        obj.pop("data", None)
        obj["metadata"]["name"] = obj["metadata"]["name"].rpartition("-")[0]
        obj["metadata"]["annotations"].pop(names.HASH)
    pod = dig(obj, "spec", "template", "spec", default={})
    for container in pod.get("containers", []):
        if container["name"] != "model":  # templates keep every word
            container.pop("command")
            container["env"] = [v for v in container.get("env") or [] if not v["name"].startswith("VLLM_")]
    for puller in pod.get("initContainers", []):
        puller.pop("command")
    return obj


@pytest.mark.parametrize(("recording", "name"), CASES)
@pytest.mark.parametrize("kind", ["ControllerRevision", "Service", "StatefulSet"])
async def test_objects_made_are_the_recorded_ones(recording: str, name: str, kind: str) -> None:
    world = world_of(recording, name)
    await world.run()

    recorded = [comparable(obj) for obj in recorded_objects(world.recording, kind)]
    made = [comparable(obj) for obj in world.created if obj["kind"] == kind]
    assert [obj["metadata"]["name"] for obj in made] == [obj["metadata"]["name"] for obj in recorded]
    assert [missing(*pair) for pair in zip(made, recorded, strict=True)] == [[] for _ in made]


async def test_edits_of_a_preset_change_the_stateful_set_as_recorded() -> None:
    world = world_of("f1-edits", "llama-8b")
    await world.run()

    rows = [row for row in world.recording.of("StatefulSet", "MODIFIED") if row.get("object")]
    recorded = [comparable({"kind": "StatefulSet", **row["object"]}) for row in rows]
    assert len(recorded) == 3
    patched = [comparable(obj) for obj in world.patched]
    for obj in patched:
        del obj["metadata"]["name"], obj["status"]
    assert [missing(*pair) for pair in zip(patched, recorded, strict=True)] == [[], [], []]


def test_a_long_message_is_cut_where_kaito_cuts_it() -> None:
    rows = [json.loads(line) for line in (RECORDINGS / "g1-inferenceset.jsonl").read_text().splitlines()]
    conditions = [c for row in rows if row["kind"] == "Workspace" for c in dig(row, "status", "conditions", default=[])]
    recorded = {c["message"] for c in conditions if c["reason"] == "Unschedulable" and c["message"].endswith("...")}
    pods = [{"metadata": {"name": row["name"]}, "status": row["status"]} for row in rows if row["kind"] == "Pod"]
    failures = [failure_of([pod]) for pod in pods]
    assert recorded
    assert recorded <= {failure.message for failure in failures if failure is not None}


async def test_a_condition_never_changes_because_a_pod_did() -> None:
    """The controller watches no pods (fact 5): an image that cannot be pulled shows only after an unrelated event."""
    world = world_of("e1-imagepull", "llama-8b")
    poke = next(row["t"] for row in world.recording.rows if row["name"].startswith("poke"))
    await world.run(until=poke)

    assert failure_of(world.pods.values()) is not None
    assert [dig(status, "state") for kind, status in world.writes if kind == "status"] == [None, "Pending"]
    reasons = {
        c["reason"] for kind, status in world.writes if kind == "status" for c in dig(status, "conditions", default=[])
    }
    assert "ImagePullError" not in reasons
