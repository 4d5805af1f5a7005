"""The provider's own configuration: the image, how large heads are, and what a change may cost."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airunway.sdk import setting

__all__ = ["Settings"]

_DURATION = re.compile(r"(\d+(h|m|s))+|\d+")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Read at start from the chart's values or ``--set``. Raises ValueError for a value that makes no sense."""

    image: str = setting(
        "rayproject/ray-llm:2.56.0-py312-cu130", "Image of head and workers where a deployment names none."
    )
    head_cpu: str = setting("4", "CPU of the Ray head, in cores.")
    head_memory: str = setting("16Gi", "Memory of the Ray head.")
    worker_memory: str = setting("32Gi", "Memory of a worker where a deployment names none; empty: no limit.")
    upgrade: str = setting(
        "NewCluster",
        "What a change of the pods does: NewCluster starts a second Ray cluster beside the one that serves (twice the "
        "GPUs until it has taken over), Recreate takes the old one away first (no spare GPUs, and an outage).",
    )
    initializing_timeout: str = setting(
        "", "After how long KubeRay (1.5 and newer) gives a start up for good, such as 2h; empty: never."
    )

    def __post_init__(self) -> None:
        if self.upgrade not in ("NewCluster", "Recreate"):
            raise ValueError(f"setting 'upgrade' must be NewCluster or Recreate, not {self.upgrade!r}")
        if self.initializing_timeout and not _DURATION.fullmatch(self.initializing_timeout):
            text = f"setting 'initializingTimeout' must be a duration such as 2h, not {self.initializing_timeout!r}"
            raise ValueError(text)
