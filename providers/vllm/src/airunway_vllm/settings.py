"""The provider's settings: images, roll-outs, and the size of a node."""

from __future__ import annotations

from dataclasses import dataclass

from airunway.sdk import VLLM_IMAGE, serving, setting


@dataclass(frozen=True, kw_only=True)
class Settings(serving.NodeSettings):
    """Read at startup from the chart's values or ``--set``. Raises ValueError for a number out of range."""

    vllm_image: str = setting(VLLM_IMAGE, "Image of vLLM where a deployment names none.", kept=True)
    sglang_image: str = setting(
        "", "Image of SGLang where a deployment names none; empty: it must name one.", kept=True
    )
    trtllm_image: str = setting(
        "", "Image of TensorRT-LLM where a deployment names none; empty: it must name one.", kept=True
    )
    llamacpp_image: str = setting(
        "", "Image of llama.cpp where a deployment names none; empty: it must name one.", kept=True
    )

    def image(self, engine: str) -> str:
        """The default image of an engine; empty if there is none."""
        images = {
            "vllm": self.vllm_image,
            "sglang": self.sglang_image,
            "trtllm": self.trtllm_image,
            "llamacpp": self.llamacpp_image,
        }
        return images.get(engine, "")
