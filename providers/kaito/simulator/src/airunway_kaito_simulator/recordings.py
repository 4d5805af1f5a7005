"""Replays recordings of the real controller: runs the simulator's passes in virtual time on recorded inputs.

A recording is a file of JSON lines, each with one change of one object and the seconds since the start; its format is
described beside the recordings. Writes of the real controller are not inputs: a `RecordedWorld` takes them from the
simulator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from airunway.resource import Resource, copy_of, dig, format_time, key_of, parse_time
from airunway_kaito_simulator import names, passes
from airunway_kaito_simulator.access import access_error
from airunway_testing.simulators.replay import Input, Replay
from airunway_testing.simulators.writes import merged

WriteRecord: TypeAlias = tuple[str, object]
"""A write to the object: ``finalizer`` (present or not), ``revision`` (ordinal of its hash, number) or ``status``."""

_PAUSE = 0.33  # seconds between reading the nodes and reading the workload, as between the recorded writes
_LATENCY = 0.012  # seconds of one write
_TOLERANCE = 3  # seconds between a simulated and a recorded transition time
_OWN_ANNOTATIONS = (names.HASH, names.REVISION)
_MARKS = {
    "Workspace": (names.FINALIZER, names.HASH, names.REVISION),
    "InferenceSet": (names.SET_FINALIZER, names.SET_HASH, names.SET_REVISION),
}
"""By kind, the finalizer and the two annotations that KAITO sets on its objects."""


@dataclass(frozen=True, kw_only=True)
class Retold:
    """Inputs that are missing in a recording, which contains only the name of the script's step."""

    nodes: Sequence[Resource]
    """Nodes at the beginning."""
    node_events: Sequence[tuple[float, str, Resource | None]] = ()
    """Later changes: seconds, name, and the node or None."""
    edits: Mapping[int, Callable[[Resource], None]] = field(default_factory=dict)
    """Edits of the Workspace, by the generation that they created."""
    secret_since: str = "begin"
    """The step since which the access Secret exists."""
    secret_until: str = "never"
    """The step that deletes the access Secret."""
    benchmark_since: str = "never"
    """The step since which the pod's log contains `benchmark_metrics`."""
    benchmark_metrics: Resource | None = None


class Recording:
    """The rows of one recording up to its step ``end`` that concern one Workspace or one InferenceSet."""

    def __init__(self, path: Path, name: str, *, kind: str = "Workspace") -> None:
        self.namespace = path.stem
        self.name = name
        self.kind = kind
        self._marks = _MARKS[kind]
        self.rows: list[Resource] = []
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if (row["kind"], row["name"]) == ("Step", "end"):
                break
            if row["kind"] == "Step" or self._concerns(row):
                self.rows.append(row)

    def of(self, kind: str, *types: str) -> Iterator[Resource]:
        """Rows about the Workspace's objects of that kind, with these event types."""
        return (row for row in self.rows if row["kind"] == kind and row["type"] in types)

    def began(self) -> datetime:
        """The time of second 0, in whole seconds, derived from the first transition time."""
        for row in self.of(self.kind, "MODIFIED"):
            for condition in dig(row, "status", "conditions", default=[]):
                moment = parse_time(condition["lastTransitionTime"])
                if moment is not None:
                    return moment - timedelta(seconds=row["t"])
        raise ValueError(f"recording {self.namespace}: no condition of {self.kind} {self.name} has a time")

    def writes(self) -> list[WriteRecord]:
        """KAITO's writes to the object, in order."""
        finalizer, hash_, revision = self._marks
        writes: list[WriteRecord] = []
        before: Resource = {}
        hashes: list[str] = []
        for row in self.of(self.kind, "ADDED", "MODIFIED", "DELETED"):
            held = finalizer in (row.get("finalizers") or [])
            if row["type"] == "DELETED":
                if held:  # the row is the last stored state: removing the finalizer also deleted the object
                    writes.append(("finalizer", False))
                break
            if held != (finalizer in (before.get("finalizers") or [])):
                writes.append(("finalizer", held))
            digits, known = (dig(state, "annotations", hash_, default="") for state in (row, before))
            if digits != known:
                writes.append(("revision", (ordinal(digits, hashes), row["annotations"][revision])))
            if row.get("status") and row["status"] != before.get("status"):
                writes.append(("status", row["status"]))
            before = row
        return writes

    def _concerns(self, row: Resource) -> bool:
        if self.kind == "InferenceSet":
            of = dig(row, "labels", names.CREATED_BY) == self.name if row["kind"] == "Workspace" else False
            return of or (row["kind"], row["name"]) == (self.kind, self.name)
        if row["kind"] in ("Workspace", "StatefulSet"):
            return bool(row["name"] == self.name)
        if row["kind"] == "Service":
            return row["name"] in (self.name, f"{self.name}-headless")
        return row["kind"] in ("Pod", "ControllerRevision") and row["name"].rpartition("-")[0] == self.name


