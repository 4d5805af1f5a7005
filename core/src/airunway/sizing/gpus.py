"""Memory and bandwidth of the GPUs of a node: from its labels, else from a table; what neither has stays unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import orjson

from airunway.quantity import parse_quantity
from airunway.sizing.values import GIB, Unknown

__all__ = ["GpuFacts", "gpu_named", "gpu_of_labels", "known_gpus"]

_MIB = 2**20
_KEPT = 0.983
"""Part of a board's memory that CUDA offers: of 24,564 MiB on an RTX 4090 vLLM sees 23.6 GiB, of 16,384 MiB on a V100
15.77 GiB. Of larger boards the driver keeps less."""

_PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "amd.com/gpu.family",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
_MEGABYTES = re.compile(r"[0-9]{1,7}", re.ASCII)
_PARTITION = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d{1,4})gb", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """One kind of GPU."""

    product: str
    """Name as the node's label or the table has it; empty if neither is there."""
    memory: int | Unknown
    """Bytes that programs can allocate."""
    memory_source: str = ""
    bandwidth: float | None = None
    """Bytes per second of its memory, by the vendor's data sheet; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    memory: int
    memory_source: str
    bandwidth: float


@cache
def _table() -> Mapping[str, _Entry]:
    """The GPUs of the table by every name that they have."""
    rows: list[dict[str, Any]] = orjson.loads(resources.files("airunway.sizing").joinpath("gpus.json").read_bytes())
    found: dict[str, _Entry] = {}
    for row in rows:
        memory = int(row["memory"] * GIB) if "memory" in row else int(row["board"] * _MIB * _KEPT)
        entry = _Entry(memory=memory, memory_source=str(row["memorySource"]), bandwidth=row["bandwidth"] * 1e9)
        found.update(dict.fromkeys(row["names"], entry))
    return found


def known_gpus() -> tuple[str, ...]:
    """The names of the table, those that a user may write for ``--gpu``."""
    return tuple(sorted(_table()))


def _normal(product: str) -> str:
    name = re.sub(r"[\s_]+", "-", product.strip().lower())
    return re.sub(r"(-shared|-mig-.*)$", "", name)


def gpu_named(product: str) -> GpuFacts:
    """The facts of a product out of the table; its memory is unknown if the table does not have it."""
    entry = _table().get(_normal(product))
    if entry is None:
        return GpuFacts(
            product=product, memory=Unknown(why=f"{product[:60] or 'a GPU without a product'} is not in the table")
        )
    return GpuFacts(
        product=product, memory=entry.memory, memory_source=f"table: {entry.memory_source}", bandwidth=entry.bandwidth
    )


def gpu_of_labels(labels: Mapping[str, str], resource: str) -> GpuFacts:
    """The facts of a node's GPUs with that resource name.

    A shared GPU (time slices) has no memory of its own, so that it stays unknown.
    """
    product = next((labels[name] for name in _PRODUCTS if labels.get(name)), "")
    table = gpu_named(product)
    partition = _PARTITION.fullmatch(resource)
    if partition is not None:
        profile = resource.removeprefix("nvidia.com/")
        label = labels.get(f"nvidia.com/{profile}.memory", "")
        memory = int(label) * _MIB if _MEGABYTES.fullmatch(label) else int(int(partition[2]) * 1e9)
        where = f"label nvidia.com/{profile}.memory" if label else f"the name of {resource}"
        return GpuFacts(product=f"{product} {profile}".strip(), memory=int(memory * _KEPT), memory_source=where)
    if resource == "nvidia.com/gpu.shared" or labels.get("nvidia.com/gpu.replicas", "1") not in ("", "0", "1"):
        return GpuFacts(
            product=product, memory=Unknown(why="the GPU is shared in time slices"), bandwidth=table.bandwidth
        )
    board = labels.get("nvidia.com/gpu.memory", "") or labels.get("karpenter.k8s.aws/instance-gpu-memory", "")
    if resource.startswith("nvidia.com/") and _MEGABYTES.fullmatch(board):
        size = int(board) * _MIB
        # A table entry for the same board knows what CUDA offers of it.
        exact = table.memory if isinstance(table.memory, int) and 0.97 * size <= table.memory <= size else None
        return GpuFacts(
            product=product,
            memory=exact if exact is not None else int(size * _KEPT),
            memory_source=f"label nvidia.com/gpu.memory: {board} MiB" + (f"; {table.memory_source}" if exact else ""),
            bandwidth=table.bandwidth,
        )
    vram = labels.get("amd.com/gpu.vram", "")
    if resource.startswith("amd.com/") and vram:
        try:
            size = int(parse_quantity(f"{vram}i" if vram[-1:] in "GMT" else vram))
        except ValueError:
            size = 0
        if size > 0:
            return GpuFacts(
                product=product,
                memory=int(size * _KEPT),
                memory_source=f"label amd.com/gpu.vram: {vram[:20]}",
                bandwidth=table.bandwidth,
            )
    if not product:
        return GpuFacts(product="", memory=Unknown(why="the node has no label with its GPU's product or memory"))
    return table
