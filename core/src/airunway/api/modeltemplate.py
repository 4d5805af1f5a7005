"""The ModelTemplate and ClusterModelTemplate: how one model runs, written once for many deployments.

What a template gives to a deployment is computed by `airunway.templates`. The API server writes no defaults below
``spec.defaults``: an absent field must stay absent until the deployment's own value is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from airunway.api._deployment_status import ModelDeploymentCondition, WorkStatus
from airunway.api.base import (
    ApiModel,
    ApiObject,
    Count,
    EnvVar,
    FreeForm,
    FreeFormList,
    LocalObjectReference,
    ObjectName,
    Quantity,
    SecurityContext,
    Text,
    Timestamp,
    Toleration,
    list_map,
)
from airunway.api.bounds import MAX_CONSTRAINTS, MAX_ENTRIES, MAX_SHARED_ENV, MAX_TOLERATIONS
from airunway.api.modeldeployment import Engine, PodTemplate, Resources, RoleSpec, Secrets, Serving
from airunway.api.rules import (
    FORBIDDEN,
    MAX_CPU,
    MAX_GPUS,
    MAX_MEMORY,
    ValidationRule,
    credential_rules,
    immutable_rule,
    is_path_rule,
    number_rule,
    quantity_rules,
    uri_form_rule,
)

KIND, CLUSTER_KIND = "ModelTemplate", "ClusterModelTemplate"

MAX_SOURCES = 16
"""Most sources of weights of one template."""

_Value = Annotated[str, Field(max_length=253)]


class TemplateGpu(ApiModel):
    """GPUs of one replica."""

    count: Count = Field(default=0, description="GPUs of one replica, a number up to 64.")
    type: Text = Field(
        default=None,
        max_length=317,
        description="Resource name of the GPUs, for example amd.com/gpu. Default: nvidia.com/gpu.",
    )
    model: Text = Field(
        default=None,
        max_length=63,
        description="Model of the GPU, such as MI300X or H100; excludes minVram. Default: any.",
    )
    min_vram: Quantity = Field(
        default=None,
        description="Least memory of one GPU, in bytes (a quantity such as 80Gi); excludes model. Default: any.",
    )


class TemplateHardware(ApiModel):
    """What one replica needs; immutable."""

    gpu: TemplateGpu | None = Field(default=None, description="GPUs of one replica. Default: none.")
    cpu: Quantity = Field(
        default=None, description="CPU of one replica, in cores (a quantity such as 8 or 500m). Default: by provider."
    )


class TemplateProvider(ApiModel):
    """Settings of the provider; a template names none."""

    overrides: FreeForm = Field(
        default_factory=dict, description="Settings of the provider itself, free-form. Default: none."
    )


class TemplateScaling(ApiModel):
    """Roles of the disaggregated mode. Replicas are always the deployment's own: absent means 1 there."""

    prefill: RoleSpec | None = Field(default=None, description="Prefill workers. Default: those of the deployment.")
    decode: RoleSpec | None = Field(default=None, description="Decode workers. Default: those of the deployment.")


class TemplateDefaults(ApiModel):
    """Values for what a deployment does not say itself."""

    provider: TemplateProvider = Field(
        default_factory=TemplateProvider, description="Settings of the provider. Default: none."
    )
    engine: Engine = Field(default_factory=Engine, description="Inference engine and its settings. Default: none.")
    serving: Serving | None = Field(default=None, description="How requests are served. Default: aggregated.")
    scaling: TemplateScaling = Field(
        default_factory=TemplateScaling, description="Roles of the disaggregated mode. Default: none."
    )
    resources: Resources = Field(default_factory=Resources, description="Resources of one replica. Default: none.")
    image: Text = Field(
        default=None, max_length=1024, description="Container image of the model server. Default: the provider's image."
    )
    env: list[EnvVar] = Field(
        default_factory=list,
        max_length=MAX_SHARED_ENV,
        json_schema_extra=list_map("name"),
        description="Environment variables of the model server; those of a deployment win. Default: none.",
    )
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate, description="Labels and annotations of the pods. Default: none."
    )
    secrets: Secrets = Field(
        default_factory=Secrets, description="Secrets of the model server; only in a ModelTemplate. Default: none."
    )
    node_selector: dict[str, _Value] = Field(
        default_factory=dict, max_length=MAX_ENTRIES, description="Node labels that the pods require. Default: none."
    )
    tolerations: list[Toleration] = Field(
        default_factory=list, max_length=MAX_TOLERATIONS, description="Taints that the pods accept. Default: none."
    )
    affinity: FreeForm = Field(
        default_factory=dict, description="Affinity of the pods, as in a Pod (core/v1 Affinity). Default: none."
    )
    topology_spread_constraints: FreeFormList = Field(
        default_factory=list,
        max_length=MAX_CONSTRAINTS,
        description="How pods are spread, as in a Pod (core/v1 TopologySpreadConstraint). Default: none.",
    )
    security_context: SecurityContext = Field(
        default_factory=SecurityContext, description="User and groups of the model server. Default: the image's."
    )
    priority_class_name: ObjectName = Field(
        default=None, description="PriorityClass of the pods. Default: the cluster's default."
    )


