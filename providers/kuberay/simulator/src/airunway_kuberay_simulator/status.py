"""Derives the statuses of RayClusters and RayServices from facts, as KubeRay writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airunway.resource import Resource, condition_of, copy_of, dig, is_true, key_of, labels_of
from airunway_kuberay_simulator import names

_EMPTY = {"desiredCPU": "0", "desiredGPU": "0", "desiredMemory": "0", "desiredTPU": "0", "head": {}}
_PROVISIONING = "RayCluster Pods are being provisioned for first time"
_PORTS = {"client": "10001", "dashboard": "8265", "gcs": "6379", "metrics": "8080", "serve": "8000"}


def set_condition(
    status: Resource, type_: str, verdict: str, reason: str, message: str, *, now: str, generation: int | None = None
) -> None:
    """Add or change a condition; its transition time changes only with its status."""
    conditions: list[Resource] = status.setdefault("conditions", [])
    held = next((c for c in conditions if c["type"] == type_), None)
    if held is None:
        held = {"type": type_, "status": "", "lastTransitionTime": now}
        conditions.append(held)
    if held["status"] != verdict:
        held["lastTransitionTime"] = now
    held.update(status=verdict, reason=reason, message=message)
    if generation is not None:
        held["observedGeneration"] = generation


# --------------------------------------------------------------------------------------------------------- RayCluster


def cluster_status(
    cluster: Resource, pods: Sequence[Resource], *, failure: tuple[str, str] | None, now: str
) -> Resource:
    """The whole status of a RayCluster; equal to the present one if nothing changes.

    `failure` has reason and message of a pod that could not be created. Counts of zero are absent.
    """
    before = cluster.get("status") or {}
    status: Resource = {"conditions": copy_of({"c": before.get("conditions") or []})["c"]}
    if failure is not None:
        set_condition(status, "ReplicaFailure", "True", *failure, now=now)
    else:
        status["conditions"] = [c for c in status["conditions"] if c["type"] != "ReplicaFailure"]
    head = next((pod for pod in pods if labels_of(pod).get(names.NODE_TYPE) == "head"), None)
    set_condition(status, "HeadPodReady", *_head(head), now=now)
    workers = [pod for pod in pods if labels_of(pod).get(names.NODE_TYPE) == "worker"]
    wanted = sum(int(group.get("replicas") or 0) for group in dig(cluster, "spec", "workerGroupSpecs") or [])
    ready = sum(is_true(pod, "Ready") for pod in workers)
    # `RayClusterProvisioned` and `state` never change back (fact 7); pods that cannot be created only affect `state`
    # (e-quota).
    if is_true({"status": before}, "RayClusterProvisioned") or (pods and all(is_true(pod, "Ready") for pod in pods)):
        words = ("True", "AllPodRunningAndReadyFirstTime", "All Ray Pods are ready for the first time")
    else:
        words = ("False", "RayClusterPodsProvisioning", _PROVISIONING)
    if before.get("state") or (head is not None and is_true(head, "Ready") and ready >= wanted):
        status["state"] = "ready"
        status["stateTransitionTimes"] = before.get("stateTransitionTimes") or {"ready": now}
    set_condition(status, "RayClusterProvisioned", *words, now=now)
    for state in ("Suspended", "Suspending"):
        set_condition(status, f"RayCluster{state}", "False", f"RayCluster{state}", "", now=now)
    counts = {
        "desiredWorkerReplicas": wanted,
        "availableWorkerReplicas": sum(dig(pod, "status", "phase") == "Running" for pod in workers),
        "readyWorkerReplicas": ready,
    }
    status.update({field: count for field, count in counts.items() if count})
    name = key_of(cluster).name
    status["head"] = {"serviceName": f"{name}-head-svc", **({"podName": key_of(head).name} if head else {})}
    status["endpoints"] = dict(_PORTS)
    status["observedGeneration"] = dig(cluster, "metadata", "generation", default=1)
    status["lastUpdateTime"] = before.get("lastUpdateTime", now)
    if status != before:
        status["lastUpdateTime"] = now
    return status


def _head(pod: Resource | None) -> tuple[str, str, str]:
    """Status, reason and message of ``HeadPodReady``, with a container's own reason if it has one (fact 9)."""
    if pod is None or (ready := condition_of(pod, "Ready")) is None:
        return "False", "Unknown", ""
    if ready["status"] == "True":
        return "True", "HeadPodRunningAndReady", ""
    containers = dig(pod, "status", "containerStatuses") or []
    unready = [c for c in containers if not c.get("ready")]
    words = f"containers with unready status: [{' '.join(c['name'] for c in unready)}]"
    for container in unready:
        state = dig(container, "state", "waiting") or dig(container, "state", "terminated")
        if state:
            return "False", state["reason"], f"{words}; {container['name']}: {state.get('message') or ''}"
    return "False", ready.get("reason") or "ContainersNotReady", words


# --------------------------------------------------------------------------------------------------------- RayService


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two clusters of a RayService."""

    name: str = ""
    """Empty: there is no such cluster."""
    applications: Mapping[str, Resource] | None = None
    cluster: Resource | None = None
    """The RayCluster's own status."""

    def written(self) -> Resource:
        made: Resource = {"rayClusterStatus": copy_of(self.cluster or _EMPTY)}
        if self.name:
            made["rayClusterName"] = self.name
        if self.applications:
            made["applicationStatuses"] = copy_of(dict(self.applications))
        return made


