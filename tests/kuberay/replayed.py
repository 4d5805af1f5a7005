"""Recorded runs of the real KubeRay, told as a ModelDeployment's status over time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.status_replay import StatusReplay

from airunway.plugins.contract import Observed
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig, format_time, parse_time
from airunway.status.evidence import Evidence, event_facts, pod_facts

__all__ = ["SPECS", "read", "statuses"]

IMAGE = "rayproject/ray-llm:2.56.0-py312-cu130"
# The recordings have a container's reason and not its text: these are what a kubelet writes.
TEXTS = {
    "ErrImagePull": f'failed to pull and unpack image "{IMAGE}": {IMAGE}: not found',
    "ImagePullBackOff": f'Back-off pulling image "{IMAGE}"',
    "CrashLoopBackOff": "back-off 10s restarting failed container",
}
ONE: Resource = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "resources": {"gpu": {"count": 1}}}
STOPPED: Resource = {**ONE, "scaling": {"replicas": 0}}
SPLIT: Resource = {
    "model": {"id": "meta-llama/Llama-3.1-70B-Instruct"},
    "serving": {"mode": "disaggregated"},
    "scaling": {"prefill": {"replicas": 2, "gpu": {"count": 4}}, "decode": {"replicas": 4, "gpu": {"count": 2}}},
}
SPECS: dict[str, list[Resource]] = {
    "a-happy-pd": [SPLIT],
    "h-suspend": [ONE, STOPPED, ONE],
    "h-created-suspended": [STOPPED, ONE],
}
"""The deployment's spec by its generation; the last one stays. Suspending is how zero replicas are asked for."""


