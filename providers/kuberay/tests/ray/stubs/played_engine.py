"""An engine that loads for a moment and answers with its process id: Ray's replicas, ingress and proxies are real.

Named by ``RAYLLM_VLLM_ENGINE_CLS``. A `max_model_len` of 131072 does not fit into its memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from ray.llm._internal.serve.core.configs.openai_api_models import ChatCompletionResponse

LOADS = 3.0
"""Seconds."""
ANSWERS = 0.5
"""Seconds."""


class PlayedEngine:
    def __init__(self, llm_config: Any) -> None:
        self._config = llm_config

    async def start(self) -> None:
        await asyncio.sleep(LOADS)
        if self._config.engine_kwargs.get("max_model_len") == 131072:
            raise RuntimeError("CUDA out of memory. Tried to allocate 64.00 GiB. GPU 0 has a total capacity of 8 GiB")

    async def check_health(self) -> None:
        """It is well."""

    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        await asyncio.sleep(ANSWERS)
        message = {"role": "assistant", "content": f"pid {os.getpid()}"}
        yield ChatCompletionResponse(
            id="1",
            object="chat.completion",
            created=0,
            model=request.model,
            choices=[{"index": 0, "message": message}],
            kv_transfer_params={},  # what a decode replica is told of where the prefill's cache is
        )
