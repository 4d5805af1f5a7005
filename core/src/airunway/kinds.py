"""Our own kinds, for the Kubernetes client, and KEDA's, which stands beside any provider's."""

from __future__ import annotations

from airunway.api import names
from airunway.kube import Kind


def _kind(name: str, *, namespaced: bool) -> Kind:
    return Kind(names.GROUP, names.VERSION, name, f"{name.lower()}s", namespaced)


MODEL_DEPLOYMENT = _kind("ModelDeployment", namespaced=True)
INFERENCE_PROVIDER_CONFIG = _kind("InferenceProviderConfig", namespaced=False)
RUNTIME_CONFIG = _kind("RuntimeConfig", namespaced=True)
CLUSTER_RUNTIME_CONFIG = _kind("ClusterRuntimeConfig", namespaced=False)
MODEL_ARTIFACT = _kind("ModelArtifact", namespaced=True)
MODEL_TEMPLATE = _kind("ModelTemplate", namespaced=True)
CLUSTER_MODEL_TEMPLATE = _kind("ClusterModelTemplate", namespaced=False)
MODEL_SOURCE = _kind("ModelSource", namespaced=False)

SCALED_OBJECT = Kind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
