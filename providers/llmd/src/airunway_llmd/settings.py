"""The provider's settings: images, resources of pickers, roll-outs, and the size of a node."""

from __future__ import annotations

from dataclasses import dataclass

from airunway.sdk import VLLM_IMAGE, serving, setting

_ROUTER = "ghcr.io/llm-d/llm-d-router"


@dataclass(frozen=True, kw_only=True)
class Settings(serving.NodeSettings):
    """Read at startup from the chart's values or ``--set``. Raises ValueError for a number out of range."""

    vllm_image: str = setting(VLLM_IMAGE, "Image of vLLM where a deployment names none.", kept=True)
    picker_image: str = setting(f"{_ROUTER}-endpoint-picker:v0.10.0", "Image of the endpoint pickers.", kept=True)
    picker_version: str = setting(
        "",
        "Release of pickerImage, such as v0.10, where its tag does not tell: flags and configuration go by it.",
        kept=True,
    )
    picker_cpu: str = setting("500m", "CPU that each picker requests.")
    picker_memory: str = setting("512Mi", "Memory that each picker requests.")
    sidecar_image: str = setting(
        f"{_ROUTER}-disagg-sidecar:v0.10.0", "Image of the routing sidecars of decode pods.", kept=True
    )
    sidecar_version: str = setting(
        "", "Release of sidecarImage, such as v0.10, where its tag does not tell: its flags go by it.", kept=True
    )
