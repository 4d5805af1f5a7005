"""How one worker fills one kind of GPU: terms, what is left for the KV cache, and what fits into that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from airunway.sizing.checkpoint import Checkpoint, Weights, is_latent
from airunway.sizing.layers import LayerGroup, LayerKind
from airunway.sizing.nodes import GpuFacts
from airunway.sizing.precision import Quantized, kv_element
from airunway.sizing.reserve import MemoryShare, Reserve, reserve_of, static_fraction
from airunway.sizing.values import GIB, Term, Unknown, gib
from airunway.sizing.workload import WorkerSettings

_BLOCK = 16
"""Tokens of the smallest KV block; fewer are no context."""
_LARGEST_GRAPHS = int(1.85 * GIB)
_LEFT_BEHIND = int(1.06 * GIB)
"""Outside vLLM's fraction: the largest CUDA graphs that were measured, and what its allocator keeps after profiling (in
the planner's results, the failed run of openai/gpt-oss-20b with a fraction of 0.95)."""
_CONTEXT = int(0.51 * GIB)
"""The CUDA context, outside vLLM's fraction (same results)."""


class FitVerdict(StrEnum):
    """Whether a worker fits."""

    FITS = "fits"
    TIGHT = "tight"
    """It fits into the engine's fraction, which leaves less of the GPU than the engine may need outside of it."""
    LESS = "fits with less"
    """It fits with fewer tokens or sequences than were asked for."""
    NOT = "does not fit"
    IMPOSSIBLE = "impossible"
    """The engine refuses it, whatever the memory."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a worker is split over GPUs."""

    tensor_parallel: int = 1
    stages: int = 1
    """Pipeline stages."""

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.stages


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One worker in one layout on one kind of GPU. Sizes are bytes on one GPU."""

    layout: Layout
    gpu: GpuFacts
    verdict: FitVerdict
    why: str
    """One sentence with the numbers that decide."""
    terms: tuple[Term, ...] = ()
    """What the engine takes besides the KV cache."""
    budget: Term | None = None
    """What the engine may use."""
    pool: int | None = None
    """What is left for the KV cache; negative if nothing is."""
    token_bytes: float | None = None
    """KV cache of one token beyond all windows."""
    context: int | None = None
    """The context that was asked for, in tokens."""
    sequence_bytes: int | None = None
    """KV cache of one sequence of that length."""
    max_context: int | None = None
    """Tokens of the longest single sequence that fits."""
    max_sequences: int | None = None
    """Sequences of the asked context that fit at once."""
    short: int = 0
    """Bytes that are missing on each GPU."""
    bounds: tuple[tuple[int, float], ...] = ()
    """Lower bounds of the time for one token, in seconds, by batch size: weights and KV cache over bandwidth."""
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether it starts as it was asked for."""
        return self.verdict in (FitVerdict.FITS, FitVerdict.TIGHT)


