"""The arithmetic of sizing: layers, weights, splits, reserves, and configs that nobody should believe."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from airunway.api.modeldeployment import parse_deployment
from airunway.sizing.catalogue import catalogue, entries_of_config_maps, nearest, of_entry
from airunway.sizing.checkpoint import Checkpoint, Weights, count_parameters, read_checkpoint, unknown_checkpoint
from airunway.sizing.estimate import FitVerdict, Layout, estimate, legal_tensor_parallel, sequence_bytes
from airunway.sizing.fit import fit
from airunway.sizing.layers import LayerKind
from airunway.sizing.nodes import GpuFacts, free_gpus, gpu_named, gpu_of_labels
from airunway.sizing.precision import header_length, sum_tensors, tensors_in
from airunway.sizing.reserve import RESERVES, Reserve, reserve_of
from airunway.sizing.values import GIB, ConfigReader, ModelConfigError, Unknown, load_config, text_of
from airunway.sizing.workload import WorkerSettings, roles_of

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
SMALL: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def bundled(model: str) -> Checkpoint:
    entry = nearest(model)
    assert entry is not None
    return of_entry(entry, origin="test")


def plain() -> Reserve:
    """A reserve without an engine's own pages."""
    found = reserve_of("trtllm", None)
    assert found is not None
    return found


def kv(checkpoint: Checkpoint, tokens: int, *, parallel: int = 1, reserve: Reserve | None = None) -> int:
    assert not isinstance(checkpoint.layers, Unknown)
    return sequence_bytes(
        checkpoint.layers,
        tokens,
        layout=Layout(tensor_parallel=parallel),
        element=checkpoint.element,
        plain=checkpoint.element,
        reserve=reserve or plain(),
        chunk=8192,
    )


def node(name: str, product: str, gpus: int, **labels: str) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product, **labels}},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}},
    }


def test_latent_attention_is_stored_once() -> None:
    v3 = bundled("deepseek-ai/DeepSeek-V3")
    assert kv(v3, 1) / 1024 == pytest.approx(68.6, abs=0.05)
    assert kv(v3, 1, parallel=8) == kv(v3, 1)


def test_a_window_caps_sliding_layers() -> None:
    gemma = bundled("google/gemma-3-27b-it")
    assert kv(gemma, 131072) / GIB == pytest.approx(10.4, abs=0.05)
    assert kv(gemma, 1024) == 1024 * kv(gemma, 1)
    # vLLM pads kinds of layers to one size of page, and holds the prompt tokens of a batch besides the window.
    vllm = reserve_of("vllm", (0, 19))
    assert vllm is not None
    assert kv(gemma, 131072, reserve=vllm) > kv(gemma, 131072)


def test_a_70b_model_on_eight_nodes_with_one_small_gpu_each_is_a_pipeline() -> None:
    rows = free_gpus([node(f"n{i}", "NVIDIA-GeForce-RTX-4090", 1) for i in range(8)], [])
    found = fit(bundled("meta-llama/Llama-3.3-70B-Instruct"), WorkerSettings(engine="vllm", context=8192), rows)
    assert found.verdict is FitVerdict.NOT
    assert [row.usable for row in found.nodes] == [False]
    assert found.nodes[0].nodes == tuple(f"n{i}" for i in range(8))
    assert found.pipeline is not None
    assert found.pipeline.estimate.layout == Layout(tensor_parallel=1, stages=8)
    assert found.pipeline.estimate.usable
    alone = fit(bundled("meta-llama/Llama-3.3-70B-Instruct"), WorkerSettings(engine="vllm", context=8192), rows[:1])
    assert alone.pipeline is None


def test_the_catalogue_agrees_with_the_shapes_of_its_configs() -> None:
    """Every entry can be sized, says where it is from, and has the parameters that its shapes give."""
    assert len(catalogue()) >= 30
    for model in catalogue():
        entry = nearest(model)
        assert entry is not None
        assert all(entry.get(name) for name in ("source", "date", "licence", "checked")), model
        checkpoint = of_entry(entry, origin="test")
        assert not isinstance(checkpoint.weights, Unknown), model
        assert not isinstance(checkpoint.layers, Unknown), model
        assert checkpoint.max_context, model
        text = ConfigReader(text_of(entry["config"], model=model), model=model)
        counted = count_parameters(text)
        if "vision_config" not in entry["config"] and "parameters" in entry:
            assert entry["parameters"] == counted, model


