"""How many bytes a weight has, by ``quantization_config`` and data type, and the sums of a checkpoint's tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

import orjson

from airunway.sizing.values import ConfigReader, ModelConfigError, Unknown


class Quantized(StrEnum):
    """Which weights are quantized."""

    NONE = "none"
    LINEAR = "linear"
    """All but the embedding and the output layer."""
    EXPERTS = "experts"
    """The experts of a mixture only."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The bytes of one weight."""

    title: str
    """Name for people (``FP8``)."""
    weight: float
    """Bytes of a quantized weight, with its share of scales and zero points."""
    plain: int
    """Bytes of a weight that is not quantized."""
    scope: Quantized


_DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "float": 4, "float8_e4m3fn": 1}

_SAFETENSORS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8.0),
    **dict.fromkeys(("F32", "I32", "U32"), 4.0),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2.0),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 1.0),
    "F6_E2M3": 0.75,
    "F6_E3M2": 0.75,
    "F4": 0.5,
}

_KV = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "int8": 1.0,
    # 4 bits and one FP8 scale for 16 elements (vllm-project/vllm#37192: pages of 18,432 instead of 65,536 bytes).
    "nvfp4": 0.5625,
}


def kv_element(setting: str, *, plain: int) -> float | Unknown:
    """Bytes of an element of the KV cache for a value of ``kv_cache_dtype``; `plain` is that of the model's type."""
    if setting in ("", "auto"):
        return float(plain)
    return _KV.get(setting, Unknown(why=f"the size of kv_cache_dtype {setting[:40]!r} is not known"))


def precision_of(config: ConfigReader, text: ConfigReader) -> Precision | Unknown:
    """The precision of a checkpoint from its config.json. Raises ModelConfigError."""
    dtype = text.text("torch_dtype", "dtype") or config.text("torch_dtype", "dtype")
    plain = _DTYPES.get((dtype or "bfloat16").removeprefix("torch."))
    if plain is None:
        return Unknown(why=f"config.json: torch_dtype: the size of {dtype[:40]!r} is not known")
    quantization = config.below("quantization_config") or text.below("quantization_config")
    if quantization is None:
        if not dtype:
            return Unknown(why="config.json: torch_dtype: missing, and there is no quantization_config")
        return Precision(title=dtype.removeprefix("torch."), weight=float(plain), plain=plain, scope=Quantized.NONE)
    return _quantized(quantization, plain)


def _quantized(quantization: ConfigReader, plain: int) -> Precision | Unknown:
    method = quantization.text("quant_method").lower()
    if method in ("awq", "gptq", "gptq_marlin", "awq_marlin", "auto-round", "auto_round"):
        bits = quantization.count("bits", "w_bit", most=16)
        if bits is None:
            return Unknown(why="config.json: quantization_config.bits: missing")
        group = quantization.count("group_size", "q_group_size", least=-1)
        # Symmetric GPTQ has packed zero points too: the kernels drop them, the checkpoint has them.
        return _integers(f"{method.upper()} int{bits}", bits=bits, group=group, zeros=True, plain=plain)
    if method in ("fp8", "fbgemm_fp8", "modelopt_fp8"):
        return Precision(title="FP8", weight=1.0 + 4 / 128**2, plain=plain, scope=Quantized.LINEAR)
    if method == "mxfp4":
        return Precision(title="MXFP4", weight=0.5 + 1 / 32, plain=plain, scope=Quantized.EXPERTS)
    if method in ("modelopt", "modelopt_fp4", ""):
        algorithm = quantization.text("quant_algo").upper()
        if algorithm == "NVFP4" or method == "modelopt_fp4":
            return Precision(title="NVFP4", weight=0.5 + 1 / 16, plain=plain, scope=Quantized.LINEAR)
        if algorithm == "FP8":
            return Precision(title="FP8", weight=1.0, plain=plain, scope=Quantized.LINEAR)
        return Unknown(why=f"config.json: quantization_config.quant_algo: {algorithm[:40]!r} is not known")
    if method == "bitsandbytes":
        four = quantization.flag("load_in_4bit")
        return Precision(
            title="bitsandbytes", weight=0.5 + 4 / 64 if four else 1.0, plain=plain, scope=Quantized.LINEAR
        )
    if method == "compressed-tensors":
        return _compressed(quantization, plain)
    return Unknown(why=f"config.json: quantization_config.quant_method: {method[:40]!r} is not known")


