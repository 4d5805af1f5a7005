"""Replays recordings of the real controller: runs the simulator's passes in virtual time on recorded inputs.

A recording is a file of JSON lines, each with one change of one object and the seconds since the start; its format is
described beside the recordings. Writes of the real controller are not inputs: a `RecordedWorld` takes them from the
simulator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from airunway.resource import Resource, copy_of, dig, key_of, labels_of
from airunway_testing.simulators.replay import Input, Replay
from airunway_vllm_simulator import names, passes

_LATENCY = 0.004
"""Seconds of one write."""
_SAID_WITHIN = 0.5
"""Maximum number of seconds between a write and its event."""
_NOW = "2026-01-01T00:00:00Z"
"""Placeholder: times of conditions are not recorded."""


class Recording:
    """The rows of one recording; `template` is the whole LeaderWorkerSet, while rows have only the changing part."""

    def __init__(self, path: Path, template: Resource) -> None:
        self.namespace = path.stem
        self.template = template
        self.rows: list[Resource] = [json.loads(line) for line in path.read_text().splitlines()]

    def of(self, kind: str, *, event: str = "") -> Iterator[Resource]:
        """Rows about objects of that kind, optionally only those with that `event`."""
        return (row for row in self.rows if row["kind"] == kind and (not event or row.get("event") == event))

    def revisions(self) -> list[str]:
        """The hashes of the templates, in order of first use."""
        return list(dict.fromkeys(labels_of({"metadata": row})[names.REVISION] for row in self._own_revisions()))

    def _own_revisions(self) -> Iterator[Resource]:
        return (row for row in self.of("ControllerRevision", event="ADDED") if names.REVISION in row.get("labels", {}))

    def told(self, *reasons: str) -> list[str]:
        """The messages of the real controller's events with these reasons."""
        rows = (row for row in self.of("Event") if row["from"] == "leaderworkerset" and row["reason"] in reasons)
        return [row["message"] for row in rows]

    def is_own_deletion(self, row: Resource) -> bool:
        """Whether the controller deleted the leader pod of this row, according to an event at that time."""
        said = f"deleted leader pod {row['name']} to recreate"
        return any(
            said in event["message"] and abs(event["t"] - row["t"]) < _SAID_WITHIN
            for event in self.of("Event")
            if event["reason"] == "RecreateGroup"
        )

    def statuses(self) -> list[tuple[float, Resource]]:
        """Each status of the set with the time of its write; empty when a set was created or deleted."""
        return [
            (row["t"], row.get("status") or {})
            for row in self.of("LeaderWorkerSet")
            if not row.get("statusUnchanged") and ("status" in row or row.get("event") == "DELETED")
        ]


