"""Replays recordings of InferenceSets: runs the simulator's passes in virtual time.

Status changes of the Workspaces are inputs. Their creation and deletion come from the simulator; only their names come
from the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from airunway.resource import Resource, copy_of, format_time, key_of
from airunway_kaito_simulator import names, sets
from airunway_kaito_simulator.passes import Annotate, Create, SetFinalizers, WriteBack, WriteStatus
from airunway_kaito_simulator.recordings import Recording, WriteRecord, ordinal
from airunway_testing.simulators.replay import Replay

_LATENCY = 0.01  # seconds of one write


class RecordedSetWorld:
    """Plays a recording of one InferenceSet, with `edits` of its spec by the generation that they created.

    Afterwards `writes` has the simulator's writes to the set, `made` and `deleted` the Workspaces.
    """

    def __init__(self, recording: Recording, edits: Mapping[int, Callable[[Resource], None]]) -> None:
        self.recording = recording
        self.writes: list[WriteRecord] = []
        self.made: list[Resource] = []
        self.deleted: list[str] = []
        self._edits = edits
        self._began = recording.began()
        self._names = [row["name"] for row in recording.of("Workspace", "ADDED")]
        self._replay = Replay([(row["t"], self._of_row(row)) for row in recording.rows])
        self._set: Resource | None = None
        self._workspaces: dict[str, Resource] = {}
        self._revisions: list[Resource] = []
        self._hashes: list[str] = []

    async def run(self) -> None:
        await self._replay.run(lambda: sets.reconcile_set(self))

    async def facts(self) -> sets.SetFacts | None:
        if self._set is None:
            return None
        return sets.SetFacts(
            inference_set=copy_of(self._set),
            now=format_time(self._began + timedelta(seconds=self._replay.clock)),
            workspaces=[copy_of(each) for each in self._workspaces.values()],
            revisions=list(self._revisions),
        )

    async def write(self, write: sets.SetWrite) -> Resource | None:
        self._replay.advance(_LATENCY)
        if self._set is None:
            return None
        metadata = self._set["metadata"]
        match write:
            case SetFinalizers(finalizers):
                metadata["finalizers"] = finalizers
                self.writes.append(("finalizer", names.SET_FINALIZER in finalizers))
                if metadata.get("deletionTimestamp") and not finalizers:
                    self._set = None
            case Annotate(annotations):
                metadata["annotations"].update(annotations)
                number = annotations[names.SET_REVISION]
                self.writes.append(("revision", (ordinal(annotations[names.SET_HASH], self._hashes), number)))
            case WriteBack(template):
                self._set["spec"]["template"]["inference"]["template"] = copy_of(template)
            case WriteStatus(status):
                self._set["status"] = copy_of(status)
                self.writes.append(("status", copy_of(status)))
            case Create(obj) if obj["kind"] == "Workspace":
                self.made.append(copy_of(obj))
                name = self._names[len(self.made) - 1]
                self._workspaces[name] = {**obj, "metadata": {**obj["metadata"], "name": name}}
                self._replay.changed = True
            case Create(obj):
                self._revisions.append(obj)
            case sets.DeleteWorkspace(workspace):
                self.deleted.append(key_of(workspace).name)
        return self._set

    def _of_row(self, row: Resource) -> Callable[[], None]:
        apply = {"Step": self._nothing, "InferenceSet": self._on_set, "Workspace": self._on_workspace}[row["kind"]]
        return lambda: apply(row)

    def _nothing(self, _: Resource) -> None:
        """Steps need no handling: their effects are visible in the objects."""

    def _on_set(self, row: Resource) -> None:
        if row["type"] == "ADDED":
            metadata = {
                "name": row["name"],
                "namespace": self.recording.namespace,
                "uid": "recorded",
                "generation": row["generation"],
                "annotations": dict(row.get("annotations") or {}),
            }
            spec = copy_of(row["object"]["spec"])
            self._set = {"apiVersion": names.API_VERSION, "kind": "InferenceSet", "metadata": metadata, "spec": spec}
            self._replay.changed = True
        if self._set is None or row["type"] != "MODIFIED":
            return
        metadata = self._set["metadata"]
        if row.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = row["deletionTimestamp"]
        if metadata["generation"] != row["generation"]:
            metadata["generation"] = row["generation"]
            if row["generation"] in self._edits:
                self._edits[row["generation"]](self._set["spec"])
            self._replay.changed = True

    def _on_workspace(self, row: Resource) -> None:
        if row["name"] not in self._workspaces or row["type"] == "ADDED":
            return
        if row["type"] == "DELETED":
            del self._workspaces[row["name"]]
        else:
            workspace = self._workspaces[row["name"]]
            workspace["status"] = row.get("status") or {}
            if row.get("deletionTimestamp"):
                workspace["metadata"]["deletionTimestamp"] = row["deletionTimestamp"]
        self._replay.changed = True
