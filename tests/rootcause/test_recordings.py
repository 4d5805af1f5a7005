"""The status over time that recorded runs of the real KAITO give: what a stranger would read, without flapping.

Everything that was recorded of Workspace, pods, StatefulSet and Warning events goes through status mapping,
diagnosis and roll-up, at the recorded times; what the timers ask for happens in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

import pytest
from tests.recorded import recorded_by
from tests.support.status_replay import StatusReplay

from airunway.plugins.contract import Observed
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, condition_of, dig, format_time, parse_time
from airunway.status.evidence import Evidence, event_facts, pod_facts

RECORDINGS = recorded_by("kaito-v0.12.0")


START = ["Deploying Starting", "Deploying Progressing"]
RUNNING = "Running DeploymentReady"
LOST = "Degraded PodsNotReady"
LAG = "Degraded UpstreamFailed"
"""The pods are ready again and KAITO has not noticed yet."""

EXPECTED: dict[tuple[str, str], list[str]] = {
    ("a1-preset-byo", "llama-8b"): [*START, RUNNING, LOST, LAG, RUNNING],
    ("a2-preset-benchmark", "llama-8b"): [*START, RUNNING, LOST, RUNNING],
    ("b1-template", "llama-8b"): [*START, RUNNING],
    ("b2-template-count2", "llama-8b"): [*START, RUNNING],
    ("c1-cpu-llamacpp", "gemma-cpu"): [*START, RUNNING],
    ("d1-no-node", "llama-8b"): [
        START[0],
        "Deploying PendingResources",
        "Deploying InsufficientCapacity",
        START[1],
        RUNNING,
        "Deploying PendingResources",
    ],
    ("d2-unschedulable", "llama-8b"): [*START, "Deploying InsufficientCapacity"],
    ("e1-imagepull", "llama-8b"): [*START, "Failed ImageNotFound", START[1], RUNNING],
    ("e2-crashloop-start", "llama-8b"): [*START, "Failed CrashLoopBackOff", START[1], RUNNING],
    ("e3-crashloop-after-ready", "llama-8b"): [
        *START,
        RUNNING,
        "Degraded CrashLoopBackOff",
        LOST,
        START[1],
        RUNNING,
    ],
    ("e4-oom-after-ready", "llama-8b"): [*START, RUNNING, "Degraded PodOOMKilled", START[1], RUNNING, LOST],
    ("e5-evicted", "llama-8b"): [*START, RUNNING, "Degraded PodEvicted", LOST, LAG, RUNNING],
    # At the end somebody scales the StatefulSet to two by hand: a pod beyond the demand contradicts nothing, until
    # KAITO itself takes its Workspace for not ready.
    ("f1-edits", "tm"): [*START, RUNNING, START[1], RUNNING, LOST, LAG, RUNNING, START[1], RUNNING, LAG, RUNNING],
    ("i1-config-adapters", "llama-8b"): [*START, RUNNING, LOST],
    ("j1-secret-missing", "llama-8b"): [START[0], "Degraded AuthFailed"],
    ("j2-secret-missing-then-created", "llama-8b"): [START[0], "Degraded AuthFailed", START[1], RUNNING],
    ("l1-node-notready", "llama-8b"): [*START, RUNNING, LOST, LAG, RUNNING],
    ("n1-nap", "llama-8b"): [
        START[0],
        "Deploying PendingResources",
        "Deploying QuotaExceeded",
        "Deploying PendingResources",
        START[1],
        RUNNING,
        START[1],
    ],
    ("p1-preset-partition", "llama-8b"): [*START, RUNNING],
}


@dataclass(kw_only=True)
class Replay:
    """One Workspace of a recording, and the deployment that it belongs to."""

    status_replay: StatusReplay
    name: str
    begin: datetime
    primary: Resource = field(default_factory=dict)
    applied: datetime | None = None
    pods: dict[str, Resource] = field(default_factory=dict)
    workload: Resource = field(default_factory=dict)
    events: list[Resource] = field(default_factory=list)

    @property
    def deployment(self) -> Resource:
        return self.status_replay.deployment

    def at(self, seconds: float) -> str:
        return format_time(self.begin + timedelta(seconds=seconds))

    def take(self, entry: Resource) -> bool:
        """Remember what an entry tells; False if it is none of ours."""
        kind, name = entry["kind"], str(entry["name"])
        gone = entry.get("type") == "DELETED"
        metadata = {"name": name, "namespace": "ml", "creationTimestamp": self.at(entry["t"])}
        if kind == "Workspace" and name == self.name:
            if entry.get("generation") != dig(self.primary, "metadata", "generation"):
                self.applied = self.begin + timedelta(seconds=entry["t"])
                self.deployment["metadata"]["generation"] = entry["generation"]
            made = dig(self.primary, "metadata", "creationTimestamp", default=metadata["creationTimestamp"])
            known = {key: entry[key] for key in ("generation", "deletionTimestamp") if entry.get(key)}
            status = entry.get("status") or {}
            metadata["creationTimestamp"] = made
            self.primary = {} if gone else {"kind": kind, "metadata": metadata | known, "status": status}
        elif kind == "StatefulSet" and name == self.name:
            self.workload = {} if gone else entry
        elif kind == "Pod" and name.rpartition("-")[0] == self.name:
            before = self.pods.pop(name, None)
            if not gone:
                self.pods[name] = self._pod(entry, metadata, before)
        elif kind == "Event" and entry.get("eventType") == "Warning":
            about, _, subject = name.partition("/")
            told = {"deprecatedFirstTimestamp": self.at(entry["t"]), "deprecatedLastTimestamp": self.at(entry["t"])}
            regarding = {"kind": about, "namespace": "ml", "name": subject}
            self.events.append({"regarding": regarding, "reason": entry["reason"], "note": entry["message"], **told})
        else:
            return False
        return True

    def _pod(self, entry: Resource, metadata: Resource, before: Resource | None) -> Resource:
        known = before or {"spec": dig(entry, "object", "spec", default={})}
        revision = dig(entry, "object", "metadata", "labels", default=dig(before, "metadata", "labels", default={}))
        found = {
            "ownerReferences": [{"kind": "StatefulSet", "name": self.name, "controller": True}],
            "labels": revision,
            "creationTimestamp": dig(before, "metadata", "creationTimestamp", default=metadata["creationTimestamp"]),
        }
        if entry.get("deletionTimestamp"):
            found["deletionTimestamp"] = entry["deletionTimestamp"]
        placed = condition_of(entry, "PodScheduled") or {}
        node = {"nodeName": "node"} if placed.get("status") == "True" else {}
        return {"metadata": metadata | found, "spec": known["spec"] | node, "status": entry["status"]}

    def look(self, seconds: float) -> tuple[Resource, float | None]:
        """A pass: the status that follows, and when time alone asks for the next."""
        observed = Observed(primary=self.primary, objects=(self.primary,), applied=self.applied)
        evidence = Evidence(pods=tuple(map(pod_facts, self.pods.values())), events=tuple(map(event_facts, self.events)))
        now = self.begin + timedelta(seconds=seconds)
        newest = self._newest_revision() if self.workload else None
        status, wake = self.status_replay.reconcile(observed, evidence, now=now, newest_revision=newest)
        return status, None if wake is None else seconds + wake + 0.001

    def _newest_revision(self) -> str:
        """Of the StatefulSet; unknown while its controller has not looked at its newest spec."""
        seen = dig(self.workload, "status", "observedGeneration", default=0) >= self.workload.get("generation", 0)
        return str(dig(self.workload, "status", "updateRevision")) if seen else "not yet known"


def statuses(path: Path, name: str, host: ProviderHost) -> Iterator[Resource]:
    """Every status that the deployment had, up to the script's cleaning up."""
    entries = read(path)
    deployment = {"metadata": {"name": name, "namespace": "ml"}, "spec": {"model": {"id": "o/m"}}, "status": {}}
    replayed = Replay(status_replay=StatusReplay(host=host, deployment=deployment), name=name, begin=begin_of(entries))
    wake: float | None = None
    for entry in entries:
        if entry["kind"] == "Step":
            if entry["name"] == "end":
                return
            continue
        while wake is not None and wake <= entry["t"] and replayed.primary:
            status, wake = replayed.look(wake)
            yield status
        if replayed.take(entry) and replayed.primary:
            status, wake = replayed.look(entry["t"])
            yield status


