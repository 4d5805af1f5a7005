"""Our own kinds, for the Kubernetes client."""

from __future__ import annotations

from airunway.api import names
from airunway.kube import Kind

__all__ = [
    "CLUSTER_MODEL_TEMPLATE",
    "CLUSTER_RUNTIME_CONFIG",
    "INFERENCE_PROVIDER_CONFIG",
    "MODEL_ARTIFACT",
    "MODEL_DEPLOYMENT",
    "MODEL_SOURCE",
    "MODEL_TEMPLATE",
    "RUNTIME_CONFIG",
]

MODEL_DEPLOYMENT = Kind(
    group=names.GROUP, version=names.VERSION, kind="ModelDeployment", plural="modeldeployments", namespaced=True
)
INFERENCE_PROVIDER_CONFIG = Kind(
    group=names.GROUP,
    version=names.VERSION,
    kind="InferenceProviderConfig",
    plural="inferenceproviderconfigs",
    namespaced=False,
)
RUNTIME_CONFIG = Kind(
    group=names.GROUP, version=names.VERSION, kind="RuntimeConfig", plural="runtimeconfigs", namespaced=True
)
CLUSTER_RUNTIME_CONFIG = Kind(
    group=names.GROUP,
    version=names.VERSION,
    kind="ClusterRuntimeConfig",
    plural="clusterruntimeconfigs",
    namespaced=False,
)
MODEL_ARTIFACT = Kind(
    group=names.GROUP, version=names.VERSION, kind="ModelArtifact", plural="modelartifacts", namespaced=True
)
MODEL_TEMPLATE = Kind(
    group=names.GROUP, version=names.VERSION, kind="ModelTemplate", plural="modeltemplates", namespaced=True
)
CLUSTER_MODEL_TEMPLATE = Kind(
    group=names.GROUP,
    version=names.VERSION,
    kind="ClusterModelTemplate",
    plural="clustermodeltemplates",
    namespaced=False,
)
MODEL_SOURCE = Kind(
    group=names.GROUP, version=names.VERSION, kind="ModelSource", plural="modelsources", namespaced=False
)