@dataclass
class Written:
    """The simulator's writes, in order: statuses with their time, objects, messages of events by reason."""

    statuses: list[tuple[float, Resource]] = field(default_factory=list)
    created: list[Resource] = field(default_factory=list)
    scales: list[tuple[int, int]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


class RecordedWorld:
    """A `passes.World` whose inputs are the rows of a recording; `run` plays it to the end."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.written = Written()
        inputs: list[Input] = [(row["t"], self._of_row(row)) for row in recording.rows]
        self._replay = Replay(inputs)
        self._lws: Resource | None = None
        self._made = 0
        self._service: Resource | None = None
        self._revisions: list[Resource] = []
        self._sets: dict[str, Resource] = {}
        self._set_status: dict[str, Resource] = {}
        self._pods: dict[str, Resource] = {}
        self._hashes: list[str] = []

    async def run(self) -> None:
        await self._replay.run(lambda: passes.reconcile(self))

    async def facts(self) -> passes.Facts | None:
        if self._lws is None:
            return None
        return passes.Facts(
            lws=copy_of(self._lws),
            now=_NOW,
            service=self._service,
            revisions=list(self._revisions),
            stateful_sets=[copy_of(found) for found in self._sets.values()],
            pods=[copy_of(pod) for pod in self._pods.values()],
        )

    async def write(self, write: passes.Write) -> bool:
        self._replay.advance(_LATENCY)
        if self._lws is None:
            return False
        self._replay.changed = True
        if write.event is not None:
            self.written.events.append(write.event)
        match write:
            case passes.Create(obj=obj):
                return self._create(copy_of(obj))
            case passes.ApplyLeaders(obj=obj):
                self._apply(copy_of(obj))
            case passes.LabelPod(name=name, labels=labels):
                self._pods[name]["metadata"]["labels"].update(labels)
            case passes.DeleteLeader(name=name):
                self._pods[name]["metadata"]["deletionTimestamp"] = _NOW
                self.written.deleted.append(name)
            case passes.WriteStatus(status=status):
                self._lws["status"] = copy_of(status)
                self.written.statuses.append((self._replay.clock, copy_of(status)))
        return True

    def _uid(self) -> str:
        self._made += 1
        return f"uid-{self._made}"

    def _create(self, obj: Resource) -> bool:
        name = key_of(obj).name
        if obj["kind"] == "StatefulSet" and key_of(obj).name in self._sets:
            return False
        obj["metadata"]["uid"] = self._uid()
        self.written.created.append(copy_of(obj))
        match obj["kind"]:
            case "Service":
                self._service = obj
            case "ControllerRevision":
                self._revisions.append(obj)
                digits = labels_of(obj)[names.REVISION]
                if digits not in self._hashes:
                    self._hashes.append(digits)
            case "StatefulSet":
                self._sets[name] = {**obj, "status": self._set_status.get(name, {})}
        return True

    def _apply(self, obj: Resource) -> None:
        name = key_of(obj).name
        if name not in self._sets:
            self._create(obj)
        else:
            kept = {key: self._sets[name][key] for key in ("status",)}
            obj["metadata"]["uid"] = self._sets[name]["metadata"]["uid"]
            self._sets[name] = {**obj, **kept}
        spec = obj["spec"]
        scale = (spec["replicas"], spec["updateStrategy"]["rollingUpdate"]["partition"])
        if not self.written.scales or self.written.scales[-1] != scale:
            self.written.scales.append(scale)

    # ------------------------------------------------------------------------------------------------------- inputs

    def _of_row(self, row: Resource) -> Callable[[], None]:
        apply: dict[str, Callable[[Resource], None]] = {
            "LeaderWorkerSet": self._on_set,
            "StatefulSet": self._on_stateful_set,
            "Service": self._on_service,
            "Pod": self._on_pod,
        }
        happen = apply.get(row["kind"], self._on_own)
        return lambda: happen(row)

    def _on_own(self, _: Resource) -> None:
        """Only the controller writes these objects, or they are remarks of the script; they are no input."""

    def _on_set(self, row: Resource) -> None:
        if row.get("event") == "DELETED":
            self._lws, self._revisions = None, []
            self.written.statuses.append((self._replay.clock, {}))
            self._replay.changed = True
            return
        self._replay.changed = True
        if self._lws is not None and row.get("deletionTimestamp"):
            self._lws["metadata"]["deletionTimestamp"] = _NOW
        elif self._lws is not None and "spec" not in row and row["generation"] != self._lws["metadata"]["generation"]:
            # The recorded part of the spec is unchanged, so another field of a template was changed.
            self._lws["metadata"]["generation"] = row["generation"]
            other = self._lws["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]
            other["labels"] = {**other["labels"], "generation": str(row["generation"])}
        if "spec" not in row:
            return
        spec = row["spec"]
        if row.get("event") == "ADDED":
            self._lws = copy_of(self.recording.template)
            self._lws["metadata"]["uid"] = self._uid()
            self._lws["metadata"]["namespace"] = self.recording.namespace
            self.written.statuses.append((self._replay.clock, {}))
        if self._lws is None:
            return
        self._lws["metadata"].update(name=row["name"], generation=row["generation"])
        live = self._lws["spec"]
        live.update(replicas=spec["replicas"], startupPolicy=spec["startupPolicy"])
        live["rolloutStrategy"] = spec["rolloutStrategy"]
        group = live["leaderWorkerTemplate"]
        group.update(size=spec["size"], restartPolicy=spec["restartPolicy"])
        for template in ("leaderTemplate", "workerTemplate"):
            if template in group:
                group[template]["spec"]["containers"][0]["image"] = spec["workerImage"]

    def _on_stateful_set(self, row: Resource) -> None:
        name = row["name"]
        if row.get("event") == "DELETED":
            self._sets.pop(name, None)
            self._set_status.pop(name, None)
        elif row.get("status"):
            self._set_status[name] = row["status"]
            if name in self._sets:
                self._sets[name]["status"] = row["status"]
        else:
            return
        self._replay.changed = True

    def _on_service(self, row: Resource) -> None:
        if row.get("event") == "DELETED":
            self._service = None
        elif row.get("event") == "ADDED" and not row.get("ownerReferences"):
            self._service = {"metadata": {"name": row["name"]}}

    def _on_pod(self, row: Resource) -> None:
        name = row["name"]
        self._replay.changed = True
        if row.get("event") == "DELETED":
            self._pods.pop(name, None)
            return
        if row.get("event") == "ADDED":
            self._pods[name] = self._first_seen(row)
        pod = self._pods[name]
        if row.get("deletionTimestamp") and not self.recording.is_own_deletion(row):
            pod["metadata"]["deletionTimestamp"] = _NOW
        if row.get("status"):
            pod["status"] = _pod_status(row["status"])

    def _first_seen(self, row: Resource) -> Resource:
        labels = dict(row["labels"])
        recorded = labels[names.REVISION]
        labels[names.REVISION] = self._hashes[self.recording.revisions().index(recorded)]
        owner = row["ownerReferences"][0].partition("/")[2]
        uid = dig(self._sets.get(owner), "metadata", "uid", default="")
        metadata = {"name": row["name"], "namespace": self.recording.namespace, "uid": self._uid(), "labels": labels}
        return {"metadata": {**metadata, "ownerReferences": [{"uid": uid}]}, "status": {}}


def _pod_status(condensed: Resource) -> Resource:
    """A pod's status from its recorded short form: conditions, and ``running restarts=1`` for each container."""
    conditions = [
        {"type": type_, "status": text.partition("/")[0]} for type_, text in condensed.get("conditions", {}).items()
    ]
    containers = [
        {"name": name, "restartCount": int(text.partition("restarts=")[2].split(" ")[0] or 0)}
        for name, text in condensed.get("containers", {}).items()
    ]
    return {"phase": condensed.get("phase"), "conditions": conditions, "containerStatuses": containers}
