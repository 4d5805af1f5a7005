"""Static data about the provider: capabilities, selection, upstream kinds, overrides, access, installation."""

from __future__ import annotations

from airunway.plugins.contract import (
    EngineCapability,
    Installation,
    ProviderManifest,
    SelectionRule,
    UpstreamKind,
)
from airunway.resource import Resource

__all__ = ["MANIFEST", "POD_LABEL", "VERSION"]

VERSION = "0.1.0"

POD_LABEL = "kaito.sh/workspace"

_TEXT: Resource = {"type": "string"}
_TEXTS: Resource = {"type": "array", "items": _TEXT}


def _object(**properties: Resource) -> Resource:
    return {"type": "object", "properties": properties}


_OVERRIDES = _object(
    resource=_object(
        instanceType=_TEXT,
        preferredNodes=_TEXTS,
        labelSelector=_object(
            # null takes a default label out
            matchLabels={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
            matchExpressions={
                "type": "array",
                # KAITO takes no other operator.
                "items": _object(key=_TEXT, operator={"type": "string", "enum": ["In"]}, values=_TEXTS),
            },
        ),
        partition=_object(
            mode={"type": "string", "enum": ["accelerator", "mig"]},
            profile=_TEXT,
            count={"type": "integer", "minimum": 1, "maximum": 64},
        ),
    ),
    inference=_object(
        preset=_object(name=_TEXT, presetOptions=_object(image=_TEXT, imagePullSecrets=_TEXTS)),
        adapters={
            "type": "array",
            "maxItems": 10,
            "items": _object(
                source=_object(
                    # A name that is no DNS label, and a source by URL, pass KAITO's admission and freeze the Workspace.
                    name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63},
                    image=_TEXT,
                    imagePullSecrets=_TEXTS,
                )
            ),
        },
        template=_object(
            spec=_object(
                terminationGracePeriodSeconds={"type": "integer", "minimum": 0},
                schedulerName=_TEXT,
                dnsPolicy=_TEXT,
                dnsConfig=_object(
                    nameservers=_TEXTS,
                    searches=_TEXTS,
                    options={"type": "array", "items": _object(name=_TEXT, value=_TEXT)},
                ),
                hostAliases={"type": "array", "items": _object(ip=_TEXT, hostnames=_TEXTS)},
            )
        ),
    ),
)

MANIFEST = ProviderManifest(
    name="kaito",
    version=VERSION,
    display_name="KAITO",
    description="vLLM presets and pod templates, and llama.cpp on CPU or GPU, as KAITO Workspaces",
    documentation="https://kaito-project.github.io/kaito/docs/",
    engines=(
        EngineCapability(
            name="vllm",
            gpu_support=True,
            api_formats=("openai-chat", "openai-responses", "anthropic-messages"),
        ),
        EngineCapability(
            name="llamacpp",
            gpu_support=True,
            cpu_support=True,
            api_formats=("openai-chat",),
            gateway={"ignoresServedName": True},
        ),
    ),
    selection_rules=(
        SelectionRule(condition="spec.resources.gpu.count == 0", priority=100),
        SelectionRule(condition="spec.engine.type == 'llamacpp'", priority=100),
    ),
    upstream=(
        UpstreamKind(group="kaito.sh", kind="Workspace", plural="workspaces", versions=("v1beta1",), primary=True),
        UpstreamKind(group="", kind="ConfigMap", plural="configmaps", versions=("v1",), requires_crd=False),
    ),
    pod_label=POD_LABEL,
    override_schema=_OVERRIDES,
    # KAITO refuses the first five; an edit of the template it accepts and never applies.
    immutable_paths=(
        "resource.count",
        "resource.instanceType",
        "resource.labelSelector.*",
        "resource.partition.*",
        "inference.preset.*",
        "inference.template.*",
    ),
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
