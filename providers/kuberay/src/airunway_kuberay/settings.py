"""The provider's settings: images, sizes of Ray heads, roll-outs, and protection of Ray clusters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airunway.sdk import NetworkSettings, setting

_DURATION = re.compile(r"(\d+(h|m|s))+|\d+")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Settings(NetworkSettings):
    """Read at startup from the chart's values or ``--set``. Raises ValueError for an invalid value."""

    image: str = setting(
        "rayproject/ray-llm:2.56.0-py312-cu130", "Image of head and workers where a deployment names none.", kept=True
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

    engine_change: str = setting(
        "InPlace",
        "What a change of the engine's settings does: InPlace has Ray stop a replica before the next one loads (no "
        "model meanwhile where there is one), NewCluster takes it through a second Ray cluster (twice the GPUs).",
    )
    target_ongoing_requests: int = setting(
        2, "Requests under way at once per replica that autoscaling aims at, where a deployment names no target."
    )
    operator_namespace: str = setting(
        "kuberay-system", "Namespace of KubeRay's operator, which a NetworkPolicy lets into Ray clusters."
    )
    network_policy: str = setting(
        "WhereNeeded",
        "Where a NetworkPolicy keeps other pods away from Ray's dashboard and control ports: WhereNeeded (where Ray "
        "cannot ask for a token), Always or Never.",
    )
    open_clusters: str = setting(
        "Refuse",
        "What becomes of a Ray cluster that neither a token nor a NetworkPolicy protects, so that any pod can run code "
        "in it: Refuse or Allow.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, allowed in (
            ("engineChange", self.engine_change, ("InPlace", "NewCluster")),
            ("networkPolicy", self.network_policy, ("WhereNeeded", "Always", "Never")),
            ("openClusters", self.open_clusters, ("Refuse", "Allow")),
        ):
            if value not in allowed:
                raise ValueError(f"setting {name!r} must be {' or '.join(allowed)}, not {value!r}")
        if not 1 <= self.target_ongoing_requests <= 100_000:
            raise ValueError(f"setting 'targetOngoingRequests' must be 1 to 100000, not {self.target_ongoing_requests}")
        if not _NAMESPACE.fullmatch(self.operator_namespace):
            text = f"setting 'operatorNamespace' must be the name of a namespace, not {self.operator_namespace!r}"
            raise ValueError(text)
        if self.upgrade not in ("NewCluster", "Recreate"):
            raise ValueError(f"setting 'upgrade' must be NewCluster or Recreate, not {self.upgrade!r}")
        if self.initializing_timeout and not _DURATION.fullmatch(self.initializing_timeout):
            text = f"setting 'initializingTimeout' must be a duration such as 2h, not {self.initializing_timeout!r}"
            raise ValueError(text)
