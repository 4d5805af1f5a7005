"""Static data about the provider: capabilities, selection, kinds, schemas, overrides, installation."""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum
from functools import partial

from airunway.sdk import (
    HARDENED,
    EngineCapability,
    ProviderManifest,
    Resource,
    SelectionRule,
    UpstreamKind,
    generation,
    helm_installation,
    revised,
    with_defaults,
)
from airunway.sdk.overrides import GPUS, TEXT, TEXTS, choice, items, keys
from airunway.sdk.workloads import CONFIG_MAP, SERVICE
from airunway_kaito.settings import Settings

OF_WORKSPACE = "kaito.sh/workspace"
"""Label with a Workspace's name on its pods."""

CREATED_BY = "inferenceset.kaito.sh/created-by"
"""Label with an InferenceSet's name on the Workspaces that KAITO creates for it, and on their pods."""

API_VERSION = "kaito.sh/v1beta1"
"""The only version used: KAITO also serves v1alpha1, but without conversion, so v1alpha1 writes lose fields."""

_kind = partial(UpstreamKind, group="kaito.sh", versions=("v1beta1",), deletion="Foreground")
WORKSPACE = _kind(
    kind="Workspace",
    plural="workspaces",
    primary=True,
    select=CREATED_BY,
    pods=("inference.template.spec",),
    unused=("tuning", "inference.adapters[*].source.volumeSource"),
    replicas=("resource.count",),
)
INFERENCE_SET = _kind(
    kind="InferenceSet",
    plural="inferencesets",
    required=False,
    pods=("spec.template.inference.template.spec",),
    unused=("spec.template.inference.adapters[*].source.volumeSource",),
    annotations=("spec.template.metadata.annotations",),  # of the Workspaces
    replicas=("spec.replicas", "spec.template.resource.count"),
)
"""Several identical Workspaces. Its v1alpha1 (0.8 to 0.10) requires replicas and a machine type."""


class Feature(StrEnum):
    """What only some releases support."""

    EXISTING_NODES = "existing-nodes"
    """Existing nodes are used as they are; before, only nodes of `resource.instanceType`, and others were created."""
    MODEL_ACCESS_SECRET = "model-access-secret"
    HUGGINGFACE_IDS = "huggingface-ids"
    """Presets accept any `org/model`; before, only names in a list that changed with every release."""
    PARTITION = "partition"
    """A preset can be limited to a number of a node's GPUs; before, it always used all of them."""
    ALL_RESERVED = "all-reserved"
    """Users can set none of the manifest's `reserved_labels` on pods; before, only those of `_FIRST_RESERVED`."""


_FIRST_RESERVED = ("kaito.sh/", "inferenceset.kaito.sh/")

_0_4_6 = (Feature.MODEL_ACCESS_SECRET,)
_0_7 = (*_0_4_6, Feature.EXISTING_NODES)
_0_9 = (*_0_7, Feature.HUGGINGFACE_IDS)
_0_12 = (*_0_9, Feature.PARTITION)

SANDBOX_SCHEMAS = ("29c141b0f63a", "ef138e556bd6")
"""The minimal CRDs of Workspace and InferenceSet that AI Runway's sandbox installs instead of KAITO's."""

_workspace = partial(
    generation,
    API_VERSION,
    # KAITO refuses changes of the first five, and accepts changes of the template without applying them.
    immutable=(
        "resource.count",
        "resource.instanceType",
        "resource.labelSelector.*",
        "resource.partition.*",
        "inference.preset.*",
        "inference.template.*",
    ),
)
_set = partial(
    generation,
    API_VERSION,
    kind=INFERENCE_SET.kind,
    # KAITO applies a change only to Workspaces that it creates later.
    immutable=("spec.labelSelector.*", "spec.template.*"),
)

_RELEASED = (
    _workspace("0.4.5", "0.4.5", hashes=["5f54adf907c1"]),
    _workspace("0.4.6", "0.6", hashes=["2873b09d0822"], features=_0_4_6),
    _workspace("0.7", "0.8", hashes=["ae10c81308ee", "ba53226150c2"], features=_0_7),
    _workspace("0.9", "0.11", hashes=["a149328e58fa", "c601e394ea4e"], features=_0_9),
    _workspace("0.12", "0.12", hashes=["ffa99f984a72", SANDBOX_SCHEMAS[0]], features=_0_12),
    # The chart and the source of KAITO contain different copies of this CRD.
    _set("0.11", "0.11", hashes=["3a1392a40f78", "2482f42c5604"], features=[*_0_4_6, Feature.HUGGINGFACE_IDS]),
    _set("0.12", "0.12", hashes=["1203c3123e9b", SANDBOX_SCHEMAS[1]], features=_0_12),
)
"""Oldest first: recorded CRDs of every release since v0.4.5. Features that a schema cannot show (`HUGGINGFACE_IDS`,
`EXISTING_NODES`) came with the release that has the hash."""

