"""KAITO's labels, annotations and finalizers, and an annotation that controls the simulator."""

from __future__ import annotations

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
CREATED_BY = f"inferenceset.{GROUP}/created-by"
"""Label with the InferenceSet's name on its Workspaces, their StatefulSets' selectors and their pods."""
SET_FINALIZER = f"inferenceset.finalizer.{GROUP}"
SET_HASH = "inferenceset.kaito.io/hash"
SET_REVISION = "inferenceset.kaito.io/revision"
SET_REVISION_OWNER = "inferenceset.kaito.io/name"
DISABLE_BENCHMARK = f"{GROUP}/disable-benchmark"
CONFIG_KEY = "inference_config.yaml"

BENCHMARK_TOKENS = "simulator.airunway.ai/benchmark-tokens-per-minute"
"""Annotation on a Workspace with the result of its benchmark. Without it the benchmark has no result, as in a pod
without a log."""
