"""The GPUs of the cluster's nodes: how many there are, how many are free, and why pods are kept away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airunway.resource import Resource
from airunway.sizing.nodes import NodeGpus, Placement, free_gpus
from airunway.sizing.values import Unknown
from airunway.unseen import Unseen
from airunway.view.base import ViewModel, line, word

_MOST_NOTES = 32


@dataclass(frozen=True, kw_only=True)
class NodeRow(ViewModel):
    """The GPUs of one resource name on one node."""

    node: str
    """Name of the node."""
    resource: str
    """Resource name, such as ``nvidia.com/gpu``."""
    product: str
    """The GPU's name on the node's labels; empty if there is none."""
    memory: int | Unseen
    """Bytes of one GPU that programs can allocate."""
    allocatable: int
    """How many there are."""
    free: int | Unseen
    """How many no pod requests and no claim holds."""
    obstacles: tuple[str, ...]
    """Why no pod is scheduled there: cordoned, not ready, tainted, not selected."""
    notes: tuple[str, ...]
    """What else is known, such as devices that resource claims hold."""


@dataclass(frozen=True, kw_only=True)
class GpuGroup(ViewModel):
    """All GPUs of one kind."""

    product: str
    """The GPU's name; empty if no label has it."""
    resource: str
    """Resource name."""
    nodes: int
    """How many nodes have them."""
    allocatable: int
    """How many there are."""
    free: int | Unseen
    """How many are free on nodes that take pods."""
    largest: int | Unseen
    """The most that are free on one node that takes pods: what one worker can get."""


@dataclass(frozen=True, kw_only=True)
class NodesView(ViewModel):
    """The nodes with GPUs."""

    rows: tuple[NodeRow, ...] | Unseen
    """By node and resource name."""
    groups: tuple[GpuGroup, ...]
    """The same by kind of GPU, those with the most first."""
    without_gpus: int | Unseen
    """How many nodes have no GPU."""


def nodes_view(
    nodes: Sequence[Resource] | Unseen,
    pods: Iterable[Resource] | Unseen,
    *,
    claims: Iterable[Resource] = (),
    slices: Iterable[Resource] = (),
    placement: Placement | None = None,
) -> NodesView:
    """Returns the GPUs of `nodes`, less what `pods` and `claims` have; with a placement, as its pods find them."""
    if isinstance(nodes, Unseen):
        return NodesView(rows=nodes, groups=(), without_gpus=nodes)
    found = free_gpus(nodes, pods, claims=claims, slices=slices, placement=placement)
    rows = tuple(map(_row, found))
    return NodesView(
        rows=rows,
        groups=tuple(_groups(rows)),
        without_gpus=len(nodes) - len({gpus.node for gpus in found}),
    )


def _row(gpus: NodeGpus) -> NodeRow:
    memory = gpus.gpu.memory
    return NodeRow(
        node=word(gpus.node),
        resource=word(gpus.resource),
        product=word(gpus.gpu.product),
        memory=Unseen(what="memory", why=line(memory.why)) if isinstance(memory, Unknown) else memory,
        allocatable=gpus.allocatable,
        free=gpus.free,
        obstacles=tuple(map(word, gpus.obstacles[:_MOST_NOTES])),
        notes=tuple(map(line, gpus.notes[:_MOST_NOTES])),
    )


def _groups(rows: Iterable[NodeRow]) -> list[GpuGroup]:
    members: dict[tuple[str, str], list[NodeRow]] = {}
    for row in rows:
        members.setdefault((row.product, row.resource), []).append(row)
    groups = [
        GpuGroup(
            product=product,
            resource=resource,
            nodes=len(found),
            allocatable=sum(row.allocatable for row in found),
            free=free if isinstance(free := _free(found), Unseen) else sum(free),
            largest=free if isinstance(free, Unseen) else max(free, default=0),
        )
        for (product, resource), found in members.items()
    ]
    return sorted(groups, key=lambda group: (-group.allocatable, group.product, group.resource))


def _free(rows: Iterable[NodeRow]) -> list[int] | Unseen:
    """The free GPUs of each node that takes pods."""
    found: list[int] = []
    for row in rows:
        if isinstance(row.free, Unseen):
            return row.free
        if not row.obstacles:
            found.append(row.free)
    return found
