"""Builds the objects that KubeRay creates for a RayService (facts 20 and 21, and the objects of recording a-happy)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from airunway.resource import (
    Resource,
    annotations_of,
    copy_of,
    dig,
    digest,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
)
from airunway_kuberay_simulator import names

_PORTS = {"client": 10001, "dashboard": 8265, "gcs": 6379, "metrics": 8080, "serve": 8000}


def rewritten(service: Resource) -> Resource:
    """The whole RayService as KubeRay writes it back to add its finalizer (fact 1)."""
    made = copy_of(service)
    made["metadata"]["finalizers"] = [*(made["metadata"].get("finalizers") or []), names.FINALIZER]
    for group in dig(made, "spec", "rayClusterConfig", "workerGroupSpecs") or []:
        group.setdefault("scaleStrategy", {})
    return made


def cluster_hash(service: Resource, *, groups: int | None = None) -> str:
    """Hash of the cluster spec with the first `groups` (None: all), without replica counts.

    A changed hash needs a new cluster.
    """
    config = copy_of(dig(service, "spec", "rayClusterConfig", default={}))
    config["workerGroupSpecs"] = (config.get("workerGroupSpecs") or [])[:groups]
    for group in config["workerGroupSpecs"]:
        for field in ("replicas", "minReplicas", "maxReplicas", "scaleStrategy"):
            group.pop(field, None)
    return digest(config, length=32).upper()


def appended(service: Resource, cluster: Resource) -> bool:
    """Whether the RayService only has additional worker groups at the end, compared to the cluster's spec (fact 16)."""
    known = int(annotations_of(cluster).get(names.WORKER_GROUPS, "0"))
    return annotations_of(cluster).get(names.HASH) == cluster_hash(service, groups=known)


def ray_cluster(service: Resource, name: str) -> Resource:
    """The RayCluster, with all labels and annotations of the RayService."""
    key = key_of(service)
    config = copy_of(dig(service, "spec", "rayClusterConfig", default={}))
    origin = {names.ORIGIN_NAME: key.name, names.ORIGIN_KIND: "RayService"}
    own = {names.HASH: cluster_hash(service), names.WORKER_GROUPS: str(len(config.get("workerGroupSpecs") or []))}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": key.namespace,
            "labels": {**labels_of(service), **origin},
            "annotations": {**annotations_of(service), **own},
            "ownerReferences": [owner_reference(service)],
        },
        "spec": config,
    }


def head_service(cluster: Resource) -> Resource:
    """The headless Service of a cluster's head."""
    name = key_of(cluster).name
    return _service(cluster, f"{name}-head-svc", _head_labels(name), {**_head_labels(name)}, headless=True)


def service_of_head(service: Resource, cluster: str) -> Resource:
    """``<name>-head-svc``: the head of the serving cluster."""
    name = key_of(service).name
    labels = {
        names.ORIGIN_NAME: name,
        names.ORIGIN_KIND: "RayService",
        names.NODE_TYPE: "head",
        names.IDENTIFIER: f"{name}-head",
    }
    return _service(service, f"{name}-head-svc", labels, _head_labels(cluster), headless=True)


def serve_service(service: Resource, cluster: str) -> Resource:
    """``<name>-serve-svc``: the serving pods of the cluster."""
    name = key_of(service).name
    labels = {names.ORIGIN_NAME: name, names.ORIGIN_KIND: "RayService", names.SERVE: f"{name}-serve"}
    made = _service(service, f"{name}-serve-svc", labels, {names.CLUSTER: cluster, names.SERVE: "true"})
    made["spec"]["ports"] = [{"name": "serve", "port": serve_port(service), "targetPort": serve_port(service)}]
    return made


def serve_port(service: Resource) -> int:
    """The head's container port named ``serve``; 0 if there is none, which passes validation (fact 9)."""
    head = dig(service, "spec", "rayClusterConfig", "headGroupSpec", "template", "spec", "containers") or [{}]
    return next((int(p["containerPort"]) for p in head[0].get("ports") or [] if p.get("name") == "serve"), 0)


