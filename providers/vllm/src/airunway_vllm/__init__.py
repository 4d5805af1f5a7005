"""The AI Runway provider that needs no operator: vLLM, SGLang, TensorRT-LLM and llama.cpp as plain Deployments.

Several nodes for one replica are LeaderWorkerSets, where that is installed. Translation and data only; `provider` is
the plugin object that the entry point names.
"""

from airunway_vllm.provider import provider

__all__ = ["provider"]