@pytest.mark.parametrize(
    ("model", "most", "legal"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", 16, (1, 2, 4, 8, 16)),
        ("Qwen/Qwen2.5-7B-Instruct", 8, (1, 2, 4)),  # 28 heads
        ("Qwen/Qwen3-14B", 8, (1, 2, 4, 8)),  # 40 heads, not 5: 8 KV heads cannot be split over 5
        ("microsoft/phi-4", 8, (1, 2)),  # 10 KV heads, and 100,352 words that cannot be split over 5
        ("deepseek-ai/DeepSeek-V3", 8, (1, 2, 4, 8)),
    ],
)
def test_heads_decide_which_tensor_parallelism_is_legal(model: str, most: int, legal: tuple[int, ...]) -> None:
    found = legal_tensor_parallel(bundled(model), most)
    assert not isinstance(found, Unknown)
    assert found == legal


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    small = read_checkpoint(SMALL, model="small", source="test")
    assert kv(small, 100, parallel=2) == kv(small, 100) // 2
    assert kv(small, 100, parallel=8) == kv(small, 100, parallel=2)


QUANTIZED: list[tuple[dict[str, Any], float]] = [
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 128**2),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, 1.0),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625),
]


@pytest.mark.parametrize(("quantization", "weight"), QUANTIZED)
def test_quantized_weights_leave_embeddings_alone(quantization: dict[str, Any], weight: float) -> None:
    found = read_checkpoint({**SMALL, "quantization_config": quantization}, model="small", source="test")
    assert isinstance(found.weights, Weights)
    tables = 2 * 1000 * 64
    counted = count_parameters(ConfigReader(SMALL, model="small"))
    assert isinstance(counted, int)
    assert found.weights.size == int((counted - tables) * weight + tables * 2)


@pytest.mark.parametrize(
    "change",
    [
        {"quantization_config": {"quant_method": "invented"}},
        {"torch_dtype": "float3"},
        {"torch_dtype": None},
        {"model_type": "invented"},
    ],
)
def test_what_is_not_known_stays_unknown(change: dict[str, Any]) -> None:
    found = read_checkpoint({**SMALL, **change}, model="small", source="test")
    assert isinstance(found.weights, Unknown)
    verdict = estimate(found, WorkerSettings(engine="vllm"), gpu_named("h100"), Layout())
    assert verdict.verdict is FitVerdict.UNKNOWN
    assert verdict.why.startswith("weights unknown: ")


@pytest.mark.parametrize(
    "field",
    ["linear_attn_config", "index_head_dim", "cross_attention_layers", "global_head_dim", "num_kv_shared_layers"],
)
def test_layers_that_are_not_understood_make_the_cache_unknown(field: str) -> None:
    found = read_checkpoint({**SMALL, field: 4}, model="small", source="test")
    assert isinstance(found.layers, Unknown)
    assert field in found.layers.why
    assert not isinstance(found.weights, Unknown)
    judged = estimate(found, WorkerSettings(engine="vllm", context=100), gpu_named("h100"), Layout())
    assert (judged.verdict, judged.max_context) == (FitVerdict.UNKNOWN, None)


def test_a_model_without_metadata_is_never_one_gpu() -> None:
    rows = free_gpus([node("n", "NVIDIA-H100-80GB-HBM3", 8)], [])
    found = fit(unknown_checkpoint("org/new", why="nothing is known"), WorkerSettings(engine="vllm"), rows)
    assert found.verdict is FitVerdict.UNKNOWN
    assert found.nodes[0].estimate is not None
    assert found.nodes[0].estimate.terms == ()


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"num_hidden_layers": -2}, "num_hidden_layers: must be from 1 to 4,096, not -2"),
    ({"num_hidden_layers": 10**30}, "num_hidden_layers: must be from 1 to 4,096"),
    ({"hidden_size": 1.5}, "hidden_size: must be a whole number, not '1.5'"),
    ({"vocab_size": True}, "vocab_size: must be a whole number"),
    ({"num_key_value_heads": 0}, "num_key_value_heads: must be from 1"),
    ({"kv_lora_rank": "x" * 10**6}, "kv_lora_rank: must be a whole number, not 'xxx"),
    ({"layer_types": ["full_attention"] * 5000}, "layer_types: must be a list of at most 4,096 texts"),
    ({"quantization_config": [1]}, "quantization_config: must be an object"),
    ({"quantization_config": {"quant_method": "awq", "bits": -4}}, "quantization_config.bits: must be from 1 to 16"),
    ({"use_sliding_window": "no", "sliding_window": 5}, "use_sliding_window: must be true or false"),
    ({"text_config": 3}, "text_config: must be an object"),
]


@pytest.mark.parametrize(("change", "message"), HOSTILE)
def test_a_wrong_config_is_refused_by_name_and_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError) as error:
        read_checkpoint({**SMALL, **change}, model="evil/model", source="test")
    assert str(error.value).startswith(f"evil/model: config.json: {message}")
    assert len(str(error.value)) < 300


