"""Recordings of LeaderWorkerSet and of plain Deployments, as what the provider's status is made of over time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.status_replay import StatusReplay

from airunway.plugins.contract import Observed
from airunway.resource import Resource, dig, format_time
from airunway.status.evidence import Evidence, event_facts, pod_facts

__all__ = ["Story", "read", "statuses"]

BEGIN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ROLE = "airunway.ai/component"
SERVING = ("server", "decode", "prefill")
_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


def read(path: Path) -> list[Resource]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def moment(seconds: float) -> str:
    return format_time(BEGIN + timedelta(seconds=seconds))


@dataclass(kw_only=True)
class Story:
    """One deployment of a recording: its objects and pods as they stand, and its status.

    `names` gives the name that the provider has for a recorded workload, the primary's first.
    """

    replayed: StatusReplay
    names: Mapping[str, str]
    objects: dict[str, Resource] = field(default_factory=dict)
    pods: dict[str, Resource] = field(default_factory=dict)
    events: list[Resource] = field(default_factory=list)

    def take(self, entry: Resource) -> bool:
        """Remember what an entry tells; False if it is none of this deployment's."""
        kind, name = entry["kind"], str(entry.get("name"))
        if kind in ("Deployment", "LeaderWorkerSet") and name in self.names:
            self._workload(entry, name)
        elif kind == "Pod" and any(name.startswith(f"{owner}-") for owner in self.names):
            self._pod(entry, name)
        elif kind == "Event":
            about, _, subject = name.partition("/")
            when = {"deprecatedFirstTimestamp": moment(entry["t"]), "deprecatedLastTimestamp": moment(entry["t"])}
            regarding = {"kind": about, "namespace": "ml", "name": self.names.get(subject, subject)}
            known = {"reason": entry["reason"], "note": entry["message"], "type": entry["type"]}
            self.events.append({"regarding": regarding, **known, **when})
            return bool(entry["type"] == "Warning" or entry["reason"] == "RecreateGroup")
        else:
            return False
        return True

    def _workload(self, entry: Resource, name: str) -> None:
        if entry.get("event") == "DELETED":
            self.objects.pop(name, None)
            return
        known = self.objects.setdefault(
            name,
            {
                "kind": entry["kind"],
                "metadata": {"name": self.names[name], "namespace": "ml", "creationTimestamp": moment(entry["t"])},
                "spec": {},
                "status": {},
            },
        )
        if "generation" in entry:
            known["metadata"]["generation"] = entry["generation"]
        if entry.get("deletionTimestamp"):
            known["metadata"]["deletionTimestamp"] = moment(entry["t"])
        known["spec"] = {**known["spec"], **(entry.get("spec") or {})}
        if "status" in entry:
            known["status"] = _dated(entry, known["status"])

    def _pod(self, entry: Resource, name: str) -> None:
        if entry.get("event") == "DELETED":
            self.pods.pop(name, None)
            return
        if entry.get("event") == "ADDED":
            self.pods[name] = {"metadata": {}, "spec": {}, "status": {}}
        known = self.pods.get(name)
        if known is None:
            return
        labels = entry.get("labels") or dig(known, "metadata", "labels", default={})
        owner = str((entry.get("ownerReferences") or [""])[0]).partition("/")
        owned = [{"kind": owner[0], "name": owner[2], "controller": True}] if owner[2] else None
        known["metadata"] = {
            "name": name,
            "namespace": "ml",
            "uid": f"{name}-{dig(known, 'metadata', 'creationTimestamp', default=moment(entry['t']))}",
            "creationTimestamp": dig(known, "metadata", "creationTimestamp", default=moment(entry["t"])),
            "labels": {**labels, ROLE: _role(labels)},
            "ownerReferences": owned or dig(known, "metadata", "ownerReferences", default=[]),
        }
        if entry.get("deletionTimestamp"):
            known["metadata"]["deletionTimestamp"] = moment(entry["t"])
        if entry.get("node"):
            known["spec"] = {"nodeName": entry["node"]}
        if "status" in entry:
            known["status"] = _pod_status(entry, known["status"])

    def look(self, seconds: float) -> Resource | None:
        """A pass: the status that follows; None while there is no primary object."""
        primary = self.objects.get(next(iter(self.names)))
        if primary is None:
            return None
        now = BEGIN + timedelta(seconds=seconds)
        self.replayed.deployment["metadata"]["generation"] = primary["metadata"].get("generation", 1)
        told = tuple(event_facts(event) for event in self.events if event["reason"] == "RecreateGroup")
        name = self.replayed.deployment["metadata"]["name"]
        pool = {"kind": "InferencePool", "metadata": {"name": name}}
        others = [pool] if f"{name}-epp" in self.names else [pool, _picker(name)]
        warnings = [event for event in self.events if event["type"] == "Warning"]
        status, _ = self.replayed.reconcile(
            Observed(primary=primary, objects=(*self.objects.values(), *others), events=told),
            Evidence(
                pods=tuple(pod_facts(pod, role_label=ROLE, serving_roles=SERVING) for pod in self.pods.values()),
                events=tuple(map(event_facts, warnings)),
            ),
            now=now,
        )
        return status


