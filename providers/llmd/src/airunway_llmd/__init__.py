"""The AI Runway provider for llm-d: vLLM Deployments behind an InferencePool, optionally with prefill workers.

llm-d has no custom resource of its own; it consists of model servers, pool, endpoint picker and routing sidecars.
`provider` is the plugin object that the entry point names.
"""

from airunway_llmd.provider import provider

__all__ = ["provider"]
