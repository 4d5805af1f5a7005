"""Where a model fits: the best layout on each node, and pipelines over several nodes if it fits on none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airunway.api.gpus import gpu_family
from airunway.sizing.checkpoint import Checkpoint
from airunway.sizing.estimate import Estimate, FitVerdict, Layout, estimate, legal_tensor_parallel
from airunway.sizing.nodes import GpuFacts, NodeGpus
from airunway.sizing.values import Unknown
from airunway.sizing.workload import WorkerSettings
from airunway.unseen import Unseen

_ORDER = (FitVerdict.FITS, FitVerdict.TIGHT, FitVerdict.LESS, FitVerdict.UNKNOWN, FitVerdict.NOT, FitVerdict.IMPOSSIBLE)
_MOST_GPUS = 64
"""GPUs of one node that layouts are tried for."""


@dataclass(frozen=True, kw_only=True)
class NodeFit:
    """One worker on one node, or on each of several nodes that are alike."""

    nodes: tuple[str, ...]
    resource: str
    free: int | Unseen
    allocatable: int
    gpu: GpuFacts
    obstacles: tuple[str, ...]
    estimate: Estimate | None
    """The best layout on the free GPUs; None if there are too few to try one."""
    why: str
    """Why no layout was tried; otherwise the estimate says it."""

    @property
    def usable(self) -> bool:
        """Whether a worker can start there now, as it was asked for."""
        return not self.obstacles and self.estimate is not None and self.estimate.usable


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One worker over several nodes; the provider must be able to span nodes (capability ``multiNode``)."""

    nodes: tuple[str, ...]
    """Nodes with enough free GPUs of one kind; the first `estimate.layout.stages` are used."""
    estimate: Estimate


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The answer for one role of a deployment, or for a model."""

    workload: WorkerSettings
    legal: tuple[int, ...] | Unknown
    """Sizes of tensor parallelism that divide the heads, up to the GPUs of the largest node."""
    nodes: tuple[NodeFit, ...]
    pipeline: Pipeline | None
    """The smallest pipeline that fits, looked for if no node alone is usable."""

    @property
    def verdict(self) -> FitVerdict:
        """The best verdict among nodes that take pods; unknown if there is none to judge."""
        found = [
            row.estimate.verdict if row.estimate is not None else FitVerdict.NOT
            for row in self.nodes
            if not row.obstacles
        ]
        return min(found, key=_ORDER.index, default=FitVerdict.UNKNOWN)


def best_layout(checkpoint: Checkpoint, workload: WorkerSettings, gpu: GpuFacts, gpus: int) -> Estimate:
    """The layout on at most `gpus` GPUs of one node: what the spec says, else the fewest GPUs that fit.

    If none fits, the one with the longest context.
    """
    tried = []
    for layout in _layouts(checkpoint, workload, gpus):
        found = estimate(checkpoint, workload, gpu, layout)
        if found.verdict is FitVerdict.FITS:
            return found
        tried.append(found)
    return min(tried, key=lambda found: (_ORDER.index(found.verdict), -(found.max_context or 0), found.short))


def fit(checkpoint: Checkpoint, workload: WorkerSettings, rows: Iterable[NodeGpus]) -> Fit:
    """Sizes a worker against the GPUs of nodes. If pods are `Unseen`, against all that is allocatable."""
    candidates = [row for row in rows if not workload.resource or row.resource == workload.resource]
    judged: dict[tuple[object, ...], list[str]] = {}
    results: dict[tuple[object, ...], NodeFit] = {}
    for row in candidates:
        key = (row.resource, row.free, row.allocatable, row.gpu, row.obstacles)
        if key not in results:
            results[key] = _on_node(checkpoint, workload, row)
        judged.setdefault(key, []).append(row.node)
    found = [replace(results[key], nodes=tuple(names)) for key, names in judged.items()]

    def order(row: NodeFit) -> tuple[bool, int, str]:
        verdict = len(_ORDER) if row.estimate is None else _ORDER.index(row.estimate.verdict)
        return bool(row.obstacles), verdict, row.nodes[0]

    nodes = tuple(sorted(found, key=order))
    largest = max((row.allocatable for row in candidates), default=0)
    pipeline = None if any(row.usable for row in nodes) else _pipeline(checkpoint, workload, candidates)
    legal = legal_tensor_parallel(checkpoint, min(largest, _MOST_GPUS) or 8)
    return Fit(workload=workload, legal=legal, nodes=nodes, pipeline=pipeline)


def _rank(found: Estimate) -> tuple[int, int, int]:
    """The best verdict first, then the fewest GPUs, then the longest context."""
    return _ORDER.index(found.verdict), found.layout.gpus, -(found.max_context or 0)


def _on_node(checkpoint: Checkpoint, workload: WorkerSettings, row: NodeGpus) -> NodeFit:
    gpus, part = _gpus(row), gpu_family(row.resource).part
    wanted = workload.gpus or (workload.tensor_parallel or 1) * (workload.pipeline or 1)
    few = f"{gpus} of {row.allocatable} GPUs are free, the worker needs {wanted}" if gpus < wanted else ""
    if part:
        gpus = min(gpus, 1)
        if wanted > 1:
            few = f"{wanted} {part}s of GPUs ({row.resource}) cannot run one model together: set gpu.count to 1"
    return NodeFit(
        nodes=(row.node,),
        resource=row.resource,
        free=row.free,
        allocatable=row.allocatable,
        gpu=row.gpu,
        obstacles=row.obstacles,
        estimate=None if few else best_layout(checkpoint, workload, row.gpu, gpus),
        why=few,
    )


def _layouts(checkpoint: Checkpoint, workload: WorkerSettings, gpus: int) -> list[Layout]:
    """The layouts to try on one node, with the fewest GPUs first."""
    stages = workload.pipeline or 1
    if workload.tensor_parallel is not None:
        return [Layout(tensor_parallel=workload.tensor_parallel, stages=stages)]
    if workload.gpus:
        # Providers split tensors over all GPUs of a worker; llama.cpp splits layers.
        if workload.engine == "llamacpp":
            return [Layout(stages=workload.gpus)]
        return [Layout(tensor_parallel=max(1, workload.gpus // stages), stages=stages)]
    most = min(gpus, _MOST_GPUS)
    if workload.engine == "llamacpp":
        return [Layout(stages=stages) for stages in range(1, most + 1)]
    legal = legal_tensor_parallel(checkpoint, most)
    sizes = (1,) if isinstance(legal, Unknown) else legal
    return [Layout(tensor_parallel=size) for size in sizes]


def _pipeline(checkpoint: Checkpoint, workload: WorkerSettings, rows: Sequence[NodeGpus]) -> Pipeline | None:
    """The pipeline over the fewest nodes with GPUs of one kind that fits; else the longest, if it fits with less."""
    kinds: dict[GpuFacts, list[NodeGpus]] = {}
    for row in rows:
        if row.open and _gpus(row) > 0 and not gpu_family(row.resource).part:
            kinds.setdefault(row.gpu, []).append(row)
    found: list[Pipeline] = []
    for gpu, alike in kinds.items():
        for size in sorted({_gpus(row) for row in alike}, reverse=True):
            names = tuple(row.node for row in alike if _gpus(row) >= size)
            if pipeline := _over(checkpoint, workload, gpu, size, names):
                found.append(pipeline)
    return min(found, key=lambda each: _rank(each.estimate), default=None)


def _gpus(row: NodeGpus) -> int:
    return row.allocatable if isinstance(row.free, Unseen) else row.free


def _over(
    checkpoint: Checkpoint, workload: WorkerSettings, gpu: GpuFacts, size: int, names: tuple[str, ...]
) -> Pipeline | None:
    """A pipeline over these nodes, each with `size` GPUs: one stage on each node."""
    legal = legal_tensor_parallel(checkpoint, min(size, _MOST_GPUS))
    if isinstance(legal, Unknown) or len(names) < 2:
        return None
    limit = min(len(names), checkpoint.layer_count or len(names))
    parallel = workload.tensor_parallel if workload.tensor_parallel in legal else max(legal)
    numbers = range(2, limit + 1)
    if workload.gpus > size:
        # The spec names the GPUs of a worker that spans nodes.
        numbers = range(workload.gpus // parallel, min(limit, workload.gpus // parallel) + 1)
    found: Estimate | None = None
    for stages in numbers:
        found = estimate(checkpoint, workload, gpu, Layout(tensor_parallel=parallel, stages=stages))
        if found.usable:
            break
    if found is None or found.verdict not in (FitVerdict.FITS, FitVerdict.TIGHT, FitVerdict.LESS):
        return None
    return Pipeline(nodes=names, estimate=found)
