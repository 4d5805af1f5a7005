"""Static data about the provider: capabilities, kinds, overrides, installation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from airunway.sdk import (
    FLAGS_BY_RELEASE,
    HARDENED,
    EngineCapability,
    Installation,
    ProviderManifest,
    labels,
    serving,
    with_defaults,
)
from airunway.sdk.workloads import DEPLOYMENT, LEADER_WORKER_SET, RESOURCE_CLAIM_TEMPLATE, SERVER, SERVICE
from airunway_vllm.settings import Settings

TRANSFORMERS = with_defaults(
    (*serving.TRANSFORMERS, *serving.transformers(2, [HARDENED, FLAGS_BY_RELEASE])),
    vllm_image="vllm/vllm-openai:v0.23.0",
)

_engine = partial(
    EngineCapability, gpu_support=True, model_cache=True, image_volumes=True, scale_to_zero=True, path_routing=True
)

MANIFEST = ProviderManifest(
    name="vllm",
    version="0.1.0",
    display_name="plain Deployments (vllm)",
    description="vLLM, SGLang, TensorRT-LLM and llama.cpp as Deployments; over several nodes as LeaderWorkerSets",
    documentation="https://lws.sigs.k8s.io/docs/",
    engines=(
        _engine(
            name="vllm",
            multi_node=True,
            api_formats=(
                "openai-chat",
                "openai-responses",
                "anthropic-messages",
                "openai-embeddings",
                "rerank",
                "openai-transcriptions",
            ),
            tasks=("generate", "embed", "rerank", "classify", "transcribe"),
            gateway={"endpointPicker": {}},  # it scores servers by vLLM's metrics
        ),
        _engine(name="sglang", multi_node=True, api_formats=("openai-chat",), tasks=("generate", "embed", "rerank")),
        _engine(name="trtllm", api_formats=("openai-chat",)),
        _engine(name="llamacpp", cpu_support=True, api_formats=("openai-chat",), tasks=("generate", "embed", "rerank")),
    ),
    # No selection rule: this is the fallback if no more specific provider scores.
    upstream=(replace(DEPLOYMENT, primary=True, immutable=()), LEADER_WORKER_SET, SERVICE, RESOURCE_CLAIM_TEMPLATE),
    reserved_labels=("leaderworkerset.sigs.k8s.io/",),
    role_label=labels.COMPONENT,
    serving_roles=(SERVER,),
    events={LEADER_WORKER_SET.kind: (serving.RECREATED,)},
    settings=Settings,
    override_schema=serving.OVERRIDES,
    installation=Installation(
        description="Nothing to install; LeaderWorkerSet for replicas with more GPUs than a node has",
        default_namespace="lws-system",
        steps=(
            {
                "title": "Install LeaderWorkerSet (optional)",
                "command": (
                    "kubectl apply --server-side -f "
                    "https://github.com/kubernetes-sigs/lws/releases/download/v0.10.0/manifests.yaml"
                ),
                "description": "Only for replicas that need more GPUs than one node has.",
            },
        ),
    ),
)
