"""Selects the nodes of a Workspace, and reads whether they are ready and how many GPUs they have."""

from __future__ import annotations

from collections.abc import Iterable

from airunway.resource import Resource, dig, is_deleting, is_true, labels_of

GPU_COUNT = "nvidia.com/gpu.count"
"""Label that GPU feature discovery sets on a node."""


def affinity_terms(workspace: Resource) -> list[Resource]:
    """The node selector requirements of ``resource.labelSelector``; its labels come first and are sorted."""
    selector = dig(workspace, "resource", "labelSelector", default={})
    labels = sorted((selector.get("matchLabels") or {}).items())
    terms: list[Resource] = [{"key": key, "operator": "In", "values": [value]} for key, value in labels]
    terms.extend(
        {"key": term["key"], "operator": term["operator"], "values": list(term.get("values") or [])}
        for term in selector.get("matchExpressions") or []
    )
    return terms


def matching_nodes(workspace: Resource, nodes: Iterable[Resource]) -> list[Resource]:
    """The nodes that match the Workspace's selector, by name; their capacity does not matter (facts 4 and 9)."""
    terms = affinity_terms(workspace)
    admitted = [node for node in nodes if all(_admits(term, labels_of(node)) for term in terms)]
    return sorted(admitted, key=lambda node: str(dig(node, "metadata", "name", default="")))


def _admits(term: Resource, labels: dict[str, str]) -> bool:
    value, values = labels.get(term["key"]), set(term["values"])
    match term["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def is_ready(node: Resource) -> bool:
    return is_true(node, "Ready") and not is_deleting(node)


def gpus_per_node(workspace: Resource, nodes: Iterable[Resource]) -> int:
    """GPUs of one pod of a preset: the partition's count, else the label of a matching node, else 0."""
    count = dig(workspace, "resource", "partition", "count")
    if count is not None:
        return int(count)
    for node in matching_nodes(workspace, nodes):
        label = labels_of(node).get(GPU_COUNT, "")
        if label.isdecimal():
            return int(label)
    return 0
