"""The AI Runway provider for llm-d: vLLM as Deployments behind an InferencePool, prefill and decode apart if asked.

llm-d has no resource of its own: model servers, pool, endpoint picker and routing sidecars are what it is made of.
Translation and data only; `provider` is the plugin object that the entry point names.
"""

from airunway_llmd.provider import provider

__all__ = ["provider"]
