"""Static data about the provider: capabilities, selection, kinds, schemas, overrides, installation."""

from __future__ import annotations

from enum import StrEnum
from functools import partial

from airunway.sdk import (
    FLAGS_BY_RELEASE,
    HARDENED,
    Context,
    EngineCapability,
    ProviderManifest,
    SelectionRule,
    UpstreamKind,
    generation,
    helm_installation,
    revised,
)
from airunway.sdk.overrides import BOOLEAN, CPU, LABELS, MEMORY, REPLICAS, TEXT, choice, keys, typed
from airunway_dynamo.settings import Settings

__all__ = [
    "COMPONENT_TYPE",
    "GRAPH_NAME",
    "MANIFEST",
    "RESERVED_LABELS",
    "TRANSFORMERS",
    "WORKERS",
    "Feature",
    "reserved_labels",
]

GRAPH_NAME, COMPONENT_TYPE = "nvidia.com/dynamo-graph-deployment-name", "nvidia.com/dynamo-component-type"
"""Labels on pods and on all objects that the operator creates for a graph: the graph's name, the component's type."""
RESERVED_LABELS = ("nvidia.com/", "grove.io/", "leaderworkerset.sigs.k8s.io/")
WORKERS = ("worker", "prefill", "decode")
"""Types of components that run the model; we use them as component names too."""

V1ALPHA1, V1BETA1 = "nvidia.com/v1alpha1", "nvidia.com/v1beta1"


class Feature(StrEnum):
    """What only some releases can express."""

    SUB_TYPES = "sub-types"
    """`subComponentType` marks prefill workers, and all pods have labels for graph and type. Before, Grove's pods had
    only the labels of the graph itself."""
    GPU_TYPES = "gpu-types"
    """GPUs with a resource name other than `nvidia.com/gpu`."""
    SCALING_ADAPTERS = "scaling-adapters"
    DYNAMO_NAMESPACE = "dynamo-namespace"
    """Workers find each other by `dynamoNamespace`, which defaulted to the graph's name: graphs with the same name in
    two namespaces would serve each other's requests. Since 1.0 the operator derives it from both."""
    GRAPH_METADATA = "graph-metadata"
    """Labels, annotations and topology of a whole graph, and a frontend beside each worker for a gateway's pool."""
    RUNTIME_VERSION = "runtime-version"
    """`runtimeVersionOverride`, which is required if the image's tag contains no release."""
    SIDECAR_VOLUMES = "sidecar-volumes"
    """A frontend beside a worker has the writable `/tmp`, and no variables for volumes that it does not mount."""
    ALL_RESERVED = "all-reserved"
    """Users can set none of the manifest's `reserved_labels` on pods; before, only those of `RESERVED_LABELS`."""


_0_4 = (Feature.DYNAMO_NAMESPACE,)
_0_6 = (*_0_4, Feature.SUB_TYPES)
_0_8 = (*_0_6, Feature.GPU_TYPES, Feature.SCALING_ADAPTERS)
_1_0 = (Feature.SUB_TYPES, Feature.GPU_TYPES, Feature.SCALING_ADAPTERS)
_1_1 = (*_1_0, Feature.GRAPH_METADATA)
_1_4 = (*_1_1, Feature.RUNTIME_VERSION)
_0_6_SCHEMAS = ("28af6d3cf95f", "6ab2a03c7c10", "d9a2a3e70a17")
_BESIDE_V1BETA1 = ("1e2ba548b1a0", "40a5afa93be2", "cf4bd1b1f044", "be7d80ad1ddf")
"""v1alpha1 as served from 1.2 on; graphs written in it stay in it."""
_SANDBOX = ("c268b6468a35", "ff6860f3bd75")
"""The minimal CRD that AI Runway's sandbox installs instead of Dynamo's, by version."""

_graph = partial(generation, immutable=["spec.backendFramework", "spec.topologyConstraint.*"])
"""Adding or removing a component, or changing it between one node and several, is also impossible in place; the
translation's `replace_on` covers that."""

_RELEASED = (
    _graph(V1ALPHA1, "0.4.1", "0.5", hashes=["69c5dc9ca435"], features=_0_4),
    _graph(V1ALPHA1, "0.6", "0.7", hashes=_0_6_SCHEMAS, features=_0_6),
    _graph(V1ALPHA1, "0.8", "0.9", hashes=["d1b128e6e03d", "cda79d0a2a18"], features=_0_8),
    _graph(V1ALPHA1, "1.0", "1.0", hashes=["290583da092b"], features=_1_0),
    _graph(V1ALPHA1, "1.1", hashes=["5862ae921abf", *_BESIDE_V1BETA1, _SANDBOX[0]], features=_1_1),
    _graph(V1BETA1, "1.2", "1.3", hashes=["ca1f3a7ef31d", "8a09913f0d2d"], features=_1_1),
    _graph(V1BETA1, "1.4", hashes=["1274c90ffc37", "5de533b21e0e", _SANDBOX[1]], features=_1_4),
)
"""Oldest first: CRDs of every release since 0.4.1."""

_SECOND = (HARDENED, FLAGS_BY_RELEASE)
_THIRD = (*_SECOND, Feature.SIDECAR_VOLUMES, Feature.ALL_RESERVED)

TRANSFORMERS = (
    *_RELEASED,
    *revised(_RELEASED[2:], 2, features=_SECOND),
    *revised(_RELEASED[:2], 3, features=[Feature.ALL_RESERVED]),
    *revised(_RELEASED[2:], 3, features=_THIRD),
)
"""Images of releases before 0.8 run as root and need what a hardened pod lacks."""

