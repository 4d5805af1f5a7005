"""The provider's settings: images, nodes, and whether to use Grove."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airunway.sdk import NetworkSettings, setting

_VERSION = re.compile(r"\d{1,4}\.\d{1,4}\.\d{1,4}")


@dataclass(frozen=True, kw_only=True)
class Settings(NetworkSettings):
    """Read at startup from the chart's values or ``--set``. Raises ValueError for an invalid value."""

    runtime_version: str = setting(
        "",
        "Release of the runtime images where a deployment names none (1.3.1); empty: the one that fits the operator.",
        kept=True,
    )
    registry: str = setting("nvcr.io/nvidia/ai-dynamo", "Where the runtime images are.", kept=True)
    gpus_per_node: int = setting(8, "GPUs of the largest node: a worker with more runs on several nodes.")
    grove: bool = setting(True, "Whether graphs may run on Grove where it is installed.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runtime_version and not _VERSION.fullmatch(self.runtime_version):
            raise ValueError(f"setting 'runtimeVersion' must be a release such as 1.3.1, not {self.runtime_version!r}")
        if not self.registry or self.registry != self.registry.strip().rstrip("/"):
            raise ValueError(f"setting 'registry' must be a registry and a path, without a last '/': {self.registry!r}")
        if not 1 <= self.gpus_per_node <= 64:
            raise ValueError(f"setting 'gpusPerNode' must be from 1 to 64, not {self.gpus_per_node}")
