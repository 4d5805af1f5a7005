"""The AI Runway provider without an operator: vLLM, SGLang, TensorRT-LLM and llama.cpp as plain Deployments.

A replica over several nodes becomes a LeaderWorkerSet, if that is installed. `provider` is the plugin object that the
entry point names.
"""

from airunway_vllm.provider import provider

__all__ = ["provider"]
