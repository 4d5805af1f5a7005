"""The provider's own configuration: images, roll-outs, and how large a node is."""

from __future__ import annotations

from dataclasses import dataclass

from airunway.sdk import DEFAULT_IMAGES, setting

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Read at start from the chart's values or ``--set``. Raises ValueError for a number that makes no sense."""

    vllm_image: str = setting(DEFAULT_IMAGES["vllm"], "Image of vLLM where a deployment names none.")
    sglang_image: str = setting("", "Image of SGLang where a deployment names none; empty: it must name one.")
    trtllm_image: str = setting("", "Image of TensorRT-LLM where a deployment names none; empty: it must name one.")
    llamacpp_image: str = setting("", "Image of llama.cpp where a deployment names none; empty: it must name one.")
    max_surge: int = setting(
        0, "Replicas that a roll-out may make beyond those asked for; each needs GPUs of its own. 0: none."
    )
    gpus_per_node: int = setting(8, "GPUs of the largest node: a replica with more runs on several nodes.")

    def __post_init__(self) -> None:
        if not 0 <= self.max_surge <= 32:
            raise ValueError(f"setting 'maxSurge' must be from 0 to 32, not {self.max_surge}")
        if not 1 <= self.gpus_per_node <= 64:
            raise ValueError(f"setting 'gpusPerNode' must be from 1 to 64, not {self.gpus_per_node}")

    def image(self, engine: str) -> str:
        """The image of an engine where a deployment names none; empty if there is none."""
        images = {
            "vllm": self.vllm_image,
            "sglang": self.sglang_image,
            "trtllm": self.trtllm_image,
            "llamacpp": self.llamacpp_image,
        }
        return images.get(engine, "")
