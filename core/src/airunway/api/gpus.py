"""Families of GPUs by the names of their extended resources: whose they are, and whether several can run one model.

``nvidia.com/mig-1g.12gb`` is a slice of an NVIDIA GPU: it runs the images for NVIDIA GPUs, and no two slices form one
device, because CUDA shows a process one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from airunway.api.names import DEVICE_CLASS_PREFIX


@dataclass(frozen=True, kw_only=True)
class GpuFamily:
    """What follows from the name of a GPU resource."""

    vendor: str
    """``nvidia``, ``amd``, ``intel`` or ``habana``; empty for an unknown name."""
    part: str = ""
    """``slice`` (of a partitioned GPU) or ``share`` (of a GPU in time slices or under MPS); empty for a whole GPU."""


_CLASS = re.escape(DEVICE_CLASS_PREFIX)
_NAMES: tuple[tuple[re.Pattern[str], GpuFamily], ...] = tuple(
    (re.compile(pattern, re.ASCII), family)
    for pattern, family in (
        (r"nvidia\.com/mig-[a-z0-9.+]+\.shared", GpuFamily(vendor="nvidia", part="share")),
        (r"nvidia\.com/mig-[a-z0-9.+]+", GpuFamily(vendor="nvidia", part="slice")),
        (r"nvidia\.com/gpu\.shared", GpuFamily(vendor="nvidia", part="share")),
        (r"nvidia\.com/gpu", GpuFamily(vendor="nvidia")),
        # Partitions of one AMD GPU are devices of their own, over which RCCL splits tensors.
        (r"amd\.com/(gpu[a-z0-9_.]*|[a-z]px_nps[0-9])", GpuFamily(vendor="amd")),
        (r"gpu\.intel\.com/(i915|xe)", GpuFamily(vendor="intel")),
        (r"habana\.ai/gaudi", GpuFamily(vendor="habana")),
        # The device classes that the drivers of the vendors install.
        (_CLASS + r"gpu\.nvidia\.com", GpuFamily(vendor="nvidia")),
        (_CLASS + r"mig\.nvidia\.com", GpuFamily(vendor="nvidia", part="slice")),
        (_CLASS + r"gpu\.amd\.com", GpuFamily(vendor="amd")),
        (_CLASS + r"gpu\.intel\.com", GpuFamily(vendor="intel")),
    )
)


@lru_cache(maxsize=256)
def gpu_family(resource: str) -> GpuFamily:
    """The family of a GPU resource; without a vendor if the name is not known."""
    return next((family for pattern, family in _NAMES if pattern.fullmatch(resource)), GpuFamily(vendor=""))