def legal_tensor_parallel(checkpoint: Checkpoint, most: int) -> tuple[int, ...] | Unknown:
    """The sizes up to `most` over which the attention heads can be split."""
    heads, kv_heads = checkpoint.heads, checkpoint.kv_heads
    if heads is None or kv_heads is None:
        return Unknown(why="the number of attention heads is not known")
    table = -(-(checkpoint.vocabulary or 64) // 64) * 64
    latent = is_latent(checkpoint)
    return tuple(
        size
        for size in range(1, most + 1)
        if heads % size == 0 and table % size == 0 and (latent or kv_heads % size == 0 or size % kv_heads == 0)
    )


def sequence_bytes(
    layers: tuple[LayerGroup, ...],
    tokens: int,
    *,
    layout: Layout,
    element: float,
    plain: int,
    reserve: Reserve,
    chunk: int,
) -> int:
    """KV cache of one sequence on one GPU. `chunk` are the prompt tokens of one batch; `plain` the model's bytes."""
    size = 0.0
    whole = sum(group.layers for group in layers)
    portion = -(-whole // layout.stages) / whole
    counts = _padded(layers) if reserve.pages else {group: group.layers for group in layers}
    for group in layers:
        share = counts[group] / group.layers * portion
        if group.kind is LayerKind.STATE:
            size += (
                share * reserve.states * group.state_bytes(tensor_parallel=layout.tensor_parallel, conv_element=plain)
            )
            continue
        held = tokens
        if group.kind is LayerKind.SLIDING:
            held = min(tokens, group.window - 1 + chunk if reserve.pages else group.window)
        size += share * held * group.token_bytes(tensor_parallel=layout.tensor_parallel, element=element)
    return int(size)


def _padded(layers: tuple[LayerGroup, ...]) -> dict[LayerGroup, int]:
    """Layers of each group as pages count them: a multiple of the smallest group, or of the largest if all are near."""
    if len(layers) < 2:
        return {group: group.layers for group in layers}
    counts = [group.layers for group in layers]
    unit = max(counts) if max(counts) < 1.25 * min(counts) else min(counts)
    return {group: -(-group.layers // unit) * unit for group in layers}


def estimate(checkpoint: Checkpoint, workload: WorkerSettings, gpu: GpuFacts, layout: Layout) -> Estimate:
    """Sizes one worker. Every quantity that is not known makes the verdict unknown, unless the weights alone decide."""
    found = Estimate(layout=layout, gpu=gpu, verdict=FitVerdict.UNKNOWN, why="", notes=workload.problems)
    if refusal := _refusal(checkpoint, workload, layout):
        return replace(found, verdict=FitVerdict.IMPOSSIBLE, why=refusal)
    weights, total = checkpoint.weights, gpu.memory
    if isinstance(weights, Unknown):
        return replace(found, why=f"weights unknown: {weights.why}")
    reserve = reserve_of(workload.engine, workload.release)
    loaded = _loaded(checkpoint, weights, layout, reserve.expert_multiple if reserve is not None else 1)
    found = replace(found, terms=(loaded,))
    if isinstance(total, Unknown):
        return replace(found, why=f"memory of the GPU unknown: {total.why}")
    if loaded.size > total:
        why = f"the weights need {gib(loaded.size)} on each GPU, which has {gib(total)}"
        return replace(found, verdict=FitVerdict.NOT, why=why, short=loaded.size - total)
    if reserve is None:
        return replace(found, why=f"no reserve is known for engine {workload.engine or '(none)'}")
    tokens, sequences = _batch(reserve, workload, total)
    budget, terms = _split(checkpoint, workload, reserve, layout, total, loaded, tokens, sequences)
    pool = budget.size - sum(term.size for term in terms)
    if reserve.share is MemoryShare.FREE_AFTER_WEIGHTS:
        fraction = reserve.fraction if workload.fraction is None else workload.fraction
        pool = int(pool * (fraction or 0))
    found = replace(found, terms=terms, budget=budget, pool=pool)
    if pool <= 0:
        why = f"nothing is left for the KV cache: {gib(-pool)} are missing on each GPU"
        found = replace(found, verdict=FitVerdict.NOT, why=why, short=-pool)
    layers, element = checkpoint.layers, kv_element(workload.kv_cache_dtype, plain=checkpoint.element)
    if isinstance(layers, Unknown) or isinstance(element, Unknown):
        unknown = layers if isinstance(layers, Unknown) else element
        assert isinstance(unknown, Unknown)
        return found if pool <= 0 else replace(found, why=f"KV cache unknown: {unknown.why}")

    def need(length: int) -> int:
        return sequence_bytes(
            layers, length, layout=layout, element=element, plain=checkpoint.element, reserve=reserve, chunk=tokens
        )

    context = workload.context or checkpoint.max_context
    per_token = sum(
        group.token_bytes(tensor_parallel=layout.tensor_parallel, element=element)
        for group in layers
        if group.kind in (LayerKind.FULL, LayerKind.LATENT)
    )
    found = replace(found, token_bytes=per_token / layout.stages)
    if context is None:
        return found if pool <= 0 else replace(found, why="the model's longest context is not known: set contextLength")
    one = need(context)
    found = replace(
        found,
        context=context,
        sequence_bytes=one,
        max_context=_longest(need, pool, checkpoint.max_context or context),
        max_sequences=max(0, pool) // one if one else None,
        short=max(0, workload.sequences * one - pool),
    )
    found = replace(found, bounds=_bounds(weights, found, one))
    verdict, why = _judged(found, workload)
    found = replace(found, verdict=verdict, why=why)
    if found.verdict is FitVerdict.FITS and (warning := _outside(checkpoint, workload, reserve, total, sequences)):
        return replace(found, verdict=FitVerdict.TIGHT, why=warning)
    return found


def _judged(found: Estimate, workload: WorkerSettings) -> tuple[FitVerdict, str]:
    assert found.pool is not None
    assert found.sequence_bytes is not None
    most, fitting = found.max_context or 0, found.max_sequences
    asked = f"{workload.sequences} sequence{'s' if workload.sequences > 1 else ''} of {found.context:,} tokens"
    if not found.short:
        more = "" if fitting is None else f", {fitting:,} at once"
        why = f"{asked}: {gib(found.sequence_bytes)} each of {gib(found.pool)} for the KV cache{more}"
        return FitVerdict.FITS, why
    if most >= _BLOCK:
        at_once = f" or {fitting:,} sequences" if fitting else ""
        why = f"with at most {most:,} tokens{at_once}: {asked} need {gib(found.short)} more on each GPU"
        return FitVerdict.LESS, why
    return FitVerdict.NOT, f"{gib(found.short)} are missing on each GPU for {asked}"


def _refusal(checkpoint: Checkpoint, workload: WorkerSettings, layout: Layout) -> str:
    """Why the engine would not start with these settings; empty if it would."""
    size = layout.tensor_parallel
    legal = legal_tensor_parallel(checkpoint, size)
    splits = workload.engine != "llamacpp"
    if splits and not isinstance(legal, Unknown) and size not in legal:
        return (
            f"tensor parallelism over {size} GPUs does not divide {checkpoint.heads} attention heads and "
            f"{checkpoint.kv_heads} KV heads"
        )
    if checkpoint.layer_count is not None and layout.stages > checkpoint.layer_count:
        return f"{layout.stages} pipeline stages for {checkpoint.layer_count} layers"
    if workload.context and checkpoint.max_context and workload.context > checkpoint.max_context:
        return f"a context of {workload.context:,} tokens: the model was made for {checkpoint.max_context:,}"
    return ""


def _loaded(checkpoint: Checkpoint, weights: Weights, layout: Layout, expert_multiple: int) -> Term:
    size, source = weights.size, weights.source
    precision, mixture = checkpoint.precision, checkpoint.mixture
    if precision is not None and precision.scope is Quantized.EXPERTS and mixture is not None and expert_multiple > 1:
        padded = -(-mixture.intermediate // expert_multiple) * expert_multiple
        size += weights.experts * (padded - mixture.intermediate) // mixture.intermediate
        source += f"; the engine pads experts from {mixture.intermediate:,} to {padded:,}"
    grown = replace(weights, size=size)
    stage = grown.of_stage(layers=checkpoint.layer_count or layout.stages, stages=layout.stages)
    split = f"; over {layout.gpus} GPUs" if layout.gpus > 1 else ""
    return Term(name="weights", size=-(-stage // layout.tensor_parallel), source=f"{source}{split}")


def _batch(reserve: Reserve, workload: WorkerSettings, total: int) -> tuple[int, int]:
    """Prompt tokens of one batch, and sequences."""
    tokens, sequences = next(((t, s) for least, t, s in reserve.batches if total >= least), (0, 0))
    if workload.batched_tokens is not None:
        tokens = workload.batched_tokens
    return tokens, sequences if workload.max_sequences is None else workload.max_sequences


def _split(
    checkpoint: Checkpoint,
    workload: WorkerSettings,
    reserve: Reserve,
    layout: Layout,
    total: int,
    loaded: Term,
    tokens: int,
    sequences: int,
) -> tuple[Term, tuple[Term, ...]]:
    """The budget of the engine, and what it takes of that besides the KV cache."""
    parallel = layout.tensor_parallel > 1
    runtime = Term(
        name="runtime", size=reserve.runtime_parallel if parallel else reserve.runtime, source=reserve.measured
    )
    given = workload.fraction
    fraction = reserve.fraction if given is None else given
    named = reserve.flags[0] if reserve.flags else "memory"
    activations = Term(
        name="activations",
        size=_activations(checkpoint, reserve, layout, tokens, sequences),
        source=f"{tokens:,} prompt tokens and {sequences:,} sequences in a batch; {reserve.measured}",
    )
    graphs = Term(name="CUDA graphs", size=0 if workload.eager else reserve.graphs, source=reserve.measured)
    if reserve.share is MemoryShare.TOTAL:
        assert fraction is not None
        budget = Term(
            name="budget", size=int(total * fraction), source=f"{named} {fraction:g} of {gib(total)}; {reserve.source}"
        )
        inside = (graphs,) if reserve.graphs_inside else ()
        return budget, (loaded, activations, runtime, *inside)
    if reserve.share is MemoryShare.FREE_AT_START:
        if fraction is None:
            fraction = static_fraction(total, gpus=layout.gpus, tokens=tokens, sequences=sequences)
        size = int((total - runtime.size) * fraction)
        source = (
            f"{named} {fraction:.3g} of what the runtime ({gib(runtime.size)}) leaves of {gib(total)}; {reserve.source}"
        )
        return Term(name="budget", size=size, source=source), ((loaded, activations) if reserve.logits else (loaded,))
    source = f"{named} {fraction:g} of what is free after the weights"
    return Term(name="budget", size=total, source=source), (loaded, activations, runtime, graphs)


def _activations(checkpoint: Checkpoint, reserve: Reserve, layout: Layout, tokens: int, sequences: int) -> int:
    """The peak of one batch: sampling, or the widest layer, and the workspace of the experts.

    Fitted to the runs of `Reserve.source`; hidden states and logits have the model's data type or are wider.
    """
    hidden, vocabulary = checkpoint.hidden or 0, checkpoint.vocabulary or 0
    element = checkpoint.element
    sampling = reserve.logits * sequences * vocabulary
    if not reserve.chunk_bytes:
        return int(sampling)
    sampling += tokens * hidden * element
    mixture = checkpoint.mixture
    inner = 0 if mixture is not None else 3 * (checkpoint.intermediate or 0) / layout.tensor_parallel
    widest = tokens * element * (inner + 4 * hidden)
    workspace = 0.0
    if mixture is not None:
        wide = 2 * mixture.intermediate / layout.tensor_parallel + mixture.hidden
        workspace = tokens * mixture.used * wide * element
    return int(max(sampling, widest) + workspace)


def _longest(need: Callable[[int], int], pool: int, limit: int) -> int:
    """The most tokens up to `limit` of one sequence that fit into `pool`; `need` grows with the tokens."""
    if pool <= 0 or need(1) > pool:
        return 0
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if need(middle) <= pool else (low, middle - 1)
    return low


def _outside(checkpoint: Checkpoint, workload: WorkerSettings, reserve: Reserve, total: int, sequences: int) -> str:
    """A warning if the spec raises vLLM's fraction so far that what it needs outside may not fit; empty if not."""
    given = workload.fraction
    if reserve.share is not MemoryShare.TOTAL or given is None or reserve.fraction is None or given <= reserve.fraction:
        return ""
    left = int(total * (1 - given))
    graphs = 0 if workload.eager or reserve.graphs_inside else _LARGEST_GRAPHS
    needed = _CONTEXT + graphs + _LEFT_BEHIND + 4 * sequences * (checkpoint.vocabulary or 0)
    if left >= needed:
        return ""
    return (
        f"it fits, but {reserve.flags[0]} {given:g} leaves {gib(left)} of the GPU, and the engine may need "
        f"{gib(needed)} besides (context, CUDA graphs, sampling): the default is {reserve.fraction:g}"
    )


def _bounds(weights: Weights, found: Estimate, sequence: int) -> tuple[tuple[int, float], ...]:
    """For one sequence, and for larger batches that fit."""
    bandwidth = found.gpu.bandwidth
    if bandwidth is None or weights.read is None:
        return ()
    read, stages = weights.read / found.layout.tensor_parallel, found.layout.stages
    batches = [batch for batch in (1, 8, 32) if batch == 1 or batch <= (found.max_sequences or 0)]
    return tuple((batch, (read + batch * sequence * stages) / bandwidth) for batch in batches)
