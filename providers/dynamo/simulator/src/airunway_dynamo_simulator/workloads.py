"""Builds the objects that the operator creates for a graph.

These are component deployments with Deployments, or on Grove cliques with pods, and a Service for the frontend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.resource import Resource, copy_of, digest, key_of, owner_reference
from airunway_dynamo_simulator import names
from airunway_dynamo_simulator.graph import Component


def made_name(graph: Resource, component: Component) -> str:
    """The name of a component's objects.

    A worker's name contains the digest of its template, so that a change creates new objects.
    """
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
    """The object for a component without Grove. It contains no pod template; its Deployment does."""
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
    """The Deployment of a component deployment, with the same name."""
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
    """The Service of a frontend; Services of other components are not simulated, because nothing depends on them."""
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
    """A number of identical pods."""

    name: str
    component: Component
    pods: int
    group: str = ""
    """The replica to which its pods belong, over several nodes; else empty."""


def cliques_of(graph: Resource, component: Component) -> Iterator[Clique]:
    """One clique, or over several nodes two for each replica: leader and workers."""
    base = f"{key_of(graph).name}-0-{component.lower}"
    if component.nodes < 2:
        yield Clique(name=base, component=component, pods=component.replicas)
        return
    for index in range(component.replicas):
        group = f"{base}-{index}"
        yield Clique(name=f"{group}-{component.lower}-ldr", component=component, pods=1, group=group)
        yield Clique(name=f"{group}-{component.lower}-wkr", component=component, pods=component.nodes - 1, group=group)


def pod_clique(graph: Resource, clique: Clique) -> Resource:
    """Grove's PodClique; the PodCliqueSet above it is not simulated."""
    return {
        "apiVersion": f"{names.GROVE_GROUP}/v1alpha1",
        "kind": "PodClique",
        "metadata": _metadata(graph, clique.name, graph, _labels(graph, clique.component)),
        "spec": {"roleName": clique.component.lower, "replicas": clique.pods},
    }


def clique_pod(graph: Resource, clique: Clique, owner: Resource, index: int) -> Resource:
    """One pod of a clique, labelled with a digest of its template."""
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
    """Digest that shows whether a pod has the newest template."""
    return digest([component.template, component.nodes], length=8)


def _template(component: Component, labels: dict[str, str]) -> Resource:
    """The graph's pod template with the operator's additions: labels, ports, and the command of a frontend."""
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