def _head_labels(cluster: str) -> dict[str, str]:
    return {
        **names.CREATED_BY,
        names.CLUSTER: cluster,
        names.IDENTIFIER: f"{cluster}-head",
        names.NODE_TYPE: "head",
    }


def _service(
    owner: Resource, name: str, labels: dict[str, str], selector: dict[str, str], *, headless: bool = False
) -> Resource:
    metadata = {"name": name, "namespace": key_of(owner).namespace, "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "ownerReferences": [owner_reference(owner)]},
        "spec": {
            **({"clusterIP": "None", "publishNotReadyAddresses": True} if headless else {}),
            "selector": selector,
            "ports": [{"name": port, "port": number} for port, number in _PORTS.items()],
        },
    }


# ---------------------------------------------------------------------------------------------------------------- pods


def missing_pods(cluster: Resource, pods: Sequence[Resource]) -> Iterator[Resource]:
    """The pods to create, the head first. A terminating head still counts as present (c-head-pod-lost)."""
    name, spec = key_of(cluster).name, cluster.get("spec") or {}
    if not any(labels_of(pod).get(names.NODE_TYPE) == "head" for pod in pods):
        template = dig(spec, "headGroupSpec", "template", default={})
        yield _pod(cluster, template, prefix=f"{name}-head", group="headgroup", node="head")
    for group in spec.get("workerGroupSpecs") or []:
        living = _of_group(group, pods)
        used = {labels_of(pod).get(names.INDEX) for pod in living}
        free = (str(index) for index in range(len(living) + int(group.get("replicas") or 0)) if str(index) not in used)
        for index in [next(free) for _ in range(int(group.get("replicas") or 0) - len(living))]:
            prefix = f"{name}-{group['groupName']}-worker"
            made = _pod(cluster, group.get("template") or {}, prefix=prefix, group=group["groupName"], node="worker")
            made["metadata"]["labels"][names.INDEX] = index
            yield made


def spare_pods(cluster: Resource, pods: Sequence[Resource]) -> Iterator[Resource]:
    """Superfluous workers, the newest first."""
    for group in dig(cluster, "spec", "workerGroupSpecs") or []:
        living = sorted(_of_group(group, pods), key=lambda pod: int(labels_of(pod).get(names.INDEX, "0")))
        yield from reversed(living[int(group.get("replicas") or 0) :])


def _of_group(group: Resource, pods: Iterable[Resource]) -> list[Resource]:
    return [pod for pod in pods if labels_of(pod).get(names.GROUP_NAME) == group["groupName"] and not is_deleting(pod)]


def _pod(cluster: Resource, template: Resource, *, prefix: str, group: str, node: str) -> Resource:
    key = key_of(cluster)
    made = copy_of(template)
    labels = {
        **(dig(made, "metadata", "labels") or {}),
        **names.CREATED_BY,
        names.CLUSTER: key.name,
        names.NODE_TYPE: node,
        names.GROUP_NAME: group,
        names.IDENTIFIER: f"{key.name}-{node}",
        names.IS_NODE: "yes",
        names.SERVE: "true" if node == "worker" else "false",
    }
    spec = made.get("spec") or {}
    main = spec["containers"][0]
    main["command"], main["args"] = ["/bin/bash", "-c", "--"], [f"ray start {'--head ' * (node == 'head')}--block"]
    if node == "worker":
        waits = {"name": "wait-gcs-ready", "image": main["image"], "env": main.get("env") or []}
        if "securityContext" in main:
            waits["securityContext"] = main["securityContext"]
        spec["initContainers"] = [{**waits, "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}}}]
    elif dig(cluster, "spec", "enableInTreeAutoscaling"):
        limits = {"cpu": "500m", "memory": "512Mi"}
        autoscaler: Resource = {"name": "autoscaler", "image": main["image"], "resources": {"limits": limits}}
        if security := dig(cluster, "spec", "autoscalerOptions", "securityContext"):
            autoscaler["securityContext"] = security
        spec["containers"].append(autoscaler)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": prefix[:50],
            "namespace": key.namespace,
            "labels": labels,
            "annotations": dig(made, "metadata", "annotations") or {},
            "ownerReferences": [owner_reference(cluster)],
        },
        "spec": spec,
    }
