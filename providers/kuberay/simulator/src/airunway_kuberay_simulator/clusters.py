"""The RayCluster controller's part of a pass: Service of the head, pods, status; and what Ray's autoscaler does."""

from __future__ import annotations

from collections.abc import Iterator

from airunway.resource import Resource, copy_of, dig, key_of
from airunway_kuberay_simulator import status, workload
from airunway_kuberay_simulator.facts import Create, Delete, Facts, SetSpec, Write, WriteStatus

__all__ = ["cluster_writes"]


def cluster_writes(facts: Facts, name: str, cluster: Resource) -> Iterator[Write]:
    """Pods and status of a RayCluster."""
    pods = facts.pods.get(name, ())
    if f"{name}-head-svc" not in facts.services:
        yield Create(obj=workload.head_service(cluster))
    yield from _autoscaled(facts, name, cluster)
    if name not in facts.memory.failed or facts.clock >= facts.memory.due.get(f"pods of {name}", 0):
        for pod in workload.missing_pods(cluster, pods):
            made = copy_of(pod)
            made["metadata"]["name"] = f"{made['metadata']['name']}-{facts.suffix()}"
            yield Create(obj=made)
    for pod in workload.spare_pods(cluster, pods):
        yield Delete(kind="Pod", name=key_of(pod).name)
    written = status.cluster_status(cluster, pods, failure=facts.memory.failed.get(name), now=facts.now)
    if written != cluster.get("status"):
        yield WriteStatus(status=written, cluster=name)


def _autoscaled(facts: Facts, name: str, cluster: Resource) -> Iterator[Write]:
    """What Ray's autoscaler, a container beside the head, does to its own RayCluster."""
    changed = copy_of(cluster)
    for group in dig(changed, "spec", "workerGroupSpecs") or []:
        wanted = facts.demand.get(name, {}).get(group["groupName"], int(group.get("replicas") or 0))
        group["replicas"] = min(max(wanted, int(group["minReplicas"])), int(group["maxReplicas"]))
    if changed != cluster and dig(cluster, "spec", "enableInTreeAutoscaling"):
        yield SetSpec(obj=changed)