TRANSFORMERS = with_defaults(
    (
        *_RELEASED,
        *revised(_RELEASED, 2, features=[HARDENED]),
        *revised(_RELEASED, 3, features=[HARDENED, Feature.ALL_RESERVED]),
    ),
    vllm_image="vllm/vllm-openai:v0.23.0",
)
"""The later generations change only pod templates; presets use KAITO's own pods."""

PRESET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*", re.ASCII)
"""A name from KAITO's own list, or ``owner/model`` of the model hub; without special shell characters."""

_PRESET: Resource = {"type": "string", "pattern": f"^({PRESET_NAME.pattern})$", "maxLength": 256}

_OVERRIDES = keys(
    resource=keys(
        instanceType=TEXT,
        preferredNodes=TEXTS,
        labelSelector=keys(
            # null removes a default label
            matchLabels={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
            # KAITO accepts no other operator.
            matchExpressions=items(keys(key=TEXT, operator=choice("In"), values=TEXTS)),
        ),
        partition=keys(mode=choice("accelerator", "mig"), profile=TEXT, count={**GPUS, "minimum": 1}),
    ),
    inference=keys(
        preset=keys(name=_PRESET, presetOptions=keys(image=TEXT, imagePullSecrets=TEXTS)),
        adapters=items(
            keys(
                source=keys(
                    # KAITO's admission accepts other names and sources by URL, but the Workspace then hangs.
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
    version="0.1.0",
    display_name="KAITO",
    description="vLLM presets and pod templates, and llama.cpp on CPU or GPU, as KAITO Workspaces and InferenceSets",
    documentation="https://kaito-project.github.io/kaito/docs/",
    engines=(
        EngineCapability(
            name="vllm",
            gpu_support=True,
            model_cache=True,
            image_volumes=True,
            scale_to_zero=True,
            api_formats=("openai-chat", "openai-responses", "anthropic-messages"),
            tasks=("generate", "embed", "rerank", "classify", "transcribe"),
            path_routing=True,
            gateway={"endpointPicker": {}},
        ),
        EngineCapability(
            name="llamacpp",
            gpu_support=True,
            cpu_support=True,
            model_cache=True,
            image_volumes=True,
            scale_to_zero=True,
            api_formats=("openai-chat",),
            tasks=("generate", "embed", "rerank"),
            path_routing=True,
            gateway={"ignoresServedName": True},
        ),
    ),
    selection_rules=(
        SelectionRule(condition="spec.resources.gpu.count == 0", priority=100),
        SelectionRule(condition="spec.engine.type == 'llamacpp'", priority=100),
    ),
    upstream=(WORKSPACE, INFERENCE_SET, CONFIG_MAP, SERVICE),
    pod_labels=(OF_WORKSPACE,),
    reserved_labels=(
        "kaito.sh/",
        "inferenceset.kaito.sh/",
        "multiroleinference.kaito.sh/",
        "workspace.kaito.io/",
        # By these a Service selects one pod of a StatefulSet.
        "apps.kubernetes.io/",
        "statefulset.kubernetes.io/",
    ),
    annotations=("kaito.sh/runtime", "kaito.sh/disable-benchmark"),
    settings=Settings,
    override_schema=_OVERRIDES,
    installation=helm_installation(
        "KAITO's workspace controller, with nodes that exist already (nodeProvisioner byo)",
        name="kaito-workspace",
        chart="kaito/workspace",
        version="0.12.0",
        namespace="kaito-workspace",
        values={"nodeProvisioner": "byo"},
        repository="https://kaito-project.github.io/kaito/charts/kaito",
        publisher="KAITO",
        title="Install the workspace controller",
        note="For node auto-provisioning set nodeProvisioner here and in this provider's settings.",
    ),
)


def reserved_labels(features: Collection[str]) -> tuple[str, ...]:
    """The label keys, and prefixes of them, that users cannot set on pods of a transformer with these features."""
    return MANIFEST.reserved_labels if Feature.ALL_RESERVED in features else _FIRST_RESERVED
