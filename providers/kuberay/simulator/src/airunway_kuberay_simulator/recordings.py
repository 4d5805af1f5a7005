"""Replays recordings of the real operator: runs the simulator's passes in virtual time on recorded inputs.

A recording is a file of JSON lines, each with one change of one object and the seconds since the start; its format is
described beside the recordings. Inputs are the changes by others: pods, answers of the dashboard, edits. Writes of
KubeRay are not inputs: a `RecordedWorld` takes them from the simulator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from airunway.resource import Resource, copy_of, dig, format_time, is_deleting, is_true, key_of, labels_of, parse_time
from airunway_kuberay_simulator import names, passes
from airunway_kuberay_simulator.clusters import refused_pod
from airunway_kuberay_simulator.facts import (
    Create,
    Delete,
    Event,
    Facts,
    Hold,
    LabelHead,
    Memory,
    Send,
    Serve,
    SetSpec,
    Tell,
    Write,
    WriteStatus,
)
from airunway_testing.simulators.passes import Outcome
from airunway_testing.simulators.replay import Input, Replay

_LATENCY = 0.004
"""Seconds of one write."""
_SLICES = 0.06
"""Seconds until the endpoints of a Service are known."""
_EARLY = 0.3
"""The dashboard answers a PUT this many seconds before its row, because the row is the operator's request."""


class Recording:
    """The rows of one recording; `manifest` is the RayService as created, `edits` change its spec by generation."""

    def __init__(
        self, path: Path, manifest: Resource, edits: Mapping[int, Callable[[Resource], None]] | None = None
    ) -> None:
        self.namespace = path.stem
        self.manifest = manifest
        self.edits = edits or {}
        self.rows: list[Resource] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.clusters = [row["name"] for row in self.of("RayCluster", event="ADDED")]

    def of(self, kind: str, *, event: str = "") -> Iterator[Resource]:
        """Rows about objects of that kind, optionally only those with that `event`."""
        return (row for row in self.rows if row["kind"] == kind and (not event or row.get("event") == event))

    def statuses(self, kind: str, name: str = "") -> list[tuple[float, Resource]]:
        """Each status of an object with the time of its write."""
        return [
            (row["t"], row["status"])
            for row in self.of(kind)
            if (not name or row["name"] == name) and row.get("status") and not row.get("statusUnchanged")
        ]

    def began(self) -> datetime:
        """The time of second 0, in whole seconds, derived from the first transition time."""
        for moment, status in self.statuses("RayService"):
            for condition in status.get("conditions", []):
                found = parse_time(condition["lastTransitionTime"])
                if found is not None:
                    return found - timedelta(seconds=moment)
        raise ValueError(f"recording {self.namespace}: no condition has a time")

    def told(self, *reasons: str) -> list[str]:
        """The reasons of the operator's events about the RayService, in order, if they are among `reasons`."""
        return [row["reason"] for row in self.of("Event") if row["reason"] in reasons]