def _compressed(quantization: ConfigReader, plain: int) -> Precision | Unknown:
    """The one group of weights of a compressed-tensors checkpoint."""
    groups = quantization.below("config_groups")
    group = groups.below("group_0") if groups is not None else None
    weights = group.below("weights") if group is not None else None
    if weights is None or (groups is not None and groups.has("group_1")):
        return Unknown(why="config.json: quantization_config.config_groups: not one group of weights")
    bits = weights.count("num_bits", most=16)
    if bits is None:
        return Unknown(why="config.json: quantization_config.config_groups.group_0.weights.num_bits: missing")
    kind = weights.text("type")
    size = weights.count("group_size", least=-1)
    if kind == "float" and bits == 4:
        return Precision(title="NVFP4", weight=0.5 + 1 / (size or 16), plain=plain, scope=Quantized.LINEAR)
    if bits == 8:
        return Precision(title="FP8" if kind == "float" else "int8", weight=1.0, plain=plain, scope=Quantized.LINEAR)
    return _integers(
        f"int{bits}", bits=bits, group=size, zeros=not weights.flag("symmetric", default=True), plain=plain
    )


def _integers(title: str, *, bits: int, group: int | None, zeros: bool, plain: int) -> Precision:
    """Packed integers with a scale of two bytes, and perhaps a packed zero point, for each group."""
    extra = (2 + (bits / 8 if zeros else 0)) / group if group and group > 0 else 0.0
    return Precision(title=title, weight=bits / 8 + extra, plain=plain, scope=Quantized.LINEAR)


LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, as a little-endian number of this many bytes."""
MAX_HEADER = 100_000_000
"""The longest header that the format allows, in bytes."""

_EXPERT = re.compile(r"\.experts?\.|\.experts_|mlp\.experts\b")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings)\.")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d{1,6})\.")


@dataclass(frozen=True, kw_only=True)
class TensorTotals:
    """The bytes of a checkpoint's tensors."""

    size: int
    experts: int
    """Of these, the experts of a mixture."""
    embedding: int
    """Of these, the table of input embeddings."""
    extra: int = 0
    """Bytes of layers beyond the model's own, for multi-token prediction; not part of `size`."""


def header_length(start: bytes, *, file: str) -> int:
    """The length of the header of a safetensors file. Raises ModelConfigError for one that no file may have."""
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if len(start) < LENGTH_BYTES or not 2 <= length <= MAX_HEADER:
        raise ModelConfigError(file, "", f"not a safetensors file: its header would have {length:,} bytes")
    return length


def tensors_in(header: bytes, *, file: str) -> dict[str, tuple[str, int]]:
    """Data type and number of elements of each tensor of a header. Raises ModelConfigError."""
    try:
        decoded = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise ModelConfigError(file, "", f"the header is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise ModelConfigError(file, "", "the header is not a JSON object")
    return {name: _tensor(name, entry, file=file) for name, entry in decoded.items() if name != "__metadata__"}


def _tensor(name: str, entry: Any, *, file: str) -> tuple[str, int]:
    shape = entry.get("shape") if isinstance(entry, Mapping) else None
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 2**48 for size in shape):
        raise ModelConfigError(file, f"{name[:80]}.shape", "must be a list of whole numbers from 0")
    return str(entry.get("dtype")), prod(shape)


def sum_tensors(tensors: Iterable[tuple[str, tuple[str, int]]], *, layers: int | None, file: str) -> TensorTotals:
    """The bytes of all tensors, given as name, data type and elements; `layers` are the model's own layers.

    Raises ModelConfigError for a data type whose size is not known.
    """
    size = experts = embedding = extra = 0.0
    for name, (dtype, elements) in tensors:
        element = _SAFETENSORS.get(dtype)
        if element is None:
            raise ModelConfigError(file, f"{name[:80]}.dtype", f"the size of {dtype[:20]!r} is not known")
        found = _LAYER.search(name)
        if layers is not None and found is not None and int(found[1]) >= layers and "vision" not in name:
            extra += elements * element
            continue
        size += elements * element
        if _EXPERT.search(name) and "shared" not in name:
            experts += elements * element
        elif _EMBEDDING.search(name):
            embedding += elements * element
    return TensorTotals(size=int(size), experts=int(experts), embedding=int(embedding), extra=int(extra))
