"""Labels, finalizers and limits of the Dynamo operator and Grove."""

from __future__ import annotations

__all__ = [
    "API_GROUP",
    "COMPONENT",
    "COMPONENT_TYPE",
    "ENABLE_GROVE",
    "FINALIZER",
    "FRONTEND_PORT",
    "GRAPH",
    "GROVE_GROUP",
    "LINGERS",
    "LONGEST_COMBINED",
    "MANAGER",
    "SELECTOR",
    "SYSTEM_PORT",
    "TEMPLATE_HASH",
    "WORKERS",
    "WORKER_HASH",
]

API_GROUP, GROVE_GROUP = "nvidia.com", "grove.io"
MANAGER = "dynamo-operator"
"""Field manager of the simulator's writes; different from every manager of AI Runway."""
FINALIZER = f"{API_GROUP}/finalizer"
LINGERS = f"simulator.{API_GROUP}/lingers"
"""Finalizer of objects that should linger after their deletion."""

GRAPH = f"{API_GROUP}/dynamo-graph-deployment-name"
COMPONENT = f"{API_GROUP}/dynamo-component"
COMPONENT_TYPE = f"{API_GROUP}/dynamo-component-type"
SELECTOR = f"{API_GROUP}/selector"
WORKER_HASH = f"{API_GROUP}/dynamo-worker-hash"
TEMPLATE_HASH = f"{GROVE_GROUP}/pod-template-hash"
ENABLE_GROVE = f"{API_GROUP}/enable-grove"

WORKERS = ("worker", "prefill", "decode")
FRONTEND_PORT, SYSTEM_PORT = 8000, 9090
LONGEST_COMBINED = 45
"""Maximum number of characters of graph and component name together on Grove."""
