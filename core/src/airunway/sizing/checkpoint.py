"""A model as sizing sees it: its weights, its layers, and the numbers of heads that limit how it can be split.

Parameters are counted from the shapes in the config.json for families whose tensors are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airunway.sizing.layers import LayerGroup, LayerKind, layer_groups
from airunway.sizing.precision import Precision, Quantized, TensorTotals, precision_of
from airunway.sizing.values import MAX_LAYERS, Config, ConfigReader, Unknown, text_of


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The weights of a whole model, in bytes."""

    size: int
    read: int | None
    """Bytes that one token reads: without input embeddings and experts that it does not use; None: unknown."""
    experts: int
    """Of `size`, the experts of a mixture."""
    table: int
    """Of `size`, the input embeddings, and the output layer, which is as large: the same table if they are `tied`."""
    tied: bool
    source: str

    def of_stage(self, *, layers: int, stages: int) -> int:
        """Bytes of the largest of `stages` pipeline stages of a model with that many layers."""
        if stages == 1:
            return self.size
        blocks = self.size - self.table * (1 if self.tied else 2)
        return -(-blocks * -(-layers // stages) // layers) + self.table


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What is known of a model. What is not known is an `Unknown`, never a default."""

    model: str
    source: str
    """Where the facts come from."""
    licence: str = ""
    """SPDX name or the publisher's; empty if it is not known."""
    weights: Weights | Unknown
    layers: tuple[LayerGroup, ...] | Unknown
    layer_count: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    hidden: int | None = None
    intermediate: int | None = None
    vocabulary: int | None = None
    max_context: int | None = None
    """The longest context that the model was made for, in tokens."""
    element: int = 2
    """Bytes of an element of activations, and of the KV cache unless it is set."""
    precision: Precision | None = None
    mixture: Mixture | None = None


def unknown_checkpoint(model: str, *, why: str) -> Checkpoint:
    """A model of which nothing is known, with the reason."""
    return Checkpoint(model=model, source="", weights=Unknown(why=why), layers=Unknown(why=why))


def read_checkpoint(
    config: Config,
    *,
    model: str,
    source: str,
    tensors: TensorTotals | None = None,
    parameters: int | None = None,
    size: int | None = None,
    licence: str = "",
) -> Checkpoint:
    """The facts of a model from its config.json.

    The weights are `tensors`, the sums of the safetensors headers; else `size`, the bytes that the checkpoint's index
    gives; else `parameters` times the bytes of the real data type; else the parameters that the shapes give, for
    families whose tensors are known. Raises ModelConfigError for fields that no model can have.
    """
    text = ConfigReader(text_of(config, model=model), model=model)
    whole = ConfigReader(config, model=model)
    precision = precision_of(whole, text)
    heads = text.count("num_attention_heads", "n_head", "num_heads")
    vocabulary, hidden = text.count("vocab_size"), text.count("hidden_size", "n_embd", "d_model")
    mixture = mixture_of(text)
    entries = vocabulary * hidden if vocabulary is not None and hidden is not None else None
    tied = text.flag("tie_word_embeddings", default=whole.flag("tie_word_embeddings", default=True))
    weights: Weights | Unknown
    if tensors is not None:
        experts, table = tensors.experts, tensors.embedding
        weights = _weights(tensors.size, experts=experts, table=table, tied=tied, mixture=mixture, source=source)
    elif size is not None:
        experts, table = _expert_bytes(precision, mixture), _table(precision, entries)
        where = f"{source}: {size:,} bytes"
        weights = _weights(size, experts=experts, table=table, tied=tied, mixture=mixture, source=where)
    elif parameters is None and whole.has("vision_config", "audio_config"):
        weights = Unknown(why="the tensors of a multimodal model are not counted from its config.json")
    else:
        counted = count_parameters(text) if parameters is None else parameters
        weights = _from_parameters(counted, precision, mixture, entries, tied=tied, source=source)
    return Checkpoint(
        model=model,
        source=source,
        licence=licence,
        weights=weights,
        layers=layer_groups(text),
        layer_count=text.count("num_hidden_layers", "n_layer", "num_layers", most=MAX_LAYERS),
        heads=heads,
        kv_heads=text.count("num_key_value_heads", "num_kv_heads", "multi_query_group_num") or heads,
        hidden=hidden,
        intermediate=text.count("intermediate_size", "n_inner"),
        vocabulary=vocabulary,
        max_context=text.count("max_position_embeddings", "n_positions", "max_sequence_length"),
        element=precision.plain if isinstance(precision, Precision) else 2,
        precision=precision if isinstance(precision, Precision) else None,
        mixture=mixture,
    )


def gguf_checkpoint(base: Checkpoint, *, size: int, source: str) -> Checkpoint:
    """The facts of a GGUF file of that size: the layers of its `base`, and the file as weights."""
    experts = 0
    if isinstance(base.weights, Weights) and base.weights.size:
        experts = size * base.weights.experts // base.weights.size
    weights = _weights(size, experts=experts, table=0, tied=True, mixture=base.mixture, source=source)
    return replace(base, source=source, weights=weights, element=2, precision=None)


def is_latent(checkpoint: Checkpoint) -> bool:
    """Whether the model has multi-head latent attention."""
    layers = checkpoint.layers
    return not isinstance(layers, Unknown) and any(group.kind is LayerKind.LATENT for group in layers)


def _weights(size: int, *, experts: int, table: int, tied: bool, mixture: Mixture | None, source: str) -> Weights:
    read: int | None = size - (0 if tied else table)
    if mixture is not None:
        unused = experts * (mixture.experts - mixture.used) // mixture.experts
        read = size - (0 if tied else table) - unused if experts else None
    return Weights(size=size, read=read, experts=experts, table=table, tied=tied, source=source)


def _expert_bytes(precision: Precision | Unknown, mixture: Mixture | None) -> int:
    if mixture is None or isinstance(precision, Unknown):
        return 0
    return int(mixture.parameters * precision.weight)


def _table(precision: Precision | Unknown, entries: int | None) -> int:
    """Bytes of the input embeddings, and of the output layer; neither is quantized."""
    return 0 if entries is None or isinstance(precision, Unknown) else entries * precision.plain


def _from_parameters(
    counted: int | Unknown,
    precision: Precision | Unknown,
    mixture: Mixture | None,
    entries: int | None,
    *,
    tied: bool,
    source: str,
) -> Weights | Unknown:
    if isinstance(counted, Unknown):
        return counted
    if isinstance(precision, Unknown):
        return precision
    experts = _expert_bytes(precision, mixture)
    if precision.scope is Quantized.NONE:
        size = float(counted * precision.plain)
    elif precision.scope is Quantized.EXPERTS:
        if mixture is None:
            return Unknown(why=f"{precision.title} weights of a model whose experts are not known")
        size = experts + (counted - mixture.parameters) * float(precision.plain)
    else:
        if entries is None:
            return Unknown(why="config.json: vocab_size or hidden_size is missing, which are not quantized")
        plain = entries * (1 if tied else 2)
        size = (counted - plain) * precision.weight + plain * precision.plain
    where = f"{source}: {counted:,} parameters, {precision.title}"
    table = _table(precision, entries)
    return _weights(int(size), experts=experts, table=table, tied=tied, mixture=mixture, source=where)


_FAMILIES = frozenset(
    {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "gemma2", "gemma3_text"}
    | {"deepseek_v2", "deepseek_v3", "granite", "phi3", "kimi_k2"}
)
"""Values of ``model_type``. Multimodal models are not counted: their vision towers differ."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The experts of a mixture-of-experts model."""

    layers: int
    """Layers that have experts."""
    experts: int
    """Experts of one layer."""
    used: int
    """Experts that one token uses."""
    hidden: int
    intermediate: int

    @property
    def parameters(self) -> int:
        """Parameters of all experts."""
        return self.layers * self.experts * 3 * self.hidden * self.intermediate


def mixture_of(text: ConfigReader) -> Mixture | None:
    """The experts of a model; None if it has none, or fields of them are missing. Raises ModelConfigError."""
    experts = text.count("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    used = text.count("num_experts_per_tok", "experts_per_token", "moe_topk", "num_experts_per_token")
    layers = text.count("num_hidden_layers", most=MAX_LAYERS)
    hidden = text.count("hidden_size")
    intermediate = text.count("moe_intermediate_size", "expert_hidden_dim", "intermediate_size")
    if experts is None or used is None or layers is None or hidden is None or intermediate is None or experts == 1:
        return None
    dense = text.count("first_k_dense_replace", least=0, most=MAX_LAYERS) or 0
    step = text.count("decoder_sparse_step", "interleave_moe_layer_step", most=MAX_LAYERS) or 1
    return Mixture(
        layers=max(0, layers - dense) // step,
        experts=experts,
        used=min(used, experts),
        hidden=hidden,
        intermediate=intermediate,
    )


def count_parameters(text: ConfigReader) -> int | Unknown:
    """The parameters of the model, without layers for multi-token prediction. Raises ModelConfigError."""
    family = text.text("model_type")
    if family not in _FAMILIES:
        return Unknown(why=f"the tensors of model type {family[:40]!r} are not known, and no tensors are listed")
    layers, hidden = text.count("num_hidden_layers", most=MAX_LAYERS), text.count("hidden_size")
    vocabulary, intermediate = text.count("vocab_size"), text.count("intermediate_size")
    heads = text.count("num_attention_heads")
    if layers is None or hidden is None or vocabulary is None or intermediate is None or heads is None:
        return Unknown(why="config.json: one of the sizes of the layers is missing")
    tables = vocabulary * hidden * (1 if text.flag("tie_word_embeddings", default=True) else 2)
    norms = (4 if family.startswith("gemma") else 2) * hidden
    attention = _attention(text, family, layers=layers, hidden=hidden, heads=heads)
    if isinstance(attention, Unknown):
        return attention
    mixture = mixture_of(text)
    if mixture is None:
        feed = layers * 3 * hidden * intermediate
    else:
        feed = (layers - mixture.layers) * 3 * hidden * intermediate + mixture.parameters
        feed += mixture.layers * _besides_experts(text, mixture)
    return tables + attention + feed + layers * norms + hidden


def _besides_experts(text: ConfigReader, mixture: Mixture) -> int:
    """Router and shared experts of one layer."""
    router = mixture.experts * mixture.hidden
    shared = text.count("shared_expert_intermediate_size")
    if shared is not None:
        return router + 3 * mixture.hidden * shared + mixture.hidden
    router += mixture.experts if text.text("topk_method") == "noaux_tc" else 0
    return router + 3 * mixture.hidden * mixture.intermediate * (text.count("n_shared_experts", least=0) or 0)


def _attention(text: ConfigReader, family: str, *, layers: int, hidden: int, heads: int) -> int | Unknown:
    rank = text.count("kv_lora_rank")
    if rank is not None:
        return _latent_attention(text, rank, layers=layers, hidden=hidden, heads=heads)
    kv_heads = text.count("num_key_value_heads") or heads
    size = text.count("head_dim") or hidden // heads
    one = hidden * heads * size * 2 + hidden * kv_heads * size * 2
    if family == "qwen2":
        one += (heads + 2 * kv_heads) * size
    if family in ("qwen3", "qwen3_moe", "qwen3_next", "gemma3_text"):
        one += 2 * size
    if family != "qwen3_next":
        return layers * one
    groups = layer_groups(text)
    if isinstance(groups, Unknown):
        return groups
    one += hidden * heads * size  # the gate of the output
    full = sum(group.layers for group in groups if group.kind is LayerKind.FULL)
    return full * one + _delta_nets(text, hidden) * (layers - full)


def _delta_nets(text: ConfigReader, hidden: int) -> int:
    """One linear attention layer of Qwen3-Next; `layer_groups` has checked that the fields are there."""
    values, keys = text.count("linear_num_value_heads") or 0, text.count("linear_num_key_heads") or 0
    key, value = text.count("linear_key_head_dim") or 0, text.count("linear_value_head_dim") or 0
    kernel = text.count("linear_conv_kernel_dim") or 0
    wide, narrow = values * value, keys * key
    projections = hidden * (2 * narrow + 2 * wide) + hidden * 2 * values + wide * hidden
    return projections + (2 * narrow + wide) * kernel + 2 * values + value


def _latent_attention(text: ConfigReader, rank: int, *, layers: int, hidden: int, heads: int) -> int | Unknown:
    rope, nope = text.count("qk_rope_head_dim"), text.count("qk_nope_head_dim")
    value, query = text.count("v_head_dim"), text.count("q_lora_rank")
    if rope is None or nope is None or value is None:
        return Unknown(why="config.json: qk_rope_head_dim, qk_nope_head_dim or v_head_dim is missing")
    queries = heads * (nope + rope)
    one = hidden * query + query + query * queries if query is not None else hidden * queries
    one += hidden * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * hidden
    return layers * one