def read(path: Path) -> list[Resource]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def begin_of(entries: list[Resource]) -> datetime:
    """The moment that the recording's seconds count from: by the first transition that was seen as it happened."""
    for entry in entries:
        if entry["kind"] in ("Pod", "Workspace"):
            for condition in dig(entry, "status", "conditions", default=[]):
                moment = parse_time(condition.get("lastTransitionTime"))
                if moment is not None:
                    return moment - timedelta(seconds=entry["t"])
    return datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: "/".join(case))
def test_what_a_stranger_reads(case: tuple[str, str], kaito: ProviderHost) -> None:
    recording, name = case
    told = [f"{s['phase']} {s['reason']}" for s in statuses(RECORDINGS / f"{recording}.jsonl", name, kaito)]
    assert [step for step, _ in groupby(told)] == EXPECTED[case]


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_status_is_whole_and_none_contradicts_itself(path: Path, kaito: ProviderHost) -> None:
    names = {entry["name"] for entry in read(path) if entry["kind"] == "Workspace"}
    ran = False
    for name in sorted(names):
        served = False
        for status in statuses(path, name, kaito):
            ran = True
            assert status["phase"] in ("Deploying", "Running", "Degraded", "Failed"), "it exists: not Pending"
            assert status["reason"]
            assert 0 < len(status["message"]) <= 1024
            ready = condition_of({"status": status}, "Ready") or {}
            assert (ready["status"] == "True") == (status["phase"] == "Running")
            assert ready["message"] == status["message"]
            if status["phase"] == "Running":
                assert "rootCause" not in status
            served = served or status["phase"] == "Running"
            assert not (served and status["phase"] == "Failed"), "what has served degrades"
    assert ran == bool(names)
