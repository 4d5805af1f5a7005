"""What an engine takes of a GPU besides weights and KV cache, by engine and release.

Numbers are measured or read from the engine's source; each row says where. The vLLM rows are held against recorded runs
in ``core/tests/sizing/test_recorded.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from airunway.sizing.values import GIB, MIB


class MemoryShare(StrEnum):
    """What the engine's memory fraction is a fraction of."""

    TOTAL = "total"
    """The GPU's memory; everything of the engine is inside."""
    FREE_AT_START = "free at start"
    """What is free before the weights are loaded; only weights and KV cache are inside."""
    FREE_AFTER_WEIGHTS = "free after the weights"
    """What is free after weights and activations; only the KV cache is inside."""


@dataclass(frozen=True, kw_only=True)
class Reserve:
    """One engine's reserve, from release `since` to the next row of that engine."""

    engine: str
    since: tuple[int, ...]
    share: MemoryShare
    fraction: float | None
    """Default of the memory fraction; None: computed from the GPU's memory."""
    flags: tuple[str, ...]
    """Options that set the fraction, without dashes."""
    logits: float = 0.0
    """Bytes for each sequence and entry of the vocabulary, at the peak of sampling."""
    chunk_bytes: bool = True
    """Whether the activations of a batch of prompt tokens count."""
    runtime: int
    """Bytes of the runtime and its libraries on one GPU that works alone."""
    runtime_parallel: int
    """The same with tensor parallelism (communication buffers)."""
    graphs: int = 0
    """Bytes of CUDA graphs."""
    graphs_inside: bool = False
    """Whether they are taken out of the memory fraction."""
    batches: tuple[tuple[int, int, int], ...] = ()
    """Defaults by GPU memory, largest first: bytes from which they hold, batched tokens, sequences."""
    pages: bool = False
    """Whether layers of several kinds share pages: each kind is padded to a multiple of the smallest, and sliding
    layers hold the prompt tokens of one batch besides their window."""
    states: int = 1
    """States of a state layer that one sequence holds."""
    expert_multiple: int = 1
    """MXFP4 experts are padded to a multiple of this."""
    source: str
    """Where the fraction and its rules were read."""
    measured: str
    """Where the bytes of activations, runtime and graphs were measured."""


_PLANNER = "github.com/jgchn/llm-d-planner, accuracy/results/v0.19.0"
_VERSIONS = "github.com/llm-d-incubation/llm-d-planner, accuracy/accuracy_report.md, part 2"


_VLLM = Reserve(
    engine="vllm",
    since=(0, 18),
    share=MemoryShare.TOTAL,
    fraction=0.9,
    flags=("gpu-memory-utilization",),
    logits=15.0,
    runtime=int(0.25 * GIB),
    runtime_parallel=int(2.1 * GIB),
    graphs=int(1.04 * GIB),
    batches=((70 * GIB, 8192, 1024), (0, 2048, 256)),
    pages=True,
    expert_multiple=256,
    source="vLLM 0.19",
    measured=f"vLLM 0.19 ({_PLANNER})",
)

RESERVES: tuple[Reserve, ...] = (
    replace(
        _VLLM,
        since=(0, 27),
        source="vLLM, vllm/config/cache.py at commit 002f10e0",
        fraction=0.92,
        graphs_inside=True,
        states=2,
    ),
    replace(
        _VLLM,
        since=(0, 21),
        source="vLLM 0.21: CUDA graphs are inside the fraction (github.com/vllm-project/vllm/pull/30515)",
        graphs_inside=True,
        states=2,
    ),
    _VLLM,
    replace(
        _VLLM,
        since=(0, 17),
        source="vLLM 0.17",
        measured=f"vLLM 0.17 ({_VERSIONS})",
        runtime=int(0.13 * GIB),
    ),
    replace(
        _VLLM,
        since=(0, 8),
        source="vLLM 0.15 and 0.16",
        measured=f"vLLM 0.15 and 0.16 ({_VERSIONS})",
        logits=38.0,
        runtime=int(0.13 * GIB),
    ),
    Reserve(
        engine="sglang",
        since=(0, 5),
        share=MemoryShare.FREE_AT_START,
        fraction=None,
        flags=("mem-fraction-static",),
        chunk_bytes=False,
        runtime=int(0.51 * GIB),
        runtime_parallel=int(1.0 * GIB),
        batches=((160 * GIB, 16384, 512), (60 * GIB, 8192, 256), (35 * GIB, 4096, 32), (0, 2048, 24)),
        source="SGLang, server_args.py (github.com/sgl-project/sglang/pull/10975): by the GPU's memory",
        measured=f"the CUDA context in vLLM 0.19 ({_PLANNER})",
    ),
    Reserve(
        engine="trtllm",
        since=(0,),
        share=MemoryShare.FREE_AFTER_WEIGHTS,
        fraction=0.9,
        flags=("free-gpu-memory-fraction", "kv-cache-free-gpu-memory-fraction"),
        runtime=int(0.51 * GIB),
        runtime_parallel=int(2.1 * GIB),
        graphs=int(1.04 * GIB),
        batches=((0, 8192, 0),),
        source="TensorRT-LLM, KvCacheConfig.free_gpu_memory_fraction",
        measured=f"as with vLLM 0.19 ({_PLANNER}); TensorRT-LLM itself was not measured",
    ),
    Reserve(
        engine="llamacpp",
        since=(0,),
        share=MemoryShare.FREE_AT_START,
        fraction=1.0,
        flags=(),
        logits=4.0,
        chunk_bytes=False,
        runtime=int(0.51 * GIB),
        runtime_parallel=int(0.51 * GIB),
        batches=((0, 512, 512),),
        source="llama.cpp: the whole GPU",
        measured="logits of one micro batch of 512 tokens; the CUDA context as in vLLM 0.19",
    ),
)
"""Newest first for each engine."""


def reserve_of(engine: str, release: tuple[int, ...] | None) -> Reserve | None:
    """The row of that engine and release: the newest for an unknown one, the oldest for one older than all rows.

    None if nothing is known of the engine.
    """
    rows = [row for row in RESERVES if row.engine == engine]
    if not rows:
        return None
    return next((row for row in rows if release is None or release >= row.since), rows[-1])


def static_fraction(total: int, *, gpus: int, tokens: int, sequences: int) -> float:
    """SGLang's default fraction for a GPU of `total` bytes: what its prompt batch, graphs and peers leave."""
    reserved = 512 * MIB + int(max(tokens, 2048) * 1.5 * MIB) + sequences * 2 * MIB + gpus * 1024 * MIB // 8
    if total > 60 * 1024 * MIB:
        reserved = max(reserved, 10 * 1024 * MIB)
    return max(0.0, (total - reserved) / total)
