"""The names that KAITO puts on objects, and those by which a test or a user steers the simulated one."""

from __future__ import annotations

__all__ = [
    "API_VERSION",
    "BENCHMARK_TOKENS",
    "CONFIG_KEY",
    "DISABLE_BENCHMARK",
    "FINALIZER",
    "GROUP",
    "HASH",
    "MANAGER",
    "REVISION",
    "REVISION_OWNER",
    "WORKSPACE",
]

GROUP = "kaito.sh"
API_VERSION = f"{GROUP}/v1beta1"
MANAGER = "kaito-workspace-controller"
"""Field manager of the simulator's writes; different from every manager of AI Runway."""

WORKSPACE = f"{GROUP}/workspace"
"""Label with the Workspace's name on its pods; selector of its StatefulSet and Services."""
FINALIZER = "workspace.finalizer.kaito.sh"
HASH = "workspace.kaito.io/hash"
REVISION = "workspace.kaito.io/revision"
REVISION_OWNER = "workspace.kaito.io/name"
"""Label with the Workspace's name on its ControllerRevisions."""
DISABLE_BENCHMARK = f"{GROUP}/disable-benchmark"
CONFIG_KEY = "inference_config.yaml"

BENCHMARK_TOKENS = "simulator.airunway.ai/benchmark-tokens-per-minute"
"""Annotation on a Workspace: the result of its benchmark. Without it there is none, as in a pod without log."""
