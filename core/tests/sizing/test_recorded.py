"""Estimates against what engines logged: weights within 3 %, tokens of KV cache within 10 %, failures never fit.

Each run names the thread or file that it was read from, and the release of the engine. Only numbers are quoted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from airunway.sizing.catalogue import nearest, of_entry
from airunway.sizing.checkpoint import Checkpoint, Weights, gguf_checkpoint, read_checkpoint
from airunway.sizing.estimate import Estimate, FitVerdict, Layout, estimate
from airunway.sizing.layers import LayerGroup, LayerKind
from airunway.sizing.nodes import GpuFacts
from airunway.sizing.values import GIB
from airunway.sizing.workload import WorkerSettings

PLANNER = (
    "https://github.com/jgchn/llm-d-planner/blob/a95e9f62e5de8cb5d2beb5f5279e7271a231416d"
    "/accuracy/results/v0.19.0/results_raw.csv"
)
H100 = 79.19


def compressed(**weights: Any) -> dict[str, Any]:
    """The quantization_config of a compressed-tensors checkpoint."""
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


W4A16 = compressed(num_bits=4, type="int", group_size=128, symmetric=True)
W8 = compressed(num_bits=8, type="int")
FP8 = compressed(num_bits=8, type="float")
CODE_LLAMA_7B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "vocab_size": 32016,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""Without num_key_value_heads: every head has keys and values of its own."""


