"""Estimates as JSON in a stable form, and the sentences that the command line shows."""

from __future__ import annotations

from airunway.resource import Resource, filled
from airunway.sizing.checkpoint import Checkpoint
from airunway.sizing.estimate import Estimate
from airunway.sizing.fit import Fit, NodeFit
from airunway.sizing.layers import LayerKind
from airunway.sizing.nodes import GpuFacts
from airunway.sizing.values import KIB, Term, Unknown, gib, gibibytes
from airunway.unseen import Unseen


def checkpoint_resource(checkpoint: Checkpoint) -> Resource:
    """What is known of the model; a quantity that is not known is ``{"unknown": why}``."""
    weights, layers = checkpoint.weights, checkpoint.layers
    return filled(
        model=checkpoint.model,
        source=checkpoint.source,
        licence=checkpoint.licence,
        maxContext=checkpoint.max_context,
        weights={"unknown": weights.why}
        if isinstance(weights, Unknown)
        else filled(gib=gibibytes(weights.size), bytes=weights.size, source=weights.source),
        kvCache={"unknown": layers.why}
        if isinstance(layers, Unknown)
        else {"layers": [filled(kind=group.kind.value, layers=group.layers, window=group.window) for group in layers]},
    )


def estimate_resource(found: Estimate) -> Resource:
    """One estimate. Sizes are GiB on one GPU, times are seconds."""
    return filled(
        tensorParallel=found.layout.tensor_parallel,
        pipelineStages=found.layout.stages,
        gpu=_gpu_resource(found.gpu),
        verdict=found.verdict.value,
        why=found.why,
        terms=[_term(term) for term in found.terms],
        budget=_term(found.budget) if found.budget is not None else None,
        kvPoolGiB=gibibytes(found.pool) if found.pool is not None else None,
        kvBytesPerToken=found.token_bytes,
        context=found.context,
        kvPerSequenceGiB=gibibytes(found.sequence_bytes) if found.sequence_bytes is not None else None,
        maxContext=found.max_context,
        maxSequences=found.max_sequences,
        shortGiB=gibibytes(found.short),
        secondsPerTokenAtLeast=[{"batch": batch, "seconds": round(seconds, 6)} for batch, seconds in found.bounds],
        notes=list(found.notes),
    )


def fit_resource(found: Fit) -> Resource:
    """One role against the nodes."""
    legal = found.legal
    pipeline = found.pipeline
    return filled(
        engine=found.workload.engine,
        release=".".join(map(str, found.workload.release or ())),
        verdict=found.verdict.value,
        legalTensorParallel={"unknown": legal.why} if isinstance(legal, Unknown) else list(legal),
        nodes=[_node_resource(row) for row in found.nodes],
        pipeline=filled(nodes=list(pipeline.nodes), estimate=estimate_resource(pipeline.estimate))
        if pipeline is not None
        else None,
    )


def unseen_text(unseen: Unseen) -> str:
    """Why a part of the cluster was not seen."""
    return f"you may not {unseen.right}" if unseen.right else unseen.why


def _node_resource(row: NodeFit) -> Resource:
    free: object = row.free
    if isinstance(free, Unseen):
        free = filled(unseen=unseen_text(free), right=free.right)
    return filled(
        nodes=list(row.nodes),
        resource=row.resource,
        free=free,
        allocatable=row.allocatable,
        gpu=_gpu_resource(row.gpu),
        obstacles=list(row.obstacles),
        why=row.why,
        estimate=estimate_resource(row.estimate) if row.estimate is not None else None,
    )


def _gpu_resource(gpu: GpuFacts) -> Resource:
    memory: object = {"unknown": gpu.memory.why} if isinstance(gpu.memory, Unknown) else gibibytes(gpu.memory)
    return filled(product=gpu.product, memoryGiB=memory, memorySource=gpu.memory_source)


def _term(term: Term) -> Resource:
    return {"name": term.name, "gib": gibibytes(term.size), "source": term.source}


def layout_text(found: Estimate) -> str:
    """The layout as text (``4 GPUs``, ``8 stages of 2 GPUs``)."""
    size, stages = found.layout.tensor_parallel, found.layout.stages
    gpus = f"{size} GPU{'s' if size > 1 else ''}"
    return gpus if stages == 1 else f"{stages} stages of {gpus}"


def weights_sentence(checkpoint: Checkpoint) -> str:
    """The size of the weights with its source, or why it is unknown."""
    weights = checkpoint.weights
    return f"unknown: {weights.why}" if isinstance(weights, Unknown) else f"{gib(weights.size)} ({weights.source})"


def kv_sentence(checkpoint: Checkpoint) -> str:
    """What a token and a sequence cost, for the whole model in its own data type."""
    layers = checkpoint.layers
    if isinstance(layers, Unknown):
        return f"unknown: {layers.why}"
    parts = []
    for group in layers:
        token = group.token_bytes(tensor_parallel=1, element=checkpoint.element)
        if group.kind is LayerKind.STATE:
            size = group.state_bytes(tensor_parallel=1, conv_element=checkpoint.element)
            parts.append(f"{group.layers} state layers: {gib(size)} for each sequence")
        elif group.kind is LayerKind.SLIDING:
            parts.append(
                f"{group.layers} sliding layers: {token / KIB:,.1f} KiB for each of the last {group.window:,} tokens"
            )
        else:
            parts.append(f"{group.layers} {group.kind.value} layers: {token / KIB:,.1f} KiB for each token")
    return "; ".join(parts)
