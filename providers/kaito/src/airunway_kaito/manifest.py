"""Static data about the provider: capabilities, selection, upstream kinds, overrides, access, installation."""

from __future__ import annotations

from airunway.sdk import EngineCapability, Installation, ProviderManifest, SelectionRule
from airunway.sdk.overrides import GPUS, TEXT, TEXTS, choice, items, keys
from airunway.sdk.workloads import CONFIG_MAP, SERVICE
from airunway_kaito.schemas import INFERENCE_SET, WORKSPACE
from airunway_kaito.settings import Settings

__all__ = ["MANIFEST", "POD_LABEL", "VERSION"]

VERSION = "0.1.0"

POD_LABEL = "kaito.sh/workspace"

_OVERRIDES = keys(
    resource=keys(
        instanceType=TEXT,
        preferredNodes=TEXTS,
        labelSelector=keys(
            # null takes a default label out
            matchLabels={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
            # KAITO takes no other operator.
            matchExpressions=items(keys(key=TEXT, operator=choice("In"), values=TEXTS)),
        ),
        partition=keys(mode=choice("accelerator", "mig"), profile=TEXT, count={**GPUS, "minimum": 1}),
    ),
    inference=keys(
        preset=keys(name=TEXT, presetOptions=keys(image=TEXT, imagePullSecrets=TEXTS)),
        adapters=items(
            keys(
                source=keys(
                    # A name that is no DNS label, and a source by URL, pass KAITO's admission and freeze the Workspace.
                    name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63},
                    image=TEXT,
                    imagePullSecrets=TEXTS,
                )
            ),
            most=10,
        ),
        template=keys(
            spec=keys(
                terminationGracePeriodSeconds={"type": "integer", "minimum": 0},
                schedulerName=TEXT,
                dnsPolicy=TEXT,
                dnsConfig=keys(nameservers=TEXTS, searches=TEXTS, options=items(keys(name=TEXT, value=TEXT))),
                hostAliases=items(keys(ip=TEXT, hostnames=TEXTS)),
            )
        ),
    ),
)

MANIFEST = ProviderManifest(
    name="kaito",
    version=VERSION,
    display_name="KAITO",
    description="vLLM presets and pod templates, and llama.cpp on CPU or GPU, as KAITO Workspaces and InferenceSets",
    documentation="https://kaito-project.github.io/kaito/docs/",
    engines=(
        EngineCapability(
            name="vllm",
            gpu_support=True,
            scale_to_zero=True,
            api_formats=("openai-chat", "openai-responses", "anthropic-messages"),
        ),
        EngineCapability(
            name="llamacpp",
            gpu_support=True,
            cpu_support=True,
            scale_to_zero=True,
            api_formats=("openai-chat",),
            gateway={"ignoresServedName": True},
        ),
    ),
    selection_rules=(
        SelectionRule(condition="spec.resources.gpu.count == 0", priority=100),
        SelectionRule(condition="spec.engine.type == 'llamacpp'", priority=100),
    ),
    upstream=(WORKSPACE, INFERENCE_SET, CONFIG_MAP, SERVICE),
    pod_labels=(POD_LABEL,),
    settings=Settings,
    override_schema=_OVERRIDES,
    installation=Installation(
        description="KAITO's workspace controller, with nodes that exist already (nodeProvisioner byo)",
        default_namespace="kaito-workspace",
        helm_repos=({"name": "kaito", "url": "https://kaito-project.github.io/kaito/charts/kaito"},),
        helm_charts=(
            {
                "name": "kaito-workspace",
                "chart": "kaito/workspace",
                "version": "0.12.0",
                "namespace": "kaito-workspace",
                "createNamespace": True,
                "values": {"nodeProvisioner": "byo"},
            },
        ),
        steps=(
            {
                "title": "Add the chart repository",
                "command": "helm repo add kaito https://kaito-project.github.io/kaito/charts/kaito",
                "description": "KAITO publishes its charts there.",
            },
            {
                "title": "Install the workspace controller",
                "command": (
                    "helm upgrade --install kaito-workspace kaito/workspace --version 0.12.0 "
                    "--namespace kaito-workspace --create-namespace --set nodeProvisioner=byo"
                ),
                "description": "For node auto-provisioning set nodeProvisioner here and in this provider's settings.",
            },
        ),
    ),
)
