"""GPU models: names, memory and rank of each, as tables that distributions add.

An entry point of the group ``airunway.gpu_models`` names a sequence of `GpuModel`. Those of NVIDIA and AMD are here.
Their tier is the bandwidth of the GPU's memory in units of 100 GB/s, by the vendors' data sheets: it bounds how fast
tokens are generated.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import entry_points

log = logging.getLogger(__name__)

GROUP = "airunway.gpu_models"
"""The entry point group of tables."""

_SHARED = re.compile(r"-shared$")
_VENDOR = re.compile(r"^(nvidia|amd|amd-instinct|tesla|nvidia-tesla|nvidia-geforce|geforce|instinct|amd-radeon)-")

_INSTINCT = re.compile(r"^(?:amd-)?instinct-(mi\d+[a-z]?)-")
"""AMD's labels end with the form of the board, as in ``AMD_Instinct_MI300X_OAM``."""


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """One model of GPU."""

    name: str
    """As status and messages have it, such as H100."""
    memory: int
    """Of the board, in GiB."""
    tier: int
    """Rank among all models: of two templates that of the greater one is chosen."""
    products: tuple[str, ...] = ()
    """What node labels call it."""
    devices: tuple[str, ...] = ()
    """PCI device ids, in lower case."""
    families: tuple[str, ...] = ()
    """Further names that a template may use, which several models may share, such as A100."""


