"""Static data about the provider: capabilities, kinds, rights, overrides, installation."""

from __future__ import annotations

from dataclasses import replace

from airunway.sdk import (
    HARDENED,
    EngineCapability,
    Installation,
    ProviderManifest,
    Transformer,
    labels,
    picker,
    serving,
    with_defaults,
)
from airunway.sdk.overrides import TEXT, choice, typed
from airunway.sdk.workloads import DEPLOYMENT, LEADER_WORKER_SET, RESOURCE_CLAIM_TEMPLATE, SERVER, SERVICE
from airunway_llmd.settings import Settings

__all__ = ["DECIDERS", "DECODE", "MANIFEST", "PREFILL", "ROLE_BY_ROLE", "TRANSFORMERS"]

PREFILL, DECODE = "prefill", "decode"
"""Roles in the spec, and component labels of their pods."""

DECIDERS = {"always": "always-disagg-pd-decider", "prefix-based": "prefix-based-pd-decider"}
"""Deciders by router mode: prefill workers get every prompt, or only those with too little in decode's cache."""

ROLE_BY_ROLE = "role-by-role"
"""Feature: a role that changes its kind of workload is replaced alone. The first generation replaced all roles."""

TRANSFORMERS = (
    *with_defaults(
        (*serving.TRANSFORMERS, *serving.transformers(2, [HARDENED, ROLE_BY_ROLE])),
        vllm_image="vllm/vllm-openai:v0.23.0",
        picker_image="ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0",
        sidecar_image="ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.10.0",
    ),
    Transformer(
        name="inferencepool-v1",
        api_version="inference.networking.k8s.io/v1",
        kind=picker.INFERENCE_POOL.kind,
        # The last two hashes belong to minimal CRDs: this provider's simulator's, and the sandbox's for gateways.
        schema_hashes=(
            "7f447985943a",
            "64dbcbabf4fc",
            "684c60ac364e",
            "c26bb94ecce6",
            "105e971a8b92",
            "5858612cf621",
            "032310af218d",
        ),
        since="1.0",
    ),
)

MANIFEST = ProviderManifest(
    name="llmd",
    version="0.1.0",
    display_name="llm-d",
    description="vLLM behind an InferencePool with llm-d's endpoint picker; prefill and decode apart with its sidecars",
    documentation="https://llm-d.ai/docs",
    engines=(
        EngineCapability(
            name="vllm",
            serving_modes=("aggregated", "disaggregated"),
            gpu_support=True,
            model_cache=True,
            image_volumes=True,
            scale_to_zero=True,
            multi_node=True,
            api_formats=("openai-chat", "openai-responses", "anthropic-messages"),
            tasks=("generate", "embed", "rerank", "classify", "transcribe"),
            path_routing=True,
            gateway={"managesInferencePool": True},
        ),
    ),
    # No selection rule: no field of a deployment requests a pool instead of a plain Service.
    upstream=(
        replace(DEPLOYMENT, primary=True, immutable=()),
        LEADER_WORKER_SET,
        SERVICE,
        RESOURCE_CLAIM_TEMPLATE,
        *picker.KINDS,
    ),
    reserved_labels=("llm-d.ai/", "leaderworkerset.sigs.k8s.io/"),
    role_label=labels.COMPONENT,
    serving_roles=(SERVER, DECODE, PREFILL),
    events={LEADER_WORKER_SET.kind: (serving.RECREATED,)},
    settings=Settings,
    override_schema={
        **serving.OVERRIDES,
        "properties": {
            **serving.OVERRIDES["properties"],
            "connector": typed(TEXT),
            "routerMode": typed(choice(*DECIDERS)),
        },
    },
    rbac_rules=picker.RULES,
    accounts=(picker.ACCOUNT,),
    installation=Installation(
        description="The Gateway API Inference Extension's InferencePool; LeaderWorkerSet for several nodes",
        default_namespace="",
        steps=(
            {
                "title": "Install the Inference Extension's CRDs",
                "command": (
                    "kubectl apply --server-side -f https://github.com/kubernetes-sigs/"
                    "gateway-api-inference-extension/releases/download/v1.5.0/manifests.yaml"
                ),
                "description": "Without them a model has a plain Service, and prefill workers get no requests.",
            },
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
