"""The RayCluster controller's part of a pass (the head's Service, pods, status), and Ray's autoscaler."""

from __future__ import annotations

from collections.abc import Iterator

from airunway.resource import Resource, copy_of, dig, key_of, labels_of
from airunway_kuberay_simulator import names, status, workload
from airunway_kuberay_simulator.facts import Create, Delete, Event, Facts, SetSpec, Tell, Write, WriteStatus


def cluster_writes(facts: Facts, name: str, cluster: Resource) -> Iterator[Write]:
    """Writes for pods and status of a RayCluster; none while the ServiceAccount of Ray's autoscaler is missing."""
    pods = facts.pods.get(name, ())
    if account := facts.without_account.get(name):
        yield from _without_account(facts, name, cluster, account)
        return
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


def _without_account(facts: Facts, name: str, cluster: Resource, account: str) -> Iterator[Write]:
    """Only an event reports the missing ServiceAccount; the RayCluster stays without a status (recording noacct)."""
    note = (
        f"Failed to reconcile RayCluster {key_of(cluster).namespace}/{name}. The head names a ServiceAccount for the "
        f"autoscaler. However, ServiceAccount {account} is not found. Please create one."
    )
    if (name, note) not in facts.memory.reported:
        facts.memory.reported.add((name, note))
        yield Tell(event=Event(type="Warning", reason="AutoscalerServiceAccountNotFound", note=note, cluster=name))


def refused_pod(pod: Resource, message: str) -> tuple[str, str, Event]:
    """Reason and message of the condition, and the event, for a pod that may not be created."""
    key, cluster = key_of(pod), labels_of(pod)[names.CLUSTER]
    detail = message[message.find("pods ") :] if "pods " in message else message
    if labels_of(pod)[names.NODE_TYPE] == "head":
        node, note = "Head", f"Failed to create head Pod {key.namespace}/{key.name}, {detail}"
    else:
        node, note = "Worker", f"Failed to create worker Pod for the cluster {key.namespace}/{cluster}, {detail}"
    event = Event(type="Warning", reason=f"FailedToCreate{node}Pod", note=note, cluster=cluster)
    return f"FailedCreate{node}Pod", f"FailedCreate{node}Pod\n{detail}", event


def _autoscaled(facts: Facts, name: str, cluster: Resource) -> Iterator[Write]:
    """The changes that Ray's autoscaler, a container beside the head, makes to its own RayCluster."""
    changed = copy_of(cluster)
    for group in dig(changed, "spec", "workerGroupSpecs") or []:
        wanted = facts.demand.get(name, {}).get(group["groupName"], int(group.get("replicas") or 0))
        group["replicas"] = min(max(wanted, int(group["minReplicas"])), int(group["maxReplicas"]))
    if changed != cluster and dig(cluster, "spec", "enableInTreeAutoscaling"):
        yield SetSpec(obj=changed)
