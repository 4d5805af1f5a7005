"""Derives the status of a graph from the state of its components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airunway.resource import Resource, condition_of, dig


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The state of one component."""

    component: str
    kind: str
    made: tuple[str, ...]
    """Names of the objects that run it."""
    wanted: int
    replicas: int = 0
    updated: int = 0
    ready: int = 0
    rolls: bool = False
    """An older generation of it still serves."""
    waits: bool = False
    """Some of its pods have no node."""

    @property
    def well(self) -> bool:
        return self.ready == self.wanted and self.updated >= self.wanted and not self.rolls


def status_after(graph: Resource, counts: Sequence[Counts], *, grove: bool, now: str) -> Resource:
    """The whole status; equal to the present one if nothing changes. `now` is RFC 3339."""
    bad = [count for count in counts if not count.well]
    if not bad:
        return _with(graph, counts, "successful", "all_resources_are_ready", "All resources are ready", now=now)
    if any(count.rolls for count in bad):
        text = f"Rolling update in progress: {', '.join(count.component for count in bad if count.rolls)}"
        return _with(graph, counts, "pending", "rolling_update_in_progress", text, now=now, rolls=True)
    said = "; ".join(f"{name}: {_why(count, grove=grove)}" for count in bad for name in count.made[:1])
    reason = "some_resources_are_not_ready"
    if grove:
        reason = "insufficient_capacity" if any(count.waits for count in bad) else "pods_not_ready"
    return _with(graph, counts, "pending", reason, f"Resources not ready: {said}", now=now)


def failed_status(graph: Resource, reason: str, message: str, *, now: str) -> Resource:
    """The status after a reconcile error: counts and generation stay as they were."""
    status = dict(graph.get("status") or {})
    return {**status, "state": "failed", "conditions": [_ready(graph, "False", reason, message, now=now)]}


def _why(count: Counts, *, grove: bool) -> str:
    if grove:
        return (
            f"waiting for capacity: scheduled={count.ready}/{count.wanted}"
            if count.waits
            else f"scheduled but ready={count.ready}/{count.wanted}"
        )
    return f"desired={count.wanted}, ready={count.ready}"


def _with(
    graph: Resource,
    counts: Sequence[Counts],
    state: str,
    reason: str,
    message: str,
    *,
    now: str,
    rolls: bool = False,
) -> Resource:
    listed = "components" in (dig(graph, "spec") or {})
    status: Resource = {
        "state": state,
        "observedGeneration": int(dig(graph, "metadata", "generation", default=1)),
        "conditions": [_ready(graph, "True" if state == "successful" else "False", reason, message, now=now)],
        "components" if listed else "services": {count.component: _component(count, listed) for count in counts},
    }
    before = dig(graph, "status", "rollingUpdate")
    if rolls:
        status["rollingUpdate"] = before if dig(before, "phase") == "InProgress" else _rolling(now)
    elif before:
        done = dig(before, "phase") == "Completed"
        status["rollingUpdate"] = before if done else {**before, "phase": "Completed", "endTime": now}
    return status


def _rolling(now: str) -> Resource:
    return {"phase": "InProgress", "startTime": now}


def _component(count: Counts, listed: bool) -> Resource:
    ready = "availableReplicas" if count.kind == "PodCliqueScalingGroup" else "readyReplicas"
    one = {} if listed else {"componentName": count.made[0] if count.made else ""}
    return {
        "componentKind": count.kind,
        "componentNames": list(count.made),
        **one,
        "replicas": count.replicas,
        "updatedReplicas": count.updated,
        ready: count.ready,
    }


def _ready(graph: Resource, status: str, reason: str, message: str, *, now: str) -> Resource:
    before = condition_of(graph, "Ready") or {}
    since = before.get("lastTransitionTime", now) if before.get("status") == status else now
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
