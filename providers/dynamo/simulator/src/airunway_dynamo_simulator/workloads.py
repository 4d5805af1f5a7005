"""The objects that the operator makes of a graph: without Grove component deployments with Deployments, on Grove
cliques with pods; and a Service for the frontend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.resource import Resource, copy_of, digest, key_of, owner_reference
from airunway_dynamo_simulator import names
from airunway_dynamo_simulator.graph import Component

__all__ = [
    "Clique",
    "clique_pod",
    "cliques_of",
    "component_deployment",
    "deployment",
    "frontend_service",
    "made_name",
    "pod_clique",
    "template_hash",
]


def made_name(graph: Resource, component: Component) -> str:
    """A worker's name carries the digest of what it runs, so that a change of it is another object."""
    base = f"{key_of(graph).name}-{component.lower}"
    return f"{base}-{component.hash}" if component.works else base


def _labels(graph: Resource, component: Component) -> dict[str, str]:
    labels = {
        names.GRAPH: key_of(graph).name,
        names.COMPONENT: component.name,
        names.COMPONENT_TYPE: component.label,
    }
    return {**labels, names.WORKER_HASH: component.hash} if component.works else labels


def _metadata(graph: Resource, name: str, owner: Resource, labels: dict[str, str]) -> Resource:
    return {
        "name": name,
        "namespace": key_of(graph).namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(owner)],
    }


def component_deployment(graph: Resource, component: Component) -> Resource:
    """What stands for a component without Grove. It has nothing of the pod: its Deployment has."""
    return {
        "apiVersion": f"{names.API_GROUP}/v1alpha1",
        "kind": "DynamoComponentDeployment",
        "metadata": _metadata(graph, made_name(graph, component), graph, _labels(graph, component)),
        "spec": {
            "serviceName": component.name,
            "componentType": component.label,
            "replicas": component.replicas,
        },
    }


def deployment(graph: Resource, component: Component, owner: Resource) -> Resource:
    """The Deployment of a component deployment, of the same name."""
    name = made_name(graph, component)
    labels = {**_labels(graph, component), names.SELECTOR: name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(graph, name, owner, labels),
        "spec": {
            "replicas": component.replicas,
            "selector": {"matchLabels": {names.SELECTOR: name}},
            "template": _template(component, labels),
        },
    }


def frontend_service(graph: Resource, component: Component) -> Resource:
    """The Service before a frontend; of other components' Services nothing depends on."""
    name = f"{key_of(graph).name}-{component.lower}"
    selector = {names.GRAPH: key_of(graph).name, names.COMPONENT: component.name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(graph, name, graph, _labels(graph, component)),
        "spec": {
            "selector": selector,
            "ports": [{"name": "http", "port": names.FRONTEND_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


# ---------------------------------------------------------------------------------------------------------------- Grove


@dataclass(frozen=True, kw_only=True)
class Clique:
    """A number of pods alike. `group` is the replica that it is a part of, over several nodes; else empty."""

    name: str
    component: Component
    pods: int
    group: str = ""


def cliques_of(graph: Resource, component: Component) -> Iterator[Clique]:
    """One clique, or over several nodes two for each replica: its leader, and the others."""
    base = f"{key_of(graph).name}-0-{component.lower}"
    if component.nodes < 2:
        yield Clique(name=base, component=component, pods=component.replicas)
        return
    for index in range(component.replicas):
        group = f"{base}-{index}"
        yield Clique(name=f"{group}-{component.lower}-ldr", component=component, pods=1, group=group)
        yield Clique(name=f"{group}-{component.lower}-wkr", component=component, pods=component.nodes - 1, group=group)


def pod_clique(graph: Resource, clique: Clique) -> Resource:
    """Grove's own object; the PodCliqueSet above it is not played."""
    return {
        "apiVersion": f"{names.GROVE_GROUP}/v1alpha1",
        "kind": "PodClique",
        "metadata": _metadata(graph, clique.name, graph, _labels(graph, clique.component)),
        "spec": {"roleName": clique.component.lower, "replicas": clique.pods},
    }


def clique_pod(graph: Resource, clique: Clique, owner: Resource, index: int) -> Resource:
    """One pod of a clique; it is known by a digest of its template."""
    template = _template(clique.component, _labels(graph, clique.component))
    labels = {**template["metadata"]["labels"], names.TEMPLATE_HASH: template_hash(clique.component)}
    metadata = _metadata(graph, f"{clique.name}-{index}", owner, labels)
    annotations = template["metadata"].get("annotations")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "spec": template["spec"],
    }


def template_hash(component: Component) -> str:
    """What a pod is compared by to know whether it is of the newest template."""
    return digest([component.template, component.nodes], length=8)


def _template(component: Component, labels: dict[str, str]) -> Resource:
    """The graph's pod with what the operator adds: labels, ports, and what a frontend is started with."""
    template = copy_of(component.template)
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    main = next(c for c in template["spec"]["containers"] if c["name"] == "main")
    if component.type == "frontend":
        main.setdefault("command", ["python3"])
        main.setdefault("args", ["-m", "dynamo.frontend"])
        main["ports"] = [{"name": "http", "containerPort": names.FRONTEND_PORT, "protocol": "TCP"}]
    elif component.works:
        main["ports"] = [{"name": "system", "containerPort": names.SYSTEM_PORT, "protocol": "TCP"}]
    return template
