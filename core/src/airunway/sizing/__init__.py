"""How much GPU memory a model needs: weights, KV cache, the engine's reserve, and the nodes that have it. Pure.

Every number is a `Term` with its source. What is not known is an `Unknown`, what may not be read an `Unseen`.
"""

from airunway.sizing.catalogue import CATALOGUE_LABEL, catalogue, entries_of_config_maps, nearest, of_entry
from airunway.sizing.checkpoint import Checkpoint, Weights, gguf_checkpoint, read_checkpoint, unknown_checkpoint
from airunway.sizing.estimate import Estimate, Layout, Verdict, estimate, legal_tensor_parallel
from airunway.sizing.fit import Fit, NodeFit, fit
from airunway.sizing.nodes import (
    GpuFacts,
    NodeGpus,
    Placement,
    free_gpus,
    gpu_named,
    gpu_of_labels,
    known_gpus,
    nodes_of,
    pod_requests,
)
from airunway.sizing.precision import LENGTH_BYTES, header_length, sum_tensors, tensors_in
from airunway.sizing.report import checkpoint_resource, fit_resource
from airunway.sizing.values import (
    GIB,
    MAX_CONFIG,
    ModelConfigError,
    Reader,
    Unknown,
    Unseen,
    gib,
    load_config,
    text_of,
)
from airunway.sizing.workload import Role, Workload, roles_of

__all__ = [
    "CATALOGUE_LABEL",
    "GIB",
    "LENGTH_BYTES",
    "MAX_CONFIG",
    "Checkpoint",
    "Estimate",
    "Fit",
    "GpuFacts",
    "Layout",
    "ModelConfigError",
    "NodeFit",
    "NodeGpus",
    "Placement",
    "Reader",
    "Role",
    "Unknown",
    "Unseen",
    "Verdict",
    "Weights",
    "Workload",
    "catalogue",
    "checkpoint_resource",
    "entries_of_config_maps",
    "estimate",
    "fit",
    "fit_resource",
    "free_gpus",
    "gguf_checkpoint",
    "gib",
    "gpu_named",
    "gpu_of_labels",
    "header_length",
    "known_gpus",
    "legal_tensor_parallel",
    "load_config",
    "nearest",
    "nodes_of",
    "of_entry",
    "pod_requests",
    "read_checkpoint",
    "roles_of",
    "sum_tensors",
    "tensors_in",
    "text_of",
    "unknown_checkpoint",
]