def _dated(entry: Resource, before: Resource) -> Resource:
    """The recorder left transition times out: a condition has the time at which its verdict was first seen."""
    status = entry["status"] or {}
    known = {condition["type"]: condition for condition in before.get("conditions", [])}
    conditions = []
    for condition in status.get("conditions") or []:
        old = known.get(condition["type"], {})
        since = old["lastTransitionTime"] if old.get("status") == condition["status"] else moment(entry["t"])
        conditions.append({**condition, "lastTransitionTime": since})
    return {**status, **({"conditions": conditions} if conditions else {})}


def _picker(name: str) -> Resource:
    """One that is ready, where a recording has none."""
    status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
    metadata = {"name": f"{name}-epp", "generation": 1}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"replicas": 1}, "status": status}


def _role(labels: Resource) -> str:
    if _INDEX in labels:
        return "server" if labels[_INDEX] == "0" else "server-worker"
    return str(labels.get("llm-d.ai/role") or "picker")


def _pod_status(entry: Resource, before: Resource) -> Resource:
    """The recorder left transition times out: a condition has the time at which its verdict was first seen."""
    status = entry["status"] or {}
    known = {condition["type"]: condition for condition in before.get("conditions", [])}
    conditions = []
    for type_, said in (status.get("conditions") or {}).items():
        verdict, _, reason = str(said).partition("/")
        old = known.get(type_, {})
        since = old["lastTransitionTime"] if old.get("status") == verdict else moment(entry["t"])
        conditions.append(
            {"type": type_, "status": verdict, "reason": reason, "message": reason, "lastTransitionTime": since}
        )
    return {
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "conditions": conditions,
        "containerStatuses": [_container(name, said) for name, said in (status.get("containers") or {}).items()],
    }


def _container(name: str, said: str) -> Resource:
    """``running ready restarts=1``, ``waiting:ErrImagePull``, ``terminated:Error(1)``, as the recorder condensed it."""
    head, *rest = said.split()
    state, _, reason = head.partition(":")
    restarts = next((int(word.partition("=")[2]) for word in rest if word.startswith("restarts=")), 0)
    last = {"terminated": {"exitCode": 1, "reason": "Error"}} if restarts else {}
    states = {
        "running": {"running": {}},
        "waiting": {"waiting": {"reason": reason}},
        "terminated": {"terminated": {"exitCode": 1, "reason": reason.partition("(")[0]}},
    }
    return {
        "name": name,
        "image": "registry.example/vllm:1",
        "ready": "ready" in rest,
        "restartCount": restarts,
        "state": states.get(state, {}),
        "lastState": last,
    }


def statuses(path: Path, story: Story) -> Iterator[Resource]:
    """Every status that the deployment had, up to the script's cleaning up."""
    for entry in read(path):
        if entry["kind"] == "Action" and entry["what"] == "end":
            return
        if story.take(entry) and (status := story.look(entry["t"])) is not None:
            yield status