def model(name: str, quantization: dict[str, Any] | None = None) -> Checkpoint:
    """A model of the catalogue, or that model with another quantization."""
    if name == "codellama/CodeLlama-7b-hf":
        return read_checkpoint(CODE_LLAMA_7B, model=name, source="test")
    entry = nearest(name)
    assert entry is not None, name
    if quantization is not None:
        entry = {**entry, "config": {**entry["config"], "quantization_config": quantization}}
    return of_entry(entry, origin="test")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One recorded run. Sizes are GiB on one GPU."""

    model: str
    link: str = PLANNER
    release: tuple[int, ...] = (0, 19, 0)
    engine: str = "vllm"
    quantization: dict[str, Any] | None = None
    total: float = H100
    parallel: int = 1
    stages: int = 1
    fraction: float | None = 0.95
    length: int = 8192
    kv: str = ""
    weights: float | None = None
    tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def estimated(self) -> Estimate:
        workload = WorkerSettings(
            engine=self.engine,
            release=self.release,
            context=self.length,
            fraction=self.fraction,
            kv_cache_dtype=self.kv,
            **self.settings,
        )
        gpu = GpuFacts(product="recorded", memory=int(self.total * GIB))
        layout = Layout(tensor_parallel=self.parallel, stages=self.stages)
        return estimate(model(self.model, self.quantization), workload, gpu, layout)


LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct"
RUNS = {
    # dense, grouped-query attention, and its splits
    "dense": Run(model=LLAMA, weights=14.99, tokens=476016),
    "dense, kv fp8": Run(model=LLAMA, kv="fp8", weights=14.99, tokens=952032),
    "dense, tp 2": Run(model=LLAMA, parallel=2, weights=7.51, tokens=1044688),
    "dense, tp 4": Run(model=LLAMA, parallel=4, weights=3.77, tokens=2209792),
    "dense, pp 2": Run(model=LLAMA, stages=2, weights=7.51, tokens=1075312),
    "dense, pp 4": Run(model=LLAMA, stages=4, weights=4.26, tokens=2257264),
    "multi-head": Run(model="codellama/CodeLlama-7b-hf", weights=12.56, tokens=126256),
    "gqa": Run(model=QWEN, weights=14.25, tokens=1096000),
    "gqa, heads replicated": Run(model=QWEN, parallel=4, weights=3.55, tokens=5043280),
    "gqa, 72B tp 2": Run(model="Qwen/Qwen2.5-72B-Instruct", parallel=2, weights=67.8, tokens=19920),
    "qwen3": Run(model="Qwen/Qwen3-8B", weights=15.27, tokens=418688),
    "phi": Run(model="microsoft/phi-4", weights=27.39, tokens=241568),
    "granite": Run(model="ibm-granite/granite-3.1-8b-instruct", weights=15.25, tokens=384432),
    # multi-head latent attention
    "mla": Run(model="deepseek-ai/DeepSeek-V2-Lite-Chat", weights=29.43, tokens=1505552),
    "mla, fp8 671B tp 8": Run(
        model="deepseek-ai/DeepSeek-R1",
        link="https://github.com/HabanaAI/vllm-fork/issues/809",
        release=(0, 6),
        parallel=8,
        weights=79.41,
    ),
    # sliding windows
    "sliding, half": Run(model="google/gemma-2-27b-it", weights=50.72, tokens=58672),
    "sliding, half, 9B": Run(model="google/gemma-2-9b-it", weights=17.22, tokens=168880),
    # sliding windows and a vision tower
    "multimodal, 5 of 6 slide": Run(model="google/gemma-3-27b-it", weights=51.45, tokens=36560),
    "multimodal, 12B": Run(model="google/gemma-3-12b-it", weights=23.31, tokens=130304),
    "multimodal, dense": Run(model="mistralai/Mistral-Small-3.1-24B-Instruct-2503", weights=44.76, tokens=184752),
    # mixtures of experts
    "moe": Run(model="Qwen/Qwen3-30B-A3B", weights=56.88, tokens=168288),
    "moe, mixtral": Run(model="mistralai/Mixtral-8x7B-Instruct-v0.1", parallel=2, weights=43.51, tokens=465936),
    # quantized weights
    "fp8, tp 2": Run(
        model="meta-llama/Llama-3.3-70B-Instruct", quantization=FP8, parallel=2, weights=33.88, tokens=244304
    ),
    "fp8": Run(model=QWEN, quantization=FP8, weights=8.14, tokens=1210304),
    "int8": Run(model=LLAMA, quantization=W8, weights=8.49, tokens=529200),
    "gptq": Run(model=LLAMA, quantization=W4A16, weights=5.38, tokens=554704),
    "awq": Run(
        model="Qwen/Qwen2.5-7B-Instruct-AWQ",
        link="https://github.com/vllm-project/vllm/issues/13882",
        release=(0, 7),
        total=8.0,
        fraction=0.7,
        length=4096,
        weights=5.2032,
    ),
    "mxfp4": Run(model="openai/gpt-oss-20b", weights=13.64, tokens=1277184),
    "mxfp4, 120B": Run(
        model="openai/gpt-oss-120b",
        link="https://github.com/vllm-project/vllm/issues/33155",
        release=(0, 14, 1),
        weights=64.38,
    ),
    # releases before 0.17 sample with more memory
    "qwen3 14B, 0.16": Run(
        model="Qwen/Qwen3-14B",
        link="https://github.com/llm-d-incubation/llm-d-planner/blob/main/accuracy/accuracy_report.md",
        release=(0, 16, 0),
        weights=27.52,
        tokens=int(33.55 * 8192),
    ),
    "qwen3 14B, 0.18": Run(
        model="Qwen/Qwen3-14B",
        link="https://github.com/llm-d-incubation/llm-d-planner/blob/main/accuracy/accuracy_report.md",
        release=(0, 18, 0),
        weights=27.52,
        tokens=int(36.18 * 8192),
    ),
    "block fp8 moe, vllm": Run(
        model="Qwen/Qwen3-235B-A22B-FP8",
        link="https://github.com/vllm-project/vllm/issues/21348",
        release=(0, 10),
        parallel=4,
        fraction=None,
        length=40960,
        tokens=178880,
    ),
    "block fp8 moe, sglang": Run(
        model="Qwen/Qwen3-235B-A22B-FP8",
        link="https://github.com/vllm-project/vllm/issues/21348",
        engine="sglang",
        release=(0, 4, 9),
        parallel=4,
        fraction=0.93,
        length=40960,
        tokens=367404,
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_weights_and_tokens_are_near_what_the_engine_logged(name: str) -> None:
    run = RUNS[name]
    found = run.estimated()
    if run.weights is not None:
        weights = next(term.size for term in found.terms if term.name == "weights")
        assert weights / GIB == pytest.approx(run.weights, rel=0.03)
    if run.tokens is not None:
        assert found.pool is not None
        assert found.sequence_bytes is not None
        # As the engine counts: sequences of the longest context, times its tokens.
        assert found.pool / found.sequence_bytes * run.length == pytest.approx(run.tokens, rel=0.10)


FAILURES = {
    "no memory for blocks: gpt-oss-120b on one H100": (
        Run(
            model="openai/gpt-oss-120b",
            link="https://github.com/vllm-project/vllm/issues/23278",
            release=(0, 10, 1),
            fraction=None,
            length=131072,
        ),
        FitVerdict.NOT,
    ),
    "too little for one context: gpt-oss-120b with 0.95": (
        Run(
            model="openai/gpt-oss-120b",
            link="https://github.com/vllm-project/vllm/issues/27508",
            release=(0, 11),
            length=131072,
            settings={"batched_tokens": 1024},
        ),
        FitVerdict.LESS,
    ),
    "no memory for blocks: 8 GB and 0.7": (RUNS["awq"], FitVerdict.NOT),
    "sampling after the cache: gpt-oss-20b with 0.95": (RUNS["mxfp4"], FitVerdict.TIGHT),
    "five GPUs for forty heads": (
        Run(model="Qwen/Qwen3-14B", link=PLANNER, parallel=5),
        FitVerdict.IMPOSSIBLE,
    ),
    "a context beyond the model's": (
        Run(model="google/gemma-2-27b-it", link=PLANNER, length=16384),
        FitVerdict.IMPOSSIBLE,
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_recorded_failure_never_fits(name: str) -> None:
    run, verdict = FAILURES[name]
    found = run.estimated()
    assert found.verdict is verdict, found.why
    assert found.verdict is not FitVerdict.FITS


def test_a_hybrid_model_pays_for_its_full_layers_and_one_state() -> None:
    """https://github.com/mitchross/talos-argocd-proxmox/pull/1995: vLLM, two GPUs, FP8 cache of 4.99 GiB on each."""
    layers = (
        LayerGroup(kind=LayerKind.FULL, layers=16, kv_heads=4, head_size=512),
        LayerGroup(kind=LayerKind.STATE, layers=48, state=48 * 128 * 128, conv=(2 * 16 + 48) * 128 * 3),
    )
    full, state = layers
    # The engine pads the state's page by 0.13 % to 784 tokens of BF16 attention
    # (https://github.com/noonghunna/club-3090/issues/1047, https://github.com/LMCache/LMCache/pull/5079).
    page = state.state_bytes(tensor_parallel=1, conv_element=2) / state.layers
    attention = full.token_bytes(tensor_parallel=1, element=2) / full.layers * 784
    assert attention / page == pytest.approx(1.0013, abs=0.0001)
    token = full.token_bytes(tensor_parallel=2, element=1)
    sequence = token * 131072 + 2 * state.state_bytes(tensor_parallel=2, conv_element=2)
    assert 4.99 * GIB / sequence * 131072 == pytest.approx(302921, rel=0.02)


def test_a_gguf_file_is_its_size_and_llama_cpp_keeps_two_bytes_for_an_element() -> None:
    """https://github.com/ggml-org/llama.cpp/issues/11861: buffers of 18,508.35 and 417.66 MiB of the Q4_K_M file, and
    https://github.com/ggml-org/llama.cpp/issues/11861: 64 layers of 1,024 elements for key and for value.
    """
    base = model("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B")
    found = gguf_checkpoint(base, size=19_851_335_840, source="file")
    assert isinstance(found.weights, Weights)
    assert found.weights.size / 2**20 == pytest.approx(18508.35 + 417.66, rel=0.03)
    assert isinstance(found.layers, tuple)
    (group,) = found.layers
    assert group.token_bytes(tensor_parallel=1, element=2) == 64 * (1024 + 1024) * 2
    # https://github.com/ollama/ollama/issues/16480: two sequences of 131,072 tokens in 9,216 MiB, and a window.
    full = next(g for g in model("openai/gpt-oss-120b").layers if g.kind is LayerKind.FULL)  # type: ignore[union-attr]
    assert 2 * 131072 * full.token_bytes(tensor_parallel=1, element=2) == 9216 * 2**20
