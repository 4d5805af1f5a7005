"""The provider's settings: how KAITO runs in this cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from airunway.sdk import VLLM_IMAGE, NetworkSettings, setting

BRING_YOUR_OWN = "byo"


@dataclass(frozen=True, kw_only=True)
class Settings(NetworkSettings):
    """Read at startup from the chart's values or ``--set``."""

    node_provisioner: str = setting(
        BRING_YOUR_OWN, "KAITO's own --node-provisioner: byo (nodes exist), or the name of what makes them."
    )
    instance_type: str = setting("", "Machine for nodes with GPUs, where KAITO makes nodes.")
    cpu_instance_type: str = setting("", "Machine for nodes without GPUs, where KAITO makes nodes.")
    instance_types: tuple[str, ...] = setting(
        (),
        "Other machines that a deployment may name (patterns with * and ?). "
        "Where none is configured and none is listed, it may name any.",
    )
    inference_set: Literal["Auto", "Always", "WhenScaled"] = setting(
        "Auto",
        "Whether a new deployment with one replica becomes an InferenceSet, which scales in place: Auto where KAITO's "
        "release has its controller on by default (0.11) and can run it; WhenScaled where that controller is off.",
    )
    partition: bool = setting(
        False, "Whether presets are held to exactly gpu.count GPUs (needs KAITO's gate enableAccelerator)."
    )
    vllm_image: str = setting(VLLM_IMAGE, "Image of vLLM where a deployment names none.", kept=True)
    gpu_node_selector: Mapping[str, str] = setting(
        {"nvidia.com/gpu.present": "true"}, "Labels that a node must have to be used for GPUs."
    )
    cpu_node_selector: Mapping[str, str] = setting(
        {"kubernetes.io/os": "linux"}, "Labels that a node must have to be used without GPUs."
    )

    @property
    def provisions_nodes(self) -> bool:
        return self.node_provisioner != BRING_YOUR_OWN