class TemplateSource(ApiModel):
    """Where the weights of a model are."""

    model_id: Text = Field(default=None, max_length=512, description="Id of the model. Default: modelName.")
    uri: str = Field(max_length=1024, description="Where they are: hf://owner/name[/path] or s3://bucket/prefix.")
    size: Quantity = Field(
        default=None, description="Size of the weights, in bytes (a quantity such as 140Gi). Default: measured."
    )


class TemplateCaching(ApiModel):
    """Whether the weights are fetched before a deployment asks for them."""

    enabled: bool = Field(
        default=False,
        description="Whether the namespace keeps a copy of the weights, which deployments share. Only in a "
        "ModelTemplate. Default: false.",
    )


class TemplateDiscovery(ApiModel):
    """How the catalogue asks an image which profile it has."""

    image: Text = Field(default=None, max_length=1024, description="Image to ask. Default: that of defaults.")
    args: list[Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=list, max_length=32, description="Arguments after dry-run --format=json. Default: none."
    )
    command: list[Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=list,
        max_length=32,
        description="Program of the image before these arguments. Default: the image's entrypoint, as its registry "
        "has it.",
    )


class ModelTemplateSpec(ApiModel):
    """One model, the hardware that it needs, and how it is started."""

    model_name: str = Field(
        min_length=1,
        max_length=512,
        description="Model, such as meta-llama/Llama-3.1-8B-Instruct; immutable. Required.",
    )
    metric: Literal["latency", "throughput"] | None = Field(
        default=None, description="What it is tuned for, latency or throughput; immutable. Default: neither."
    )
    precision: Text = Field(
        default=None, max_length=32, description="Precision of the weights, such as fp8; immutable. Default: not given."
    )
    hardware: TemplateHardware | None = Field(
        default=None, description="What one replica needs; immutable. Default: what the deployment says."
    )
    defaults: TemplateDefaults = Field(
        default_factory=TemplateDefaults, description="Values for what a deployment does not say itself. Default: none."
    )
    model_sources: list[TemplateSource] = Field(
        default_factory=list,
        max_length=MAX_SOURCES,
        description="Where the weights are. Default: found by discovery, else the hub's repository of that name.",
    )
    caching: TemplateCaching = Field(
        default_factory=TemplateCaching, description="Whether the weights are fetched beforehand. Default: no."
    )
    discovery: TemplateDiscovery | None = Field(
        default=None, description="How the catalogue asks an image for its profile. Default: it asks none."
    )
    runtime_config_name: ObjectName = Field(
        default=None, description="Runtime config of what the catalogue makes. Default: default."
    )
    image_pull_secrets: list[LocalObjectReference] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES,
        json_schema_extra=list_map("name"),
        description="Secrets for pulling images, in the same namespace; only in a ModelTemplate. Default: none.",
    )
    service_account_name: ObjectName = Field(
        default=None, description="ServiceAccount of the pods. Default: the provider's choice."
    )
    optimized: bool | None = Field(
        default=None, description="Whether it was tuned and tested: true or false. Default: not known."
    )


class TemplateHardwareStatus(ApiModel):
    """The hardware that the cluster has for the template."""

    resource: str | None = Field(default=None, max_length=317, description="Resource name of the GPUs.")
    nodes: Count | None = Field(default=None, description="Nodes that have what one replica needs, a number.")
    nodes_out_of_service: Count | None = Field(
        default=None, description="How many of these nodes are cordoned or not Ready, a number; absent: none."
    )
    models: list[_Value] = Field(
        default_factory=list, max_length=16, description="Models of the GPUs of these nodes, sorted."
    )
    tier: Count | None = Field(
        default=None, description="Rank of the GPU model; of two templates that of the greater one is chosen."
    )
    requirements: FreeFormList = Field(
        default_factory=list,
        max_length=MAX_CONSTRAINTS,
        description="What a node must have, as in the matchExpressions of a node affinity; sorted.",
    )
    summary: str | None = Field(default=None, max_length=128, description="In short, such as 2 x MI300X.")


class TemplateDiscoveryStatus(ApiModel):
    """Tries to ask the image."""

    attempts: Count | None = Field(default=None, description="Tries so far, a number.")
    last_attempt_time: Timestamp = Field(default=None, description="Moment when the last try began (RFC 3339).")
    next_attempt_time: Timestamp = Field(default=None, description="Moment of the next try, if one waits (RFC 3339).")
    spec_hash: str | None = Field(default=None, max_length=64, description="Digest of what the tries were about.")
    job: str | None = Field(default=None, max_length=253, description="Job of the last try that was counted.")
    shell: bool | None = Field(
        default=None, description="False: the image has no /bin/sh, so that what it prints cannot be read."
    )


class TemplateCacheStatus(ApiModel):
    """Copies of the weights that the template keeps."""

    ready: Count | None = Field(default=None, description="Artifacts that are complete, a number.")
    total: Count | None = Field(default=None, description="Artifacts that it keeps, a number.")
    summary: str | None = Field(default=None, max_length=64, description="In short, such as 1/2.")
    artifacts: list[_Value] = Field(
        default_factory=list, max_length=MAX_SOURCES, description="Names of the ModelArtifacts that it keeps."
    )


