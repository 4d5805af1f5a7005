"""The status that KAITO 0.12 writes into a Workspace, as a pure function of the observed state (bring-your-own nodes).

All messages, reasons and their order are as recorded from the real controller; numbers of facts refer to the
recordings' README.
"""

from __future__ import annotations

from dataclasses import dataclass

from airunway.resource import Resource, condition_of, copy_of, dig
from airunway_kaito_simulator.pods import Failure


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Result of the benchmark after a preset's start: the metrics, or the reason of the failure."""

    metrics: Resource | None = None
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state on which the status is based."""

    worker_nodes: tuple[str, ...] = ()
    nodes_ready: bool = False
    workload_ready: bool = False
    failure: Failure | None = None
    """Failure found in the pods."""
    benchmark: Benchmark | None = None
    """None if no benchmark runs."""
    error: str = ""
    """The reconcile error that is appended to every message (fact 7)."""


def with_target(workspace: Resource, count: int) -> Resource:
    """The status with the wanted number of nodes and no other change: the very first status write (fact 1)."""
    return {**_status_of(workspace), "targetNodeCount": count}


def deleting_status(workspace: Resource, *, now: str) -> Resource:
    """The status after the finalizer is removed while the object still exists (foreground deletion, fact 28)."""
    status = _status_of(workspace)
    Conditions(status, workspace, now=now).set(
        "WorkspaceDeleting", "True", "workspaceDeleted", "workspace is being deleted"
    )
    return status


def status_after(workspace: Resource, snapshot: Snapshot, *, now: str) -> Resource:
    """The whole status after a pass with this `snapshot`.

    `now` (RFC 3339) becomes the transition time of conditions whose status changes. The previous status matters: a
    Workspace that was ready once becomes `NotReady`, never `Pending` again (fact 2).
    """
    status = _status_of(workspace)
    conditions = Conditions(status, workspace, now=now, suffix=_suffix(snapshot.error))
    _set_nodes(status, conditions, snapshot)
    established = status.get("state") in ("Ready", "NotReady")
    if not (snapshot.nodes_ready and snapshot.workload_ready):
        failure = snapshot.failure if snapshot.nodes_ready else None
        generic = Failure(reason="WorkspaceInferenceStatusPending", message="Inference workload is not ready")
        shown = failure or generic
        conditions.set("InferenceReady", "False", shown.reason, shown.message)
        conditions.set(
            "WorkspaceSucceeded",
            "False",
            "workspacePending",
            "workspace is waiting for inference workload readiness",
        )
        status["state"] = "NotReady" if established else "Pending"
        return status
    conditions.set(
        "InferenceReady", "True", "WorkspaceInferenceStatusSuccess", "Inference has been deployed successfully"
    )
    benchmark = snapshot.benchmark
    if benchmark is not None and benchmark.metrics is None:
        conditions.set("WorkspaceSucceeded", "False", "BenchmarkFailed", benchmark.failure)
        conditions.set("BenchmarkCompleted", "False", "BenchmarkFailed", benchmark.failure)
        status["state"] = "NotReady"  # even if it was never ready (fact 20)
        return status
    conditions.set("WorkspaceSucceeded", "True", "workspaceSucceeded", "workspace succeeds")
    if benchmark is not None:
        conditions.set("BenchmarkCompleted", "True", "BenchmarkCompleted", "benchmark result has been recorded")
        status["performance"] = {"metrics": benchmark.metrics}
    status["state"] = "Ready"
    return status


def _set_nodes(status: Resource, conditions: Conditions, snapshot: Snapshot) -> None:
    status.pop("workerNodes", None)
    if snapshot.worker_nodes:
        status["workerNodes"] = list(snapshot.worker_nodes)
    if snapshot.nodes_ready:
        conditions.set("NodesReady", "True", "NodesReady", "Enough Nodes are ready")
        conditions.set("ResourceReady", "True", "workspaceResourceStatusSuccess", "workspace resource is ready")
    else:
        conditions.set("NodesReady", "False", "NodeNotReady", "Not enough Nodes are ready")
        conditions.set("ResourceReady", "False", "workspaceResourceStatusNotReady", "node status condition not ready")


def _status_of(workspace: Resource) -> Resource:
    return copy_of(workspace.get("status") or {})


def _suffix(error: str) -> str:
    return f" (last reconcile error: {error})" if error else ""


class Conditions:
    """Sets conditions in place: known types keep their position, new ones are appended."""

    def __init__(self, status: Resource, workspace: Resource, *, now: str, suffix: str = "") -> None:
        self._status = status
        self._generation = dig(workspace, "metadata", "generation", default=0)
        self._now = now
        self._suffix = suffix

    def set(self, type_: str, value: str, reason: str, message: str) -> None:
        condition = condition_of({"status": self._status}, type_)
        if condition is None:
            condition = {"type": type_}
            self._status.setdefault("conditions", []).append(condition)
        if condition.get("status") != value:
            condition["lastTransitionTime"] = self._now
        condition.update(
            status=value, reason=reason, message=message + self._suffix, observedGeneration=self._generation
        )
