"""Counts the parameters of a model from the shapes in its config.json, for families whose tensors are known."""

from __future__ import annotations

from dataclasses import dataclass

from airunway.sizing.fields import MAX_LAYERS, Reader
from airunway.sizing.layers import LayerKind, layer_groups
from airunway.sizing.values import Unknown

__all__ = ["Mixture", "count_parameters", "mixture_of"]

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


def mixture_of(text: Reader) -> Mixture | None:
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


def count_parameters(text: Reader) -> int | Unknown:
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
        feed += mixture.layers * _besides_experts(text, family, mixture)
    return tables + attention + feed + layers * norms + hidden


def _besides_experts(text: Reader, family: str, mixture: Mixture) -> int:
    """Router and shared experts of one layer."""
    router = mixture.experts * mixture.hidden
    shared = text.count("shared_expert_intermediate_size")
    if shared is not None:
        return router + 3 * mixture.hidden * shared + mixture.hidden
    router += mixture.experts if text.text("topk_method") == "noaux_tc" else 0
    return router + 3 * mixture.hidden * mixture.intermediate * (text.count("n_shared_experts", least=0) or 0)


def _attention(text: Reader, family: str, *, layers: int, hidden: int, heads: int) -> int | Unknown:
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


def _delta_nets(text: Reader, hidden: int) -> int:
    """One linear attention layer of Qwen3-Next; `layer_groups` has checked that the fields are there."""
    values, keys = text.count("linear_num_value_heads") or 0, text.count("linear_num_key_heads") or 0
    key, value = text.count("linear_key_head_dim") or 0, text.count("linear_value_head_dim") or 0
    kernel = text.count("linear_conv_kernel_dim") or 0
    wide, narrow = values * value, keys * key
    projections = hidden * (2 * narrow + 2 * wide) + hidden * 2 * values + wide * hidden
    return projections + (2 * narrow + wide) * kernel + 2 * values + value


def _latent_attention(text: Reader, rank: int, *, layers: int, hidden: int, heads: int) -> int | Unknown:
    rope, nope = text.count("qk_rope_head_dim"), text.count("qk_nope_head_dim")
    value, query = text.count("v_head_dim"), text.count("q_lora_rank")
    if rope is None or nope is None or value is None:
        return Unknown(why="config.json: qk_rope_head_dim, qk_nope_head_dim or v_head_dim is missing")
    queries = heads * (nope + rope)
    one = hidden * query + query + query * queries if query is not None else hidden * queries
    one += hidden * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * hidden
    return layers * one