class ModelTemplateStatus(WorkStatus):
    """Whether the template can be used here, written by the catalogue."""

    profile: FreeForm = Field(default_factory=dict, description="What the image reported of itself.")
    model_sources: list[TemplateSource] = Field(
        default_factory=list, max_length=MAX_SOURCES, description="Where the weights are, as discovery found it."
    )
    hardware: TemplateHardwareStatus | None = Field(default=None, description="What the cluster has for it.")
    discovery: TemplateDiscoveryStatus | None = Field(default=None, description="Tries to ask the image.")
    cache: TemplateCacheStatus | None = Field(default=None, description="Copies of the weights that it keeps.")
    used_by: Count | None = Field(
        default=None,
        description="Deployments that use it, a number; absent for a ClusterModelTemplate if not all namespaces are "
        "watched.",
    )
    conditions: list[ModelDeploymentCondition] = Field(
        default_factory=list,
        json_schema_extra=list_map("type"),
        description="State aspect by aspect: Ready, ConfigValid, AuthValid, DependenciesReachable, "
        "RuntimeConfigReady, HardwareReady, DiscoveryReady, CacheReady.",
    )


class ModelTemplate(ApiObject):
    """How one model runs, for the deployments of a namespace that name it, or its model."""

    kind: str = KIND
    spec: ModelTemplateSpec = Field(description="One model, and how it runs.")
    status: ModelTemplateStatus = Field(
        default_factory=ModelTemplateStatus, description="Whether the template can be used here."
    )


class ClusterModelTemplate(ModelTemplate):
    """How one model runs, for the deployments of all namespaces; it has no credentials."""

    kind: str = CLUSTER_KIND


# ------------------------------------------------------------------------------------------------------------- rules


def _rules() -> Iterator[ValidationRule]:
    yield ValidationRule(
        path="spec",
        expression="self.modelName == oldSelf.modelName",
        message="Model name is immutable",
        field=".modelName",
    )
    for field in ("metric", "precision", "hardware"):
        # On `spec`: a rule on the field itself would not see that it was removed and added again.
        yield immutable_rule("spec", field, "Immutable after creation")
    model = "(has(self.modelId) && self.modelId != '')"
    yield ValidationRule(
        path="spec",
        expression="!has(self.caching) || !has(self.caching.enabled) || !self.caching.enabled || "
        f"!({is_path_rule('self.modelName')}) || (has(self.modelSources) && self.modelSources.size() > 0)",
        message="a path has no repository, so there is nothing to keep: leave caching out, or name the weights in "
        "modelSources",
        field=".caching.enabled",
    )
    yield ValidationRule(
        path="spec.modelSources[*]",
        expression=f"!{model} || !({is_path_rule('self.modelId')})",
        message="modelId is owner/name: a path has no repository",
        field=".modelId",
    )
    yield ValidationRule(
        path="spec.hardware",
        expression="has(self.gpu) || (has(self.cpu) && string(self.cpu) != '')",
        message="At least one of gpu or cpu must be specified",
    )
    yield ValidationRule(
        path="spec.hardware.gpu",
        expression="!has(self.model) || self.model == '' || !has(self.minVram) || string(self.minVram) == ''",
        message="model and minVram are mutually exclusive",
        field=".minVram",
    )
    yield number_rule("spec.hardware.gpu", "count", MAX_GPUS)
    yield from quantity_rules("spec.hardware.gpu", "minVram", example="80Gi")
    yield from quantity_rules("spec.hardware", "cpu", maximum=MAX_CPU, example="8 or 500m")
    yield from quantity_rules("spec.defaults.resources", "memory", maximum=MAX_MEMORY, example="32Gi")
    yield from quantity_rules("spec.modelSources[*]", "size", example="140Gi")
    source = "spec.modelSources[*]"
    yield uri_form_rule(source)
    yield ValidationRule(
        path=source,
        expression="!self.uri.matches('[[:space:][:cntrl:]]') && !((self.uri + '/').contains('/../'))"
        " && !((self.uri + '/').contains('/./'))",
        message="uri must not have blanks, control characters, or . or .. as a part of its path",
        field=".uri",
    )


def _cluster_rules() -> Iterator[ValidationRule]:
    yield from credential_rules(CLUSTER_KIND, namespaced=KIND, below="defaults")
    yield ValidationRule(
        path="spec",
        expression="!has(self.caching) || !has(self.caching.enabled) || !self.caching.enabled",
        message="weights are kept in a namespace: enable caching in a ModelTemplate",
        field=".caching",
        reason=FORBIDDEN,
    )


MODEL_TEMPLATE_RULES: tuple[ValidationRule, ...] = tuple(_rules())
"""All rules of the ModelTemplate."""

CLUSTER_MODEL_TEMPLATE_RULES: tuple[ValidationRule, ...] = (*_rules(), *_cluster_rules())
"""All rules of the ClusterModelTemplate: those of the ModelTemplate, and nothing that belongs to a namespace."""
