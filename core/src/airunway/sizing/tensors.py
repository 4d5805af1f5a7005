"""Sums the tensors of a checkpoint from the headers of its safetensors files, without reading a weight."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import orjson

from airunway.sizing.fields import ModelConfigError
from airunway.sizing.precision import tensor_element

__all__ = ["LENGTH_BYTES", "MAX_HEADER", "TensorTotals", "header_length", "sum_tensors", "tensors_in"]

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
        element = tensor_element(dtype)
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