_nvidia = partial(UpstreamKind, group="nvidia.com", versions=("v1beta1", "v1alpha1"))
_made = partial(_nvidia, required=False, write=False, select=GRAPH_NAME)
"""Kinds that the operator creates for a graph, without and with Grove."""

_UNUSED = (
    "spec.providerOverride",
    *(
        f"{component}.{field}"
        for component, fields in {
            "spec.services.*": ("checkpoint", "gpuMemoryService", "ingress"),
            "spec.components[*]": ("experimental.checkpoint", "experimental.gpuMemoryService"),
        }.items()
        for field in (*fields, "providerOverride", *(f"multinode.{of}.providerOverride" for of in ("leader", "worker")))
    ),
)
"""Paths where a graph can contain pods, or raw parts of generated objects, outside the pods of its components."""

_TOPOLOGY = keys(packDomain=TEXT, topologyProfile=TEXT, clusterTopologyName=TEXT)

_engine = partial(
    EngineCapability,
    serving_modes=("aggregated", "disaggregated"),
    gpu_support=True,
    model_cache=True,
    image_volumes=True,
    cache_helpers=1,  # the Frontend, which reads the tokenizer
    scale_to_zero=True,
    multi_node=True,
    path_routing=True,
    gateway={"managesInferencePool": True, "inferencePoolNamePattern": "{name}-pool"},
)

MANIFEST = ProviderManifest(
    name="dynamo",
    version="0.1.0",
    display_name="Dynamo",
    description="vLLM, SGLang and TensorRT-LLM as NVIDIA Dynamo graphs: routed by cache, prefill and decode apart",
    documentation="https://docs.nvidia.com/dynamo/latest/",
    engines=(
        _engine(name="vllm", api_formats=("openai-chat", "openai-responses", "anthropic-messages")),
        _engine(name="sglang", api_formats=("openai-chat", "anthropic-messages")),
        _engine(name="trtllm", api_formats=("openai-chat", "openai-responses")),
    ),
    selection_rules=(
        SelectionRule(condition="spec.engine.type == 'trtllm'", priority=100),
        SelectionRule(condition="spec.engine.type == 'sglang'", priority=100),
        SelectionRule(condition="spec.serving.mode == 'disaggregated'", priority=90),
        SelectionRule(condition="spec.engine.type == 'vllm' && spec.resources.gpu.count > 0", priority=50),
    ),
    upstream=(
        # Foreground deletion: the graph is gone only after its pods have released their GPUs.
        _nvidia(
            kind="DynamoGraphDeployment",
            plural="dynamographdeployments",
            primary=True,
            deletion="Foreground",
            pods=("spec.services.*.extraPodSpec", "spec.components[*].podTemplate.spec"),
            containers=("spec.services.*.extraPodSpec.mainContainer",),
            unused=_UNUSED,
            probes=("spec.services.*.livenessProbe", "spec.services.*.readinessProbe"),
            annotations=(
                "spec.annotations",
                "spec.services.*.annotations",
                "spec.services.*.extraPodMetadata.annotations",
                "spec.components[*].podTemplate.metadata.annotations",
            ),
            replicas=(
                "spec.services.*.replicas",
                "spec.services.*.multinode.nodeCount",
                "spec.components[*].replicas",
                "spec.components[*].multinode.nodeCount",
            ),
        ),
        _made(kind="DynamoComponentDeployment", plural="dynamocomponentdeployments"),
        _made(group="grove.io", kind="PodClique", plural="podcliques", versions=("v1alpha1",)),
    ),
    pod_labels=(GRAPH_NAME,),
    # Grove selects by the last ones as well.
    reserved_labels=(
        *RESERVED_LABELS,
        "app.kubernetes.io/component",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/name",
        "app.kubernetes.io/part-of",
    ),
    annotations=("nvidia.com/enable-grove",),
    role_label=COMPONENT_TYPE,
    serving_roles=WORKERS,
    settings=Settings,
    override_schema=keys(
        routerMode=typed(choice("kv", "round-robin", "random", "none")),
        frontend=typed(keys(replicas={**REPLICAS, "minimum": 1}, resources=keys(cpu=CPU, memory=MEMORY))),
        runtimeVersion=typed({"type": "string", "pattern": r"^\d{1,4}\.\d{1,4}\.\d{1,4}$", "maxLength": 14}),
        scalingAdapter=typed(BOOLEAN),
        sharedMemory=typed(MEMORY),
        spec=keys(annotations=LABELS, labels=LABELS, topologyConstraint=_TOPOLOGY),
    ),
    installation=helm_installation(
        "NVIDIA Dynamo's operator, with its message bus, and Grove for several nodes",
        name="dynamo-platform",
        chart="https://helm.ngc.nvidia.com/nvidia/ai-dynamo/charts/dynamo-platform-1.3.1.tgz",
        version="1.3.1",
        namespace="dynamo-system",
        values={"global.grove.install": True},
        title="Install the Dynamo platform",
        note="Leave Grove out where every worker fits on one node.",
    ),
)


def reserved_labels(context: Context[Settings]) -> tuple[str, ...]:
    """The label keys, and prefixes of them, that users cannot set on pods that this transformer writes."""
    return MANIFEST.reserved_labels if context.has(Feature.ALL_RESERVED) else RESERVED_LABELS
