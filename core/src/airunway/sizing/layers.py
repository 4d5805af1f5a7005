"""What one token and one sequence cost in the KV cache, by kind of layer.

>>> latent = LayerGroup(kind=LayerKind.LATENT, layers=61, latent=576)   # DeepSeek-V3
>>> latent.token_bytes(tensor_parallel=8, element=2) / 1024
68.625
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airunway.sizing.values import MAX_LAYERS, ConfigReader, Unknown


class LayerKind(StrEnum):
    """How a layer remembers the tokens before it."""

    FULL = "full"
    """Keys and values of every token."""
    SLIDING = "sliding"
    """Keys and values of the last `window` tokens."""
    LATENT = "latent"
    """One compressed vector for each token, the same on every GPU (multi-head latent attention)."""
    STATE = "state"
    """A state of constant size for each sequence (linear attention, state space models)."""


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    """Layers of one kind and one shape."""

    kind: LayerKind
    layers: int
    kv_heads: int = 0
    head_size: int = 0
    """Elements of one key and one value together, for each KV head."""
    latent: int = 0
    """Elements for each token of a latent layer."""
    window: int = 0
    """Tokens that a sliding layer keeps."""
    state: int = 0
    """Elements of a state layer's recurrent state for each sequence."""
    state_element: int = 4
    """Bytes of each of them."""
    conv: int = 0
    """Elements of its convolution state, stored in the model's data type."""

    def token_bytes(self, *, tensor_parallel: int, element: float) -> float:
        """Bytes of one token in these layers on one GPU; `element` is the size of one element in bytes.

        KV heads that cannot be divided further are replicated; a latent vector is never divided.
        """
        if self.kind is LayerKind.STATE:
            return 0.0
        if self.kind is LayerKind.LATENT:
            return self.layers * self.latent * element
        heads = max(1, -(-self.kv_heads // tensor_parallel))
        return self.layers * heads * self.head_size * element

    def state_bytes(self, *, tensor_parallel: int, conv_element: int) -> int:
        """Bytes of one sequence's state in these layers on one GPU."""
        whole = self.layers * (self.state * self.state_element + self.conv * conv_element)
        return -(-whole // tensor_parallel)


_NOT_UNDERSTOOD = (
    ("linear_attn_config", "layers of Kimi's linear attention"),
    ("ssm_cfg", "state space layers"),
    ("attn_layer_period", "Jamba's state space layers"),
    ("cross_attention_layers", "cross attention to images"),
    ("index_head_dim", "the index cache of sparse attention"),
    ("compress_ratios", "compressed attention"),
    ("hc_mult", "layers of DeepSeek-V4"),
    ("global_head_dim", "layers of two head sizes"),
    ("num_kv_shared_layers", "layers that share their keys and values"),
)
"""Fields of layers whose memory is not computed, so that the KV cache stays unknown."""

_STATE_WORDS = ("linear_attention", "mamba", "recurrent", "conv")
_SLIDING_WORDS = ("sliding_attention", "chunked_attention", "sliding", "local_attention")
_FULL_WORDS = ("full_attention", "attention", "global_attention")


def layer_groups(text: ConfigReader) -> tuple[LayerGroup, ...] | Unknown:
    """The layers of a language model, from the fields of its config.json. Raises ModelConfigError."""
    for field, what in _NOT_UNDERSTOOD:
        if text.has(field):
            return Unknown(why=f"config.json: {field}: {what} are not computed")
    layers = text.count("num_hidden_layers", "n_layer", "num_layers", most=MAX_LAYERS)
    if layers is None:
        return Unknown(why="config.json: num_hidden_layers: missing")
    latent = text.count("kv_lora_rank")
    if latent is not None:
        rope = text.count("qk_rope_head_dim", least=0)
        if rope is None:
            return Unknown(why="config.json: qk_rope_head_dim: missing, though kv_lora_rank is there")
        return (LayerGroup(kind=LayerKind.LATENT, layers=layers, latent=latent + rope),)
    shape = _attention_shape(text)
    if isinstance(shape, Unknown):
        return shape
    kv_heads, head_size = shape
    kinds = _kinds(text, layers)
    if isinstance(kinds, Unknown):
        return kinds
    full, sliding, state = kinds
    found: list[LayerGroup] = []
    if full:
        found.append(LayerGroup(kind=LayerKind.FULL, layers=full, kv_heads=kv_heads, head_size=head_size))
    if sliding:
        window = text.count("sliding_window", "attention_chunk_size")
        if window is None:
            return Unknown(why="config.json: sliding_window: missing, though there are sliding layers")
        found.append(
            LayerGroup(kind=LayerKind.SLIDING, layers=sliding, kv_heads=kv_heads, head_size=head_size, window=window)
        )
    if state:
        group = _state_group(text, state)
        if isinstance(group, Unknown):
            return group
        found.append(group)
    return tuple(found)


def _attention_shape(text: ConfigReader) -> tuple[int, int] | Unknown:
    """KV heads, and elements of a key and a value of one head."""
    heads = text.count("num_attention_heads", "n_head", "num_heads")
    if heads is None:
        return Unknown(why="config.json: num_attention_heads: missing")
    kv_heads = text.count("num_key_value_heads", "num_kv_heads", "multi_query_group_num") or heads
    size = text.count("head_dim", "attention_head_dim", "kv_channels")
    if size is None:
        hidden = text.count("hidden_size", "n_embd", "d_model")
        if hidden is None:
            return Unknown(why="config.json: hidden_size: missing, and so is head_dim")
        size = hidden // heads
    return kv_heads, size + (text.count("v_head_dim") or size)


def _kinds(text: ConfigReader, layers: int) -> tuple[int, int, int] | Unknown:
    """How many layers are full, sliding, and state layers."""
    types = text.texts("layer_types") or text.texts("layers_block_type")
    if types is not None:
        return _counted(types, layers)
    pattern = text.text("hybrid_override_pattern")
    if pattern:
        if set(pattern) - set("M*-E") or len(pattern) != layers:
            return Unknown(why=f"config.json: hybrid_override_pattern: not {layers} letters out of M, *, - and E")
        return pattern.count("*"), 0, pattern.count("M")
    interval = text.count("full_attention_interval", most=MAX_LAYERS)
    if interval is not None:
        return layers // interval, 0, layers - layers // interval
    if not text.has("sliding_window") or not text.flag("use_sliding_window", default=True):
        return layers, 0, 0
    repeat = text.count("sliding_window_pattern", "_sliding_window_pattern", most=MAX_LAYERS)
    if repeat is None:
        # Configs that do not say it: every sixth layer of Gemma 3 is full, every second of Gemma 2, every fourth of
        # Cohere 2; in other families (Mistral 7B 0.1, Phi-3) all layers slide.
        repeat = {"gemma3_text": 6, "gemma3": 6, "gemma2": 2, "cohere2": 4, "gpt_oss": 2}.get(text.text("model_type"))
    full = layers // repeat if repeat else 0
    return full, layers - full, 0


def _counted(types: list[str], layers: int) -> tuple[int, int, int] | Unknown:
    if len(types) != layers:
        return Unknown(why=f"config.json: layer_types: has {len(types)} entries for {layers} layers")
    full = sliding = state = 0
    for kind in types:
        if kind in _SLIDING_WORDS:
            sliding += 1
        elif kind in _STATE_WORDS:
            state += 1
        elif kind in _FULL_WORDS:
            full += 1
        elif kind not in ("mlp", "moe"):
            return Unknown(why=f"config.json: layer_types: {kind[:40]!r} layers are not computed")
    return full, sliding, state


def _state_group(text: ConfigReader, layers: int) -> LayerGroup | Unknown:
    """State layers: Qwen's gated delta nets, or Mamba 2. The recurrent state has 4 bytes by default."""
    element = {"bfloat16": 2, "float16": 2}.get(text.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype"), 4)
    value_heads = text.count("linear_num_value_heads")
    if value_heads is not None:
        key_heads = text.count("linear_num_key_heads")
        key, value = text.count("linear_key_head_dim"), text.count("linear_value_head_dim")
        kernel = text.count("linear_conv_kernel_dim")
        if key_heads is None or key is None or value is None or kernel is None:
            return Unknown(why="config.json: linear_num_key_heads, linear_*_head_dim, linear_conv_kernel_dim: missing")
        numbers, channels = value_heads * key * value, 2 * key_heads * key + value_heads * value
    else:
        heads = text.count("mamba_num_heads", "mamba_n_heads")
        size = text.count("mamba_head_dim", "mamba_d_head")
        state, groups = text.count("ssm_state_size", "mamba_d_state"), text.count("n_groups", "mamba_n_groups")
        kernel = text.count("conv_kernel", "mamba_d_conv")
        if heads is None or size is None or state is None or groups is None or kernel is None:
            return Unknown(why="config.json: the size of the state layers is missing (mamba_* or linear_* fields)")
        numbers, channels = heads * size * state, heads * size + 2 * groups * state
    conv = channels * (kernel - 1)
    return LayerGroup(kind=LayerKind.STATE, layers=layers, state=numbers, state_element=element, conv=conv)