def test_a_config_that_contains_itself_is_refused() -> None:
    cyclic: dict[str, Any] = dict(SMALL)
    cyclic["text_config"] = cyclic
    with pytest.raises(ModelConfigError, match=r"evil: config\.json: text_config: contains itself"):
        read_checkpoint(cyclic, model="evil", source="test")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[" * 10**5, "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b'{"num_hidden_layers": NaN}', "it is not JSON"),
        (b" " * 50_000_000, "it has 50,000,000 bytes; at most 1,048,576 are read"),
    ],
)
def test_bytes_that_are_no_config_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        load_config(data, model="evil")


def header(**tensors: Any) -> bytes:
    return orjson.dumps({"__metadata__": {"format": "pt"}, **tensors})


def test_tensors_are_summed_by_their_bytes() -> None:
    """A packed int4 tensor is its bytes, not one parameter for each int32; layers for other purposes are apart."""
    data = header(
        **{
            "model.embed_tokens.weight": {"dtype": "BF16", "shape": [1000, 64], "data_offsets": [0, 1]},
            "model.layers.0.mlp.experts.0.up_proj.qweight": {"dtype": "I32", "shape": [8, 128], "data_offsets": [0, 1]},
            "model.layers.0.mlp.shared_experts.up_proj.weight": {
                "dtype": "F8_E4M3",
                "shape": [10],
                "data_offsets": [0, 1],
            },
            "model.layers.2.eh_proj.weight": {"dtype": "BF16", "shape": [64, 128], "data_offsets": [0, 1]},
        }
    )
    found = sum_tensors(tensors_in(data, file="a").items(), layers=2, file="a")
    assert (found.size, found.experts, found.embedding) == (1000 * 64 * 2 + 8 * 128 * 4 + 10, 8 * 128 * 4, 128000)
    assert found.extra == 64 * 128 * 2


@pytest.mark.parametrize(
    "data",
    [
        header(a={"dtype": "BF16", "shape": [-1], "data_offsets": [0, 1]}),
        header(a={"dtype": "BF16", "shape": "x"}),
        header(a=7),
        b"{",
        b"[]",
    ],
)
def test_a_header_that_lies_is_refused(data: bytes) -> None:
    with pytest.raises(ModelConfigError, match=r"^a: "):
        tensors_in(data, file="a")


def test_a_header_longer_than_the_format_allows_is_not_read() -> None:
    with pytest.raises(ModelConfigError, match="not a safetensors file"):
        header_length((2**40).to_bytes(8, "little"), file="a")


def workload(**spec: Any) -> WorkerSettings:
    deployment = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "x", "namespace": "y"},
        "spec": {"model": {"id": "org/model"}, **spec},
    }
    (role,) = roles_of(parse_deployment(deployment), engine="vllm")
    return role.workload


def test_the_spec_decides_about_context_cache_and_splits() -> None:
    found = workload(
        engine={
            "contextLength": 8192,
            "image": "vllm/vllm-openai:v0.19.1",
            "enforceEager": True,
            "args": {"gpu-memory-utilization": "0.8", "kv-cache-dtype": "fp8", "max_num_seqs": "64"},
            "extraArgs": ["--tensor-parallel-size=2", "--max-num-batched-tokens", "4096", "--max-model-len", "4096"],
        },
        resources={"gpu": {"count": 4, "type": "amd.com/gpu"}},
    )
    assert found == WorkerSettings(
        engine="vllm",
        release=(0, 19, 1),
        context=4096,  # an argument wins over the field, as on the engine's command line
        gpus=4,
        resource="amd.com/gpu",
        tensor_parallel=2,
        fraction=0.8,
        batched_tokens=4096,
        max_sequences=64,
        kv_cache_dtype="fp8",
        eager=True,
    )
    assert workload(engine={"args": {"gpu-memory-utilization": "lots"}}).problems


@pytest.mark.parametrize("setting", ["fp8", "fp8_e5m2"])
def test_an_fp8_cache_holds_twice_the_tokens(setting: str) -> None:
    llama = bundled("meta-llama/Llama-3.1-8B-Instruct")
    both = [
        estimate(llama, WorkerSettings(engine="vllm", kv_cache_dtype=kind), gpu_named("l4"), Layout(tensor_parallel=2))
        for kind in ("auto", setting)
    ]
    assert both[1].sequence_bytes == (both[0].sequence_bytes or 0) // 2
    unknown = estimate(llama, WorkerSettings(engine="vllm", kv_cache_dtype="secret"), gpu_named("h100"), Layout())
    assert unknown.verdict is FitVerdict.UNKNOWN


def test_every_number_has_a_source() -> None:
    for engine in {row.engine for row in RESERVES}:
        found = estimate(
            bundled("Qwen/Qwen3-8B"), WorkerSettings(engine=engine, context=4096), gpu_named("h100"), Layout()
        )
        assert found.verdict is FitVerdict.FITS, engine
        assert found.budget is not None
        assert all(term.source for term in (*found.terms, found.budget))
        assert found.pool == pytest.approx(_left(found.budget.size, found.terms, engine), abs=2)
    nothing = estimate(bundled("Qwen/Qwen3-8B"), WorkerSettings(engine="new-engine"), gpu_named("h100"), Layout())
    assert nothing.verdict is FitVerdict.UNKNOWN