def initial(status: Resource, *, generation: int, now: str) -> None:
    """Add the first conditions if there are none (fact 2)."""
    if condition_of({"status": status}, "Ready") is None:
        for type_ in ("Ready", "UpgradeInProgress"):
            words = ("False", "Initializing", "RayService is initializing")
            set_condition(status, type_, *words, now=now, generation=generation)


def service_status(service: Resource, *, active: Side, pending: Side, endpoints: int, now: str) -> Resource:
    """The whole status of a RayService; the present one if no field changed for which KubeRay writes (fact 8)."""
    before = service.get("status") or {}
    generation = int(dig(service, "metadata", "generation", default=1))
    status = copy_of(before)
    initial(status, generation=generation, now=now)
    _upgrade(status, active=active.name, pending=pending.name, generation=generation, now=now)
    ready = condition_of({"status": status}, "Ready") or {}
    if endpoints:
        words = ("True", "NonZeroServeEndpoints", "Number of serve endpoints is greater than 0")
        set_condition(status, "Ready", *words, now=now, generation=generation)
    elif ready["status"] == "True":
        words = ("False", "ZeroServeEndpoints", "Number of serve endpoints dropped to 0")
        set_condition(status, "Ready", *words, now=now, generation=generation)
    for field in ("numServeEndpoints", "serviceStatus"):
        status.pop(field, None)
    if endpoints:
        status.update(numServeEndpoints=endpoints, serviceStatus="Running")
    status.update(activeServiceStatus=active.written(), pendingServiceStatus=pending.written())
    if _essence(status) == _essence(before):
        return before
    status.update(observedGeneration=generation, lastUpdateTime=now)
    return status


def _upgrade(status: Resource, *, active: str, pending: str, generation: int, now: str) -> None:
    held = condition_of({"status": status}, "UpgradeInProgress")
    if active and pending:
        words = ("True", "BothActivePendingClustersExist", "Both active and pending Ray clusters exist")
    elif active:
        words = ("False", "NoPendingCluster", "Active Ray cluster exists and no pending Ray cluster")
    elif held is None:
        # Only for an object that was invalid from the start (fact 11).
        text = "No active Ray cluster exists, and the RayService is not initializing. Please open a GitHub issue in "
        words = ("Unknown", "NoActiveCluster", f"{text}the KubeRay repository.")
    else:
        return
    set_condition(status, "UpgradeInProgress", *words, now=now, generation=generation)


def _essence(status: Resource) -> Resource:
    """The fields whose change causes a write: all except the generation and copies of cluster statuses."""
    kept = {k: v for k, v in status.items() if k not in ("observedGeneration", "lastUpdateTime")}
    for field in ("activeServiceStatus", "pendingServiceStatus"):
        kept[field] = {k: v for k, v in (kept.get(field) or {}).items() if k != "rayClusterStatus"}
    return kept


def _without_clusters(service: Resource, *, now: str) -> Resource:
    status = copy_of(service.get("status") or {})
    for field in ("numServeEndpoints", "serviceStatus"):
        status.pop(field, None)
    generation = int(dig(service, "metadata", "generation", default=1))
    nothing = Side().written()
    status.update(activeServiceStatus=nothing, pendingServiceStatus=copy_of(nothing))
    status.update(observedGeneration=generation, lastUpdateTime=now)
    return status


def suspending(service: Resource, *, waits: bool, now: str) -> Resource:
    """The status of a RayService that is stopping; `waits` after its objects are deleted (fact 19)."""
    status = _without_clusters(service, now=now)
    generation = status["observedGeneration"]
    text = (
        "Waiting for all Kubernetes resources owned by this RayService to be deleted."
        if waits
        else "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService."
    )
    reason = "SuspendInProgress" if waits else "SuspendRequested"
    set_condition(status, "Suspending", "True", reason, text, now=now, generation=generation)
    _stopped(status, "SuspendInProgress", "RayService is suspending.", generation=generation, now=now)
    return status


def suspended(service: Resource, *, now: str) -> Resource:
    """The status of a RayService that has stopped; its pods may still be terminating."""
    status = _without_clusters(service, now=now)
    generation = status["observedGeneration"]
    text = "All owned resources have been deleted."
    set_condition(status, "Suspending", "False", "SuspendComplete", text, now=now, generation=generation)
    _stopped(status, "SuspendComplete", "RayService is suspended.", generation=generation, now=now)
    set_condition(status, "Suspended", "True", "SuspendComplete", text, now=now, generation=generation)
    return status


def resumed(service: Resource, *, now: str) -> Resource:
    """The status of a resumed RayService; the conditions of its suspension stay."""
    status = _without_clusters(service, now=now)
    generation = status["observedGeneration"]
    words = ("False", "RayServiceResumed", "Spec.Suspend is false; RayService has resumed.")
    set_condition(status, "Suspended", *words, now=now, generation=generation)
    for type_ in ("Ready", "UpgradeInProgress"):
        text = "RayService is initializing after resuming from suspend."
        set_condition(status, type_, "False", "Initializing", text, now=now, generation=generation)
    return status


def _stopped(status: Resource, reason: str, message: str, *, generation: int, now: str) -> None:
    for type_, text in (
        ("Ready", message),
        ("UpgradeInProgress", "No upgrade in progress."),
        ("RollbackInProgress", "No rollback in progress."),
    ):
        set_condition(status, type_, "False", reason, text, now=now, generation=generation)
