"""Static data about the provider: capabilities, selection, kinds, overrides, installation."""

from __future__ import annotations

from airunway.sdk import EngineCapability, Installation, ProviderManifest, SelectionRule, UpstreamKind
from airunway.sdk.overrides import BOOLEAN, CPU, LABELS, MEMORY, REPLICAS, TEXT, choice, keys, typed
from airunway_dynamo.objects import COMPONENT_TYPE, GRAPH_NAME
from airunway_dynamo.plan import WORKERS
from airunway_dynamo.settings import Settings

__all__ = ["MANIFEST", "VERSION"]

VERSION = "0.1.0"

_BOTH = ("aggregated", "disaggregated")

_OVERRIDES = keys(
    routerMode=typed(choice("kv", "round-robin", "random", "none")),
    frontend=typed(keys(replicas={**REPLICAS, "minimum": 1}, resources=keys(cpu=CPU, memory=MEMORY))),
    runtimeVersion=typed({"type": "string", "pattern": r"^\d{1,4}\.\d{1,4}\.\d{1,4}$", "maxLength": 14}),
    scalingAdapter=typed(BOOLEAN),
    sharedMemory=typed(MEMORY),
    spec=keys(annotations=LABELS, labels=LABELS, topologyConstraint=keys(packDomain=TEXT, topologyProfile=TEXT)),
)


def _engine(name: str, *formats: str) -> EngineCapability:
    return EngineCapability(
        name=name,
        serving_modes=_BOTH,
        gpu_support=True,
        api_formats=formats,
        scale_to_zero=True,
        multi_node=True,
        gateway={"managesInferencePool": True, "inferencePoolNamePattern": "{name}-pool"},
    )


MANIFEST = ProviderManifest(
    name="dynamo",
    version=VERSION,
    display_name="Dynamo",
    description="vLLM, SGLang and TensorRT-LLM as NVIDIA Dynamo graphs: routed by cache, prefill and decode apart",
    documentation="https://docs.nvidia.com/dynamo/latest/",
    engines=(
        _engine("vllm", "openai-chat", "openai-responses", "anthropic-messages"),
        _engine("sglang", "openai-chat", "anthropic-messages"),
        _engine("trtllm", "openai-chat", "openai-responses"),
    ),
    selection_rules=(
        SelectionRule(condition="spec.engine.type == 'trtllm'", priority=100),
        SelectionRule(condition="spec.engine.type == 'sglang'", priority=100),
        SelectionRule(condition="spec.serving.mode == 'disaggregated'", priority=90),
        SelectionRule(condition="spec.engine.type == 'vllm' && spec.resources.gpu.count > 0", priority=50),
    ),
    upstream=(
        UpstreamKind(
            group="nvidia.com",
            kind="DynamoGraphDeployment",
            plural="dynamographdeployments",
            versions=("v1beta1", "v1alpha1"),
            primary=True,
            # Gone means that its pods have let go of their GPUs.
            deletion="Foreground",
        ),
        # What the operator makes of a graph: without Grove, and with it.
        UpstreamKind(
            group="nvidia.com",
            kind="DynamoComponentDeployment",
            plural="dynamocomponentdeployments",
            versions=("v1beta1", "v1alpha1"),
            required=False,
            write=False,
            select=GRAPH_NAME,
        ),
        UpstreamKind(
            group="grove.io",
            kind="PodClique",
            plural="podcliques",
            versions=("v1alpha1",),
            required=False,
            write=False,
            select=GRAPH_NAME,
        ),
    ),
    pod_labels=(GRAPH_NAME,),
    role_label=COMPONENT_TYPE,
    serving_roles=WORKERS,
    settings=Settings,
    override_schema=_OVERRIDES,
    installation=Installation(
        description="NVIDIA Dynamo's operator, with its message bus, and Grove for several nodes",
        default_namespace="dynamo-system",
        helm_charts=(
            {
                "name": "dynamo-platform",
                "chart": "https://helm.ngc.nvidia.com/nvidia/ai-dynamo/charts/dynamo-platform-1.3.1.tgz",
                "version": "1.3.1",
                "namespace": "dynamo-system",
                "createNamespace": True,
                "values": {"global.grove.install": True},
            },
        ),
        steps=(
            {
                "title": "Install the Dynamo platform",
                "command": (
                    "helm upgrade --install dynamo-platform "
                    "https://helm.ngc.nvidia.com/nvidia/ai-dynamo/charts/dynamo-platform-1.3.1.tgz "
                    "--namespace dynamo-system --create-namespace --set global.grove.install=true"
                ),
                "description": "Leave Grove out where every worker fits on one node.",
            },
        ),
    ),
)