def read(path: Path) -> list[Resource]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@dataclass(kw_only=True)
class Replay:
    """One RayService of a recording, and the deployment that it belongs to."""

    host: ProviderHost
    specs: list[Resource]
    begin: datetime
    refusals: list[tuple[str, str]]
    replayed: StatusReplay = field(init=False)
    service: Resource = field(default_factory=dict)
    clusters: dict[str, Resource] = field(default_factory=dict)
    pods: dict[str, Resource] = field(default_factory=dict)
    events: list[Resource] = field(default_factory=list)
    applied: datetime | None = None

    def __post_init__(self) -> None:
        metadata = {"name": "llama", "namespace": "ml", "generation": 1}
        self.replayed = StatusReplay(
            host=self.host, deployment={"metadata": metadata, "spec": self.specs[0], "status": {}}
        )

    def at(self, seconds: float) -> datetime:
        return self.begin + timedelta(seconds=seconds)

    def take(self, row: Resource) -> bool:
        """Remember what a row tells; False if it is nothing that the provider sees."""
        take: Any = getattr(self, f"_{row['kind'].lower()}", None)
        return bool(take(row)) if take is not None else False

    def _action(self, row: Resource) -> bool:
        what = row["what"]
        if what.startswith("server-side apply") and "HTTP 409" in what:
            return False
        if what.startswith(("create:", "update:", "server-side apply", "patch {")) and "a label added" not in what:
            self.applied = self.at(row["t"])
            if not what.startswith("create:") and self.service:
                metadata = self.replayed.deployment["metadata"]
                metadata["generation"] += 1
                self.replayed.deployment["spec"] = self.specs[min(metadata["generation"], len(self.specs)) - 1]
        return False

    def _rayservice(self, row: Resource) -> bool:
        if row.get("event") == "DELETED":
            self.service = {}
            return True
        made = format_time(self.at(row["t"]))
        metadata = {
            "name": row["name"],
            "namespace": "ml",
            "creationTimestamp": dig(self.service, "metadata", "creationTimestamp", default=made),
            "generation": row["generation"],
            **({"deletionTimestamp": made} if row.get("deletionTimestamp") else {}),
        }
        status = row["status"] if row.get("status") else self.service.get("status", {})
        self.service = {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": metadata, "status": status}
        return True

    def _raycluster(self, row: Resource) -> bool:
        if row.get("event") == "DELETED":
            self.clusters.pop(row["name"], None)
        else:
            known = self.clusters.get(row["name"], {})
            status = row.get("status") or known.get("status", {})
            self.clusters[row["name"]] = {"kind": "RayCluster", "metadata": {"name": row["name"]}, "status": status}
        return True

    def _pod(self, row: Resource) -> bool:
        name = row["name"]
        if row.get("event") == "DELETED":
            self.pods.pop(name, None)
            return True
        known = self.pods.get(name, {"metadata": {"creationTimestamp": format_time(self.at(row["t"]))}, "status": {}})
        labels = row.get("labels") or known["metadata"]["labels"]
        owner = {"kind": "RayCluster", "name": labels["ray.io/cluster"], "controller": True}
        metadata = {**known["metadata"], "name": name, "namespace": "ml", "labels": labels, "ownerReferences": [owner]}
        if row.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = format_time(self.at(row["t"]))
        status = self._pod_status(row) if row.get("status") else known["status"]
        placed = any(c["type"] == "PodScheduled" and c["status"] == "True" for c in status.get("conditions", []))
        spec = {"nodeName": "gpu"} if placed else {}
        self.pods[name] = {"metadata": metadata, "spec": spec, "status": status}
        return True

    def _pod_status(self, row: Resource) -> Resource:
        condensed, moment = row["status"], format_time(self.at(row["t"]))
        told = [text for name, text in self.refusals if name == f"Pod/{row['name']}"]
        conditions = []
        for type_, text in condensed.get("conditions", {}).items():
            verdict, _, reason = text.partition("/")
            message = told[-1] if type_ == "PodScheduled" and told else ""
            made = {"type": type_, "status": verdict, "reason": reason, "message": message}
            conditions.append({**made, "lastTransitionTime": moment})
        return {
            "phase": condensed["phase"],
            "conditions": conditions,
            "initContainerStatuses": [self._container(n, c, moment) for n, c in condensed.get("init", {}).items()],
            "containerStatuses": [self._container(n, c, moment) for n, c in condensed.get("containers", {}).items()],
        }

    def _container(self, name: str, condensed: Resource, moment: str) -> Resource:
        state, _, reason = condensed["state"].partition(":")
        shown: Resource = {"reason": reason, "message": TEXTS.get(reason, "")} if reason else {"startedAt": moment}
        if state == "terminated":
            shown = {**shown, "exitCode": 0 if reason == "Completed" else 1, "finishedAt": moment}
        died = condensed["restarts"] or reason == "CrashLoopBackOff"
        last = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": moment}} if died else {}
        return {
            "name": name,
            "image": IMAGE,
            "ready": condensed["ready"],
            "restartCount": condensed["restarts"],
            "state": {state: shown},
            "lastState": last,
        }

    def _event(self, row: Resource) -> bool:
        kind, _, name = row["name"].partition("/")
        moment = format_time(self.at(row["t"]))
        self.events.append(
            {
                "regarding": {"kind": kind, "namespace": "ml", "name": name},
                "reason": row["reason"],
                "note": row["message"].removeprefix("default/").replace(f"{name}: ", f"ml/{name}: "),
                "deprecatedFirstTimestamp": moment,
                "deprecatedLastTimestamp": moment,
            }
        )
        return True

    def look(self, seconds: float) -> tuple[Resource, float | None]:
        """A pass: the status that follows, and when time alone asks for the next."""
        manifest = self.host.manifest
        facts = [event_facts(event) for event in self.events]
        wanted = tuple(fact for fact in facts if fact.reason in manifest.events.get(fact.kind, ()))
        objects = (self.service, *self.clusters.values())
        observed = Observed(primary=self.service, objects=objects, events=wanted, applied=self.applied)
        evidence = Evidence(
            pods=tuple(
                pod_facts(pod, role_label=manifest.role_label, serving_roles=manifest.serving_roles)
                for pod in self.pods.values()
            ),
            events=tuple(fact for fact in facts if fact.kind == "Pod"),
        )
        status, wake = self.replayed.reconcile(observed, evidence, now=self.at(seconds))
        return status, None if wake is None else seconds + wake + 0.001


def statuses(path: Path, host: ProviderHost) -> Iterator[tuple[float, Resource]]:
    """When the deployment had which status, up to the script's cleaning up; what timers ask for happens in between."""
    rows = read(path)
    # The scheduler writes the same words into the pod, of which the recordings have none.
    refusals = [(row["name"], row["message"]) for row in rows if row.get("reason") == "FailedScheduling"]
    replay = Replay(host=host, specs=SPECS.get(path.stem, [ONE]), begin=_begin_of(rows), refusals=refusals)
    wake: float | None = None
    # Rows of one moment may stand before the action that caused them.
    for row in sorted(rows, key=lambda row: row["t"] - (0.02 if row["kind"] == "Action" else 0.0)):
        if row["kind"] == "Action" and row["what"].startswith(("delete RayService", "owner deleted")):
            return
        while wake is not None and wake <= row["t"] and replay.service:
            moment = wake
            status, wake = replay.look(moment)
            yield moment, status
        if replay.take(row) and replay.service:
            status, wake = replay.look(row["t"])
            yield row["t"], status


def _begin_of(rows: list[Resource]) -> datetime:
    """The moment that the recording's seconds count from: by the first transition that was seen as it happened."""
    for row in rows:
        for condition in dig(row, "status", "conditions", default=[]) if row["kind"] == "RayService" else []:
            moment = parse_time(condition["lastTransitionTime"])
            if moment is not None:
                return moment - timedelta(seconds=row["t"])
    return datetime(2026, 11, 21, tzinfo=UTC)