@dataclass(frozen=True, kw_only=True)
class GpuModels:
    """The models of all tables."""

    models: tuple[GpuModel, ...] = ()
    """All of them; of two with a name, product or device the first counts."""
    _products: dict[str, GpuModel] = field(default_factory=dict, repr=False, compare=False, hash=False)
    _devices: dict[str, GpuModel] = field(default_factory=dict, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        for model in self.models:
            for product in (model.name, *model.products):
                self._products.setdefault(normal(product), model)
            for device in model.devices:
                self._devices.setdefault(device.lower(), model)

    def of_product(self, product: str) -> GpuModel | None:
        """The model that a label of a node calls so."""
        name = normal(product)
        board = _INSTINCT.match(name)
        others = (_VENDOR.sub("", name), board[1] if board else "")
        return self._products.get(name) or next((found for each in others if (found := self._products.get(each))), None)

    def of_device(self, device: str) -> GpuModel | None:
        """The model with that PCI device id."""
        return self._devices.get(device.lower().removeprefix("0x"))


def normal(name: str) -> str:
    """A product's name as it is compared: lower case, one dash for blanks, without what marks a GPU as shared."""
    return _SHARED.sub("", re.sub(r"[\s_-]+", "-", name.strip().lower()))


def installed_models() -> GpuModels:
    """The models of all installed distributions. A table that cannot be read is logged and left out."""
    found: list[GpuModel] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            found.extend(_checked(entry.load()))
        except Exception:  # a distribution of others: the other tables are used
            log.exception("the GPU table %s (%s) cannot be used", entry.name, entry.value)
    return GpuModels(models=tuple(found))


def _checked(table: Iterable[object]) -> list[GpuModel]:
    """The entries of a table. Raises TypeError for one that is no GpuModel."""
    found = []
    for each in table:
        if not isinstance(each, GpuModel):
            raise TypeError(f"{each!r} is not a GpuModel")
        found.append(each)
    return found


NVIDIA: tuple[GpuModel, ...] = (
    GpuModel(name="GB300", memory=288, tier=80, products=("NVIDIA-GB300",)),
    GpuModel(name="B300", memory=288, tier=80, products=("NVIDIA-B300", "NVIDIA-B300-SXM6-AC")),
    GpuModel(name="GB200", memory=186, tier=80, products=("NVIDIA-GB200",)),
    GpuModel(name="B200", memory=180, tier=77, products=("NVIDIA-B200",)),
    GpuModel(name="H200", memory=141, tier=48, products=("NVIDIA-H200", "NVIDIA-H200-141GB")),
    GpuModel(name="H200-NVL", memory=141, tier=48, products=("NVIDIA-H200-NVL",), families=("H200",)),
    GpuModel(name="GH200", memory=96, tier=40, products=("NVIDIA-GH200-480GB",)),
    GpuModel(name="H100-NVL", memory=94, tier=39, products=("NVIDIA-H100-NVL",), families=("H100",)),
    GpuModel(
        name="H100",
        memory=80,
        tier=33,
        products=(
            "NVIDIA-H100-80GB-HBM3",
            "NVIDIA-H100-SXM5-80GB",
            "NVIDIA-H100-80GB",
            "NVIDIA-H100-Mega-80GB",
            "H100-80GB",
        ),
    ),
    GpuModel(name="H100-PCIe", memory=80, tier=20, products=("NVIDIA-H100-PCIe",), families=("H100",)),
    GpuModel(
        name="A100-80GB",
        memory=80,
        tier=20,
        products=("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-A100-80GB"),
        families=("A100",),
    ),
    GpuModel(
        name="A100-40GB",
        memory=40,
        tier=15,
        products=("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB", "NVIDIA-TESLA-A100", "A100-SXM4-40GB"),
        families=("A100",),
    ),
    GpuModel(
        name="RTX-PRO-6000",
        memory=96,
        tier=17,
        products=(
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
            "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
        ),
    ),
    GpuModel(name="RTX-5090", memory=32, tier=17, products=("NVIDIA-GeForce-RTX-5090",)),
    GpuModel(name="RTX-4090", memory=24, tier=10, products=("NVIDIA-GeForce-RTX-4090",)),
    GpuModel(name="RTX-6000-Ada", memory=48, tier=9, products=("NVIDIA-RTX-6000-Ada-Generation",)),
    GpuModel(name="RTX-3090", memory=24, tier=9, products=("NVIDIA-GeForce-RTX-3090",)),
    GpuModel(name="A30", memory=24, tier=9, products=("NVIDIA-A30",)),
    GpuModel(name="V100-32GB", memory=32, tier=9, products=("Tesla-V100-SXM2-32GB",), families=("V100",)),
    GpuModel(
        name="V100-16GB",
        memory=16,
        tier=9,
        products=("Tesla-V100-SXM2-16GB", "Tesla-V100-PCIE-16GB", "NVIDIA-TESLA-V100"),
        families=("V100",),
    ),
    GpuModel(name="L40S", memory=48, tier=8, products=("NVIDIA-L40S",)),
    GpuModel(name="L40", memory=48, tier=8, products=("NVIDIA-L40",)),
    GpuModel(name="RTX-A6000", memory=48, tier=7, products=("NVIDIA-RTX-A6000",)),
    GpuModel(name="A40", memory=48, tier=6, products=("NVIDIA-A40",)),
    GpuModel(name="A10", memory=24, tier=6, products=("NVIDIA-A10",)),
    GpuModel(name="A10G", memory=24, tier=6, products=("NVIDIA-A10G",)),
    GpuModel(name="L4", memory=24, tier=3, products=("NVIDIA-L4",)),
    GpuModel(name="T4", memory=16, tier=3, products=("Tesla-T4", "NVIDIA-TESLA-T4")),
)
"""GPUs of NVIDIA, by the product names of GPU feature discovery and of clouds."""

AMD: tuple[GpuModel, ...] = (
    GpuModel(
        name="MI355X",
        memory=288,
        tier=80,
        products=("AMD_Instinct_MI355X", "AMD_Instinct_MI355_OAM"),
        devices=("75a3", "75b3"),
    ),
    GpuModel(
        name="MI350X",
        memory=288,
        tier=80,
        products=("AMD_Instinct_MI350X", "AMD_Instinct_MI350_OAM"),
        devices=("75a0", "75b0"),
    ),
    GpuModel(
        name="MI325X",
        memory=256,
        tier=60,
        products=("AMD_Instinct_MI325X", "AMD_Instinct_MI325_OAM"),
        devices=("74a5", "74b9"),
    ),
    GpuModel(
        name="MI300X",
        memory=192,
        tier=53,
        products=("AMD_Instinct_MI300X", "AMD_Instinct_MI300X_OAM", "AMD_Instinct_MI300X_VF"),
        devices=("74a1", "74b5"),
    ),
    GpuModel(name="MI300X-HF", memory=192, tier=53, devices=("74a9", "74bd"), families=("MI300X",)),
    GpuModel(name="MI300A", memory=128, tier=53, products=("AMD_Instinct_MI300A",), devices=("74a0",)),
    GpuModel(
        name="MI308X",
        memory=192,
        tier=53,
        products=("AMD_Instinct_MI308X",),
        devices=("74a2",),
    ),
    GpuModel(name="MI308X-HF", memory=192, tier=53, devices=("74a8",), families=("MI308X",)),
    GpuModel(
        name="MI250X",
        memory=64,
        tier=16,
        products=("AMD_Instinct_MI250X", "AMD_Instinct_MI250"),
        devices=("7408", "740c"),
        families=("MI250",),
    ),
    GpuModel(name="MI210", memory=64, tier=16, products=("AMD_Instinct_MI210",), devices=("740f",)),
    GpuModel(name="MI100", memory=32, tier=12, products=("AMD_Instinct_MI100",), devices=("738c", "738e")),
)
"""GPUs of AMD, by the names and device ids of its node labeller. Kubernetes sees an MI250X as two GPUs."""