def _left(budget: int, terms: Any, engine: str) -> float:
    left: float = budget - sum(term.size for term in terms)
    return left * 0.9 if engine == "trtllm" else left


def test_cuda_graphs_are_inside_the_fraction_since_0_21() -> None:
    names = {
        release: [term.name for term in estimate(
            bundled("Qwen/Qwen3-8B"), WorkerSettings(engine="vllm", release=release), gpu_named("h100"), Layout()
        ).terms]
        for release in ((0, 20, 2), (0, 21, 0))
    }  # fmt: skip
    assert "CUDA graphs" not in names[(0, 20, 2)]
    assert "CUDA graphs" in names[(0, 21, 0)]


def test_the_time_per_token_counts_active_weights_and_the_cache() -> None:
    found = estimate(
        bundled("Qwen/Qwen3-30B-A3B"), WorkerSettings(engine="vllm", context=4096), gpu_named("h100"), Layout()
    )
    (one, alone), (eight, together), _ = found.bounds
    assert (one, eight) == (1, 8)
    # About 3.3 billion active parameters at 3,350 GB/s; all 30 billion would take 18 ms.
    assert 0.0015 < alone < 0.0025
    assert together - alone == pytest.approx(7 * (found.sequence_bytes or 0) / 3.35e12)
    no_bandwidth = GpuFacts(product="x", memory=80 * GIB)
    assert estimate(bundled("Qwen/Qwen3-8B"), WorkerSettings(engine="vllm"), no_bandwidth, Layout()).bounds == ()


@pytest.mark.parametrize(
    ("labels", "resource", "memory"),
    [
        # The table knows what CUDA offers of the board that the label names.
        (
            {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"},
            "nvidia.com/gpu",
            79.19,
        ),
        # A label without a product of the table.
        ({"nvidia.com/gpu.product": "NVIDIA-X1", "nvidia.com/gpu.memory": "16384"}, "nvidia.com/gpu", 15.73),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "nvidia.com/gpu", 22.1),
        ({"karpenter.k8s.aws/instance-gpu-name": "a10g"}, "nvidia.com/gpu", 22.1),
        ({"nvidia.com/gpu.product": "NVIDIA-A100"}, "nvidia.com/mig-3g.40gb", 36.6),
        ({"nvidia.com/mig-1g.10gb.memory": "9856"}, "nvidia.com/mig-1g.10gb", 9.46),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X", "amd.com/gpu.vram": "192G"}, "amd.com/gpu", 188.7),
        ({"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"}, "nvidia.com/gpu", None),
        ({"nvidia.com/gpu.product": "NVIDIA-X1"}, "nvidia.com/gpu", None),
        ({}, "nvidia.com/gpu", None),
    ],
)
def test_labels_come_before_the_table(labels: dict[str, str], resource: str, memory: float | None) -> None:
    found = gpu_of_labels(labels, resource)
    if memory is None:
        assert isinstance(found.memory, Unknown)
    else:
        assert isinstance(found.memory, int)
        assert found.memory / GIB == pytest.approx(memory, rel=0.005)
        assert found.memory_source


def test_config_maps_add_models_and_are_refused_by_name() -> None:
    entry = {"id": "org/mine", "parameters": 10**9, "config": SMALL, "source": "us", "date": "2026-11"}
    maps = [{"metadata": {"namespace": "ml", "name": "models"}, "data": {"a.json": orjson.dumps([entry]).decode()}}]
    (origin, found), = entries_of_config_maps(maps).values()  # fmt: skip
    assert of_entry(found, origin=origin).source == "ConfigMap ml/models, a.json: us, 2026-11"
    bad = {**entry, "parameters": -1}
    with pytest.raises(ModelConfigError, match=r"org/mine\.parameters: must be a whole number"):
        of_entry(bad, origin=origin)
    with pytest.raises(ModelConfigError, match=r"ConfigMap ml/models, a\.json"):
        entries_of_config_maps([{**maps[0], "data": {"a.json": "{"}}])


def test_a_gemma_config_that_lists_its_layers_is_as_one_that_gives_the_pattern() -> None:
    entry = nearest("google/gemma-3-1b-it")
    assert entry is not None
    listed = ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(26)]
    config = {**entry["config"], "layer_types": listed}
    assert read_checkpoint(config, model="m", source="s").layers == bundled("google/gemma-3-1b-it").layers
    kinds = {group.kind: group.layers for group in bundled("google/gemma-3-1b-it").layers}  # type: ignore[union-attr]
    assert kinds == {LayerKind.FULL: 4, LayerKind.SLIDING: 22}