class RecordedWorld:
    """A `passes.World` whose inputs are the rows of a recording; `run` plays it to the end.

    Afterwards `writes` has the simulator's writes to the Workspace, `created` its new objects, and `patched` the
    StatefulSet after each edit.
    """

    def __init__(self, recording: Recording, retold: Retold) -> None:
        self.recording = recording
        self.writes: list[WriteRecord] = []
        self.created: list[Resource] = []
        self.patched: list[Resource] = []
        self.pods: dict[str, Resource] = {}
        self._retold = retold
        self._began = recording.began()
        inputs: list[Input] = [(row["t"], self._of_row(row)) for row in recording.rows]
        inputs += [(moment, self._of_node(name, node)) for moment, name, node in retold.node_events]
        self._replay = Replay(inputs)
        self._steps = {"begin"}
        self._nodes = {key_of(node).name: node for node in retold.nodes}
        self._workspace: Resource | None = None
        self._services: dict[str, Resource] = {}
        self._revisions: list[Resource] = []
        self._hashes: list[str] = []
        self._stateful_set: Resource | None = None
        self._stateful_set_status: Resource = {}
        self._replicas: int | None = None

    async def run(self, *, until: float = float("inf")) -> None:
        """Play the recording to its end, or to `until` (seconds); later inputs are left out."""
        await self._replay.run(lambda: passes.reconcile(self), until=until)

    async def facts(self) -> passes.Facts | None:
        if self._workspace is None:
            return None
        secret_exists = self._retold.secret_since in self._steps and self._retold.secret_until not in self._steps
        benchmarked = self._retold.benchmark_since in self._steps
        return passes.Facts(
            workspace=copy_of(self._workspace),
            now=format_time(self._began + timedelta(seconds=self._replay.clock)),
            nodes=list(self._nodes.values()),
            services=list(self._services.values()),
            stateful_set=self._stateful_set,
            revisions=self._revisions,
            pods=list(self.pods.values()),
            access_error=access_error(self._workspace, secret_exists=secret_exists),
            benchmark_metrics=self._retold.benchmark_metrics if benchmarked else None,
        )

    async def pause(self) -> None:
        self._replay.advance(_PAUSE)

    async def write(self, write: passes.Write) -> bool:
        self._replay.advance(_LATENCY)
        if self._workspace is None:
            return False
        self._replay.changed = True
        match write:
            case passes.SetFinalizers(finalizers):
                self._workspace["metadata"]["finalizers"] = finalizers
                self.writes.append(("finalizer", names.FINALIZER in finalizers))
                if self._workspace["metadata"].get("deletionTimestamp") and not finalizers:
                    self._workspace = None
            case passes.Annotate(annotations):
                self._workspace["metadata"]["annotations"].update(annotations)
                number = annotations[names.REVISION]
                self.writes.append(("revision", (ordinal(annotations[names.HASH], self._hashes), number)))
            case passes.WriteBack(template):
                self._workspace["inference"]["template"] = copy_of(template)
            case passes.WriteStatus(status):
                self._workspace["status"] = copy_of(status)
                self.writes.append(("status", copy_of(status)))
            case passes.Create(obj):
                self._create(copy_of(obj))
            case passes.PatchStatefulSet(patch):
                self._stateful_set = merged(self._stateful_set or {}, copy_of(patch))
                self.patched.append(copy_of(self._stateful_set))
        return True

    def _create(self, obj: Resource) -> None:
        self.created.append(copy_of(obj))
        match obj["kind"]:
            case "Service":
                self._services[key_of(obj).name] = obj
            case "ControllerRevision":
                self._revisions.append(obj)
            case "StatefulSet":
                self._stateful_set = {**obj, "status": self._stateful_set_status}

    def _of_node(self, name: str, node: Resource | None) -> Callable[[], None]:
        def apply() -> None:
            if node is None:
                del self._nodes[name]
            else:
                self._nodes[name] = node

        return apply

    def _of_row(self, row: Resource) -> Callable[[], None]:
        apply: Callable[[Resource], None] = {
            "Step": self._on_step,
            "Workspace": self._on_workspace,
            "StatefulSet": self._on_stateful_set,
            "Service": self._on_service,
            "Pod": self._on_pod,
            "ControllerRevision": self._on_own,
        }[row["kind"]]
        return lambda: apply(row)

    def _on_own(self, _: Resource) -> None:
        """Only KAITO writes these objects, so they are no input."""

    def _on_step(self, row: Resource) -> None:
        self._steps.add(row["name"])

    def _on_workspace(self, row: Resource) -> None:
        if row["type"] == "ADDED":
            self._workspace = self._first_seen(row)
            self._replay.changed = True
        elif row["type"] == "DELETED" and names.FINALIZER not in row["finalizers"]:
            self._workspace = None  # deleted by another client
        if self._workspace is None or row["type"] == "DELETED":
            return
        metadata = self._workspace["metadata"]
        before = copy_of(metadata)
        own = {key: value for key, value in metadata["annotations"].items() if key in _OWN_ANNOTATIONS}
        theirs = {key: value for key, value in (row.get("annotations") or {}).items() if key not in _OWN_ANNOTATIONS}
        metadata.update(annotations={**theirs, **own}, labels=row.get("labels") or {})
        if row.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = row["deletionTimestamp"]
            if "foregroundDeletion" in {*row["finalizers"]} - {*metadata["finalizers"]}:
                metadata["finalizers"].append("foregroundDeletion")
        if metadata["generation"] != row["generation"]:
            metadata["generation"] = row["generation"]
            if row["generation"] in self._retold.edits:
                self._retold.edits[row["generation"]](self._workspace)
        self._replay.changed = self._replay.changed or metadata != before

    def _first_seen(self, row: Resource) -> Resource:
        content = {key: value for key, value in row["object"].items() if key != "metadata"}
        revision = next(self.recording.of("ControllerRevision", "ADDED"))
        metadata = {
            "name": row["name"],
            "namespace": self.recording.namespace,
            "uid": revision["object"]["metadata"]["ownerReferences"][0]["uid"],
            "generation": row["generation"],
            "annotations": {},
        }
        return {"apiVersion": names.API_VERSION, "kind": "Workspace", "metadata": metadata, **copy_of(content)}

    def _on_stateful_set(self, row: Resource) -> None:
        self._replay.changed = True
        if row["type"] == "DELETED":
            self._stateful_set, self._stateful_set_status, self._replicas = None, {}, None
            return
        self._stateful_set_status = row["status"]
        if self._stateful_set is not None:
            self._stateful_set["status"] = row["status"]
        replicas = dig(row, "object", "spec", "replicas")
        if replicas is None:
            return
        if self._stateful_set is not None and self._replicas not in (None, replicas):
            self._stateful_set["spec"]["replicas"] = replicas  # scaled by a user; KAITO never scales it
        self._replicas = replicas

    def _on_service(self, row: Resource) -> None:
        self._replay.changed = True
        if row["type"] == "DELETED":
            self._services.pop(row["name"], None)

    def _on_pod(self, row: Resource) -> None:
        if row["type"] == "DELETED":
            self.pods.pop(row["name"], None)
        else:
            self.pods[row["name"]] = {"metadata": {"name": row["name"]}, "status": row["status"]}


def with_recorded_times(writes: Sequence[WriteRecord], recorded: Sequence[WriteRecord]) -> list[WriteRecord]:
    """Our writes, with transition times replaced by the recorded ones if they differ by a few seconds at most."""
    adjusted: list[WriteRecord] = []
    for index, (kind, content) in enumerate(writes):
        theirs = recorded[index][1] if index < len(recorded) and recorded[index][0] == kind == "status" else None
        if theirs is not None:
            content = copy_of({"status": content})["status"]
            pairs = zip(dig(content, "conditions", default=[]), dig(theirs, "conditions", default=[]), strict=False)
            for ours, other in pairs:
                mine, wanted = parse_time(ours["lastTransitionTime"]), parse_time(other["lastTransitionTime"])
                if mine is not None and wanted is not None and abs((mine - wanted).total_seconds()) <= _TOLERANCE:
                    ours["lastTransitionTime"] = other["lastTransitionTime"]
        adjusted.append((kind, content))
    return adjusted


def ordinal(digits: str, known: list[str]) -> int:
    """The position of a hash in `known`; a new one is appended."""
    if digits not in known:
        known.append(digits)
    return known.index(digits)