@dataclass
class Written:
    """The simulator's writes, in order: statuses with their time, by object; objects; events."""

    service: list[tuple[float, Resource]] = field(default_factory=list)
    clusters: dict[str, list[tuple[float, Resource]]] = field(default_factory=dict)
    created: list[Resource] = field(default_factory=list)
    deleted: list[tuple[float, str]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    generations: list[int] = field(default_factory=list)


class RecordedWorld:
    """A `World` whose inputs are the rows of a recording; `run` plays it to the end."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.written = Written()
        self._replay = Replay(self._inputs())
        self._began = recording.began()
        self._memory = Memory()
        self._service: Resource | None = None
        self._clusters: dict[str, Resource] = {}
        self._services: dict[str, Resource] = {}
        self._pods: dict[str, Resource] = {}
        self._applications: dict[str, Resource] = {}
        self._refusal: dict[str, str] = {}
        self._silent = self._stopped = False
        self._known = 0.0
        self._made = 0

    async def run(self) -> None:
        await self._replay.run(self._reconcile)

    async def _reconcile(self) -> Outcome:
        if self._stopped:
            return Outcome()
        return await passes.reconcile(self)

    # -------------------------------------------------------------------------------------------------------- facts

    async def facts(self) -> Facts | None:
        if self._service is None:
            return None
        pods: dict[str, list[Resource]] = {name: [] for name in self._clusters}
        for pod in self._pods.values():
            pods.setdefault(labels_of(pod)[names.CLUSTER], []).append(copy_of(pod))
        return Facts(
            service=copy_of(self._service),
            now=format_time(self._began + timedelta(seconds=self._replay.clock)),
            clock=self._replay.clock,
            memory=self._memory,
            suffix=self._suffix,
            clusters={name: copy_of(cluster) for name, cluster in self._clusters.items()},
            pods=pods,
            services={name: copy_of(found) for name, found in self._services.items()},
            dashboards={name: self._serve(name) for name in self._clusters},
            endpoints=self._endpoints(pods),
            without_account=self._without_account(),
        )

    def _without_account(self) -> dict[str, str]:
        """The ServiceAccount that the head names, if the recording reports it as missing."""
        if not any(row["reason"] == "AutoscalerServiceAccountNotFound" for row in self.recording.of("Event")):
            return {}
        place = ("spec", "headGroupSpec", "template", "spec", "serviceAccountName")
        return {name: str(dig(cluster, *place)) for name, cluster in self._clusters.items()}

    def _suffix(self) -> str:
        """The suffix of the recorded name for a cluster; pods are matched by their group instead."""
        known = [name.rpartition("-")[2] for name in self.recording.clusters]
        used = {name.rpartition("-")[2] for name in (*self._clusters, *self._memory.due)}
        return next((suffix for suffix in known if suffix not in used), f"x{self._made:04d}")

    def _serve(self, cluster: str) -> Serve:
        if self._silent:
            return Serve()
        return Serve(applications=self._applications.get(cluster, {}), refusal=self._refusal.get(cluster, ""))

    def _endpoints(self, pods: Mapping[str, Sequence[Resource]]) -> int:
        serve = self._services.get(f"{self.recording.manifest['metadata']['name']}-serve-svc")
        if serve is None or self._replay.clock < self._known:
            return 0
        without_head = dig(self._service, "spec", "excludeHeadPodFromServeSvc", default=False)
        return sum(
            labels_of(pod).get(names.SERVE) == "true"
            and is_true(pod, "Ready")
            and not is_deleting(pod)
            and not (without_head and labels_of(pod).get(names.NODE_TYPE) == "head")
            for pod in pods.get(serve["spec"]["selector"][names.CLUSTER], ())
        )

    # ------------------------------------------------------------------------------------------------------- writes

    async def write(self, write: Write) -> bool:
        self._replay.advance(_LATENCY)
        if self._service is None:
            return False
        if write.event is not None:
            self.written.events.append(write.event)
        match write:
            case Hold(obj=obj):
                self._hold(copy_of(obj))
            case WriteStatus(status=status, cluster=""):
                self._service["status"] = copy_of(status)
                self.written.service.append((self._replay.clock, copy_of(status)))
            case WriteStatus(status=status, cluster=cluster):
                if cluster not in self._clusters:
                    return False
                self._clusters[cluster]["status"] = copy_of(status)
                self.written.clusters.setdefault(cluster, []).append((self._replay.clock, copy_of(status)))
            case Create(obj=obj):
                self._create(copy_of(obj))
            case Delete(kind=kind, name=name):
                self.written.deleted.append((self._replay.clock, f"{kind}/{name}"))
                {"RayCluster": self._clusters, "Service": self._services}[kind].pop(name)
            case SetSpec(obj=obj):
                kept = {"RayCluster": self._clusters, "Service": self._services}[obj["kind"]]
                kept[key_of(obj).name] = copy_of(obj)
            case LabelHead() | Send() | Tell():
                pass
        return True

    def _hold(self, obj: Resource) -> None:
        if self._service is None:
            return
        if obj["spec"] != self._service["spec"]:
            obj["metadata"]["generation"] += 1
        self.written.generations.append(obj["metadata"]["generation"])
        self._service = obj if obj["metadata"]["finalizers"] or not is_deleting(obj) else None

    def _create(self, obj: Resource) -> None:
        self._made += 1
        name = key_of(obj).name
        match obj["kind"]:
            case "RayCluster":
                obj["metadata"].update(uid=f"uid-{self._made}", generation=1)
                self._clusters[name] = obj
            case "Service":
                self._services[name] = obj
                self._known = self._replay.clock + _SLICES
            case "Pod" if (text := self._forbidden()) and labels_of(obj)[names.NODE_TYPE] == "worker":
                reason, told, event = refused_pod(obj, text)
                self._memory.failed[event.cluster] = (reason, told)
                self._memory.due[f"pods of {event.cluster}"] = float("inf")
                self.written.events.append(event)
                return
            case "Pod":
                obj["metadata"]["uid"] = f"uid-{self._made}"
                self._pods[name] = obj
        self.written.created.append(copy_of(obj))

    def _forbidden(self) -> str:
        """The error that prevented the creation of any worker; empty if there was none."""
        rows = (row for row in self.recording.of("Event") if row["reason"] == "FailedToCreateWorkerPod")
        return next((row["message"].partition(", ")[2] for row in rows), "")

    # ------------------------------------------------------------------------------------------------------- inputs

    def _changed(self) -> None:
        self._replay.changed = True

    def _inputs(self) -> list[Input]:
        apply: dict[str, Callable[[Resource], None]] = {
            "RayService": self._on_service,
            "RayCluster": self._on_cluster,
            "Pod": self._on_pod,
            "Dashboard": self._on_dashboard,
            "Action": self._on_action,
        }
        inputs: list[Input] = []
        for row in self.recording.rows:
            if row["kind"] in apply:
                early = _EARLY if row.get("what", "").startswith("PUT /") else 0.0
                inputs.append((max(0.0, row["t"] - early), partial(apply[row["kind"]], row)))
        return inputs

    def _on_service(self, row: Resource) -> None:
        if row.get("event") == "ADDED":
            self._service = copy_of(self.recording.manifest)
            self._service["metadata"].update(namespace=self.recording.namespace, generation=1, uid="uid-service")
            self._changed()
        if self._service is None or row.get("event") == "DELETED":
            return
        if row.get("deletionTimestamp") and not is_deleting(self._service):
            self._service["metadata"]["deletionTimestamp"] = format_time(self._began)
            self._changed()
        generation = row["generation"]
        if generation in self.recording.edits and generation > self._service["metadata"]["generation"]:
            self.recording.edits[generation](self._service)
            self._service["metadata"]["generation"] = generation
            self._changed()

    def _on_cluster(self, row: Resource) -> None:
        """Only a change by others is an input: the number of workers, patched by hand."""
        cluster = self._clusters.get(row["name"])
        if cluster is not None and "by hand" in row.get("what", ""):
            self._changed()

    def _on_pod(self, row: Resource) -> None:
        name = row["name"]
        self._changed()
        if row.get("event") == "DELETED":
            self._pods.pop(name, None)
            return
        if row.get("event") == "ADDED":
            self._adopt(row)
        pod = self._pods.get(name)
        if pod is None:
            return
        if row.get("labels"):
            pod["metadata"]["labels"] = dict(row["labels"])
        if row.get("deletionTimestamp"):
            pod["metadata"]["deletionTimestamp"] = format_time(self._began)
        if row.get("status"):
            pod["status"] = _pod_status(row["status"])

    def _adopt(self, row: Resource) -> None:
        """Give the recorded name to the pod that the simulator has created or is about to create."""
        wanted = (row["labels"][names.CLUSTER], row["labels"][names.GROUP_NAME])
        made = next(
            (
                key
                for key, pod in self._pods.items()
                if (labels_of(pod)[names.CLUSTER], labels_of(pod)[names.GROUP_NAME]) == wanted and "status" not in pod
            ),
            None,
        )
        pod = self._pods.pop(made) if made is not None else {"metadata": {}}
        pod["metadata"].update(name=row["name"], namespace=self.recording.namespace, uid=row["name"])
        pod["metadata"]["labels"] = dict(row["labels"])
        pod["status"] = {}
        self._pods[row["name"]] = pod

    def _on_dashboard(self, row: Resource) -> None:
        self._changed()
        cluster, what = row["name"], row["what"]
        if what.startswith("PUT"):
            _, _, code = what.partition("-> ")
            self._refusal[cluster] = "" if code == "200" else f"UpdateDeployments fail: {code}"
        elif "answer" in row:
            self._applications[cluster] = {app: _application(text) for app, text in row["answer"].items()}

    def _on_action(self, row: Resource) -> None:
        what = row["what"]
        if "connections are closed" in what or "answers 500" in what:
            self._silent = True
        elif what == "all back":
            self._silent = False
        elif what == "operator stopped":
            self._stopped = True
        elif what == "operator started":
            self._stopped, self._memory = False, Memory(due=self._memory.due)
        elif "patched by hand" in what:
            for cluster in self._clusters.values():
                cluster["spec"]["workerGroupSpecs"][0]["replicas"] = int(what.rpartition("replicas ")[2].split()[0])
        self._changed()


def _pod_status(condensed: Resource) -> Resource:
    """A pod's status from its recorded short form; messages of containers are not recorded."""
    conditions = []
    for type_, text in condensed.get("conditions", {}).items():
        verdict, _, reason = text.partition("/")
        conditions.append({"type": type_, "status": verdict, "reason": reason})
    return {
        "phase": condensed.get("phase"),
        "conditions": conditions,
        "initContainerStatuses": [_container(n, c) for n, c in condensed.get("init", {}).items()],
        "containerStatuses": [_container(n, c) for n, c in condensed.get("containers", {}).items()],
    }


def _container(name: str, condensed: Resource) -> Resource:
    state, _, reason = condensed["state"].partition(":")
    return {"name": name, "ready": condensed["ready"], "state": {state: {"reason": reason} if reason else {}}}


def _application(text: str) -> Resource:
    """The status for ``RUNNING|HEALTHY``: state of the application and of both its deployments, without messages."""
    state, _, parts = text.partition("|")
    return {"status": state, **({"serveDeploymentStatuses": {"all": {"status": parts}}} if parts else {})}
