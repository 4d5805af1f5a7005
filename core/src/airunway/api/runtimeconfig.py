"""The RuntimeConfig and ClusterRuntimeConfig: what a platform team sets once for its deployments.

The API server writes no defaults into these kinds: an absent field must stay absent until after the merge
(`airunway.configs`), where the defaults are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from airunway.api._deployment_status import ModelDeploymentCondition
from airunway.api.autoscaling import AutoscalingConfig
from airunway.api.base import (
    ApiModel,
    ApiObject,
    CABundleReference,
    Count,
    Duration,
    EnvVar,
    Int64,
    LocalObjectReference,
    ObjectName,
    list_map,
)
from airunway.api.bounds import MAX_ENTRIES, MAX_SHARED_ENV
from airunway.api.modeldeployment import GatewayReference
from airunway.api.paths import NAMESPACE_MARK, reserved_pattern
from airunway.api.rules import FORBIDDEN, ValidationRule, credential_rules, duration_rule, path_template_rules

KIND, CLUSTER_KIND = "RuntimeConfig", "ClusterRuntimeConfig"

_MAX_PATTERNS = 64

_Pattern = Annotated[str, Field(max_length=320)]
_Prefix = Annotated[str, Field(max_length=200)]
_Value = Annotated[str, Field(max_length=4096)]


class StorageSpec(ApiModel):
    """Volumes that AI Runway makes for deployments."""

    default_storage_class_name: ObjectName = Field(
        default=None, description="StorageClass of claims that name none. Default: that of the cluster."
    )
    pvc_headroom_percent: Count | None = Field(
        default=None, description="Space that is added to a measured size, in percent. Default: 10."
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"] | None = Field(
        default=None, description="Access mode of claims that name none. Default: ReadWriteMany."
    )


class RoutingSpec(ApiModel):
    """How models are reached from outside, for deployments that do not say it."""

    enabled: bool | None = Field(
        default=None,
        description="Whether models are routed, with a path of their own: true or false. Default: as each deployment "
        "says, else by model name where a gateway is found.",
    )
    gateway_ref: GatewayReference | None = Field(
        default=None, description="Gateway to attach to. Default: that of the installation, else the detected one."
    )
    path_template: str | None = Field(
        default=None,
        max_length=1024,
        description="Template of the URL path, such as /ml/{.metadata.namespace}/{.metadata.name}. Default: "
        "/<namespace>/<uid>.",
    )
    request_timeout: Duration = Field(
        default=None, description="Longest time for one request, a duration such as 30s or 5m. Default: the gateway's."
    )
    annotations: dict[str, _Value] = Field(
        default_factory=dict,
        max_length=MAX_ENTRIES,
        description="Annotations of routes; those of a deployment win. Default: none.",
    )
    split: Literal["Service", "Pool"] | None = Field(
        default=None,
        description="What a rule leads to while several deployments of a group have a share: Service, or Pool where "
        "the gateway takes several InferencePools in one rule. Default: Service.",
    )
    path_prefixes: list[_Prefix] = Field(
        default_factory=list,
        max_length=_MAX_PATTERNS,
        description="Only in a ClusterRuntimeConfig: the paths that namespaces may have, each with all below it, such "
        "as /ml/{namespace}. The lists of all ClusterRuntimeConfigs add up and hold for every namespace. Default: all "
        "but those that servers and gateways answer themselves.",
    )
    model_names: list[_Pattern] = Field(
        default_factory=list,
        max_length=_MAX_PATTERNS,
        description="Only in a ClusterRuntimeConfig: patterns of the model names that namespaces may have at a "
        "Gateway, such as {namespace}-*. The lists of all ClusterRuntimeConfigs add up and hold for every namespace. "
        "Default: all.",
    )


class RuntimeConfigSecrets(ApiModel):
    """Secrets of the namespace that deployments use."""

    hugging_face_token: ObjectName = Field(
        default=None,
        description="Name of the Secret with the Hugging Face token (key HF_TOKEN), for deployments without one. "
        "Default: none.",
    )


class LabelPropagation(ApiModel):
    """Labels of a deployment that its objects and pods get."""

    enabled: bool | None = Field(
        default=None, description="Whether matching labels are propagated: true or false. Default: false."
    )
    match: list[_Pattern] = Field(
        default_factory=list,
        max_length=_MAX_PATTERNS,
        description="Patterns of label keys, such as org.example/*; * and ? stop at the slash. Default: none.",
    )


class StatusPolicySpec(ApiModel):
    """When a state becomes a fault."""

    dependency_grace_period: Duration = Field(
        default=None,
        description="Time that a dependency may be unreachable before a deployment is Degraded, a duration. "
        "Default: 10s.",
    )
    capacity_blocked_after: Duration = Field(
        default=None,
        description="Time that a deployment may wait for capacity before it is Degraded, a duration. Default: 15m.",
    )


class _ConfigSpec(ApiModel):
    """What both kinds have."""

    rollout: Literal["OnNextChange", "Immediately"] | None = Field(
        default=None,
        description="When deployments that serve take changed settings of their pods: with the next change of their "
        "own spec (OnNextChange), or at once, a few at a time (Immediately). Default: OnNextChange.",
    )
    rollout_providers: Literal["OnNextChange", "Immediately"] | None = Field(
        default=None,
        description="When deployments that serve take the newer defaults of an upgraded provider, such as its default "
        "image: with the next change of their own spec (OnNextChange), or at once, a few at a time (Immediately). "
        "Default: OnNextChange.",
    )
    max_concurrent_rollouts: Int64 | None = Field(
        default=None,
        description="Deployments of this config that are changed at a time with rollout Immediately. Default: 1.",
    )
    default_storage_class_name: ObjectName = Field(
        default=None, description="The same as storage.defaultStorageClassName. Default: none."
    )
    storage: StorageSpec = Field(
        default_factory=StorageSpec, description="Volumes that are made for deployments. Default: see its fields."
    )
    routing: RoutingSpec = Field(
        default_factory=RoutingSpec, description="How models are reached from outside. Default: see its fields."
    )
    env: list[EnvVar] = Field(
        default_factory=list,
        max_length=MAX_SHARED_ENV,
        json_schema_extra=list_map("name"),
        description="Environment variables of model servers and of our Jobs; those of a deployment win. Default: none.",
    )
    image_pull_secrets: list[LocalObjectReference] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES,
        json_schema_extra=list_map("name"),
        description="Secrets for pulling images, in the namespace of the deployment; only in a RuntimeConfig. "
        "Default: none.",
    )
    runtime_class_name: ObjectName = Field(
        default=None,
        description="RuntimeClass of pods with GPUs, such as nvidia, where the deployment names none. Default: the "
        "node's default runtime.",
    )
    secrets: RuntimeConfigSecrets = Field(
        default_factory=RuntimeConfigSecrets,
        description="Secrets that deployments use; only in a RuntimeConfig. Default: none.",
    )
    ca_bundle: CABundleReference | None = Field(
        default=None,
        description="Authorities that downloads and discovery Jobs trust besides the public ones: a ConfigMap in the "
        "namespace of the Job. Default: none.",
    )
    label_propagation: LabelPropagation = Field(
        default_factory=LabelPropagation, description="Labels that objects and pods get. Default: see its fields."
    )
    autoscaling: AutoscalingConfig | None = Field(
        default=None, description="Where autoscalers find the load of models. Default: none."
    )
    status_policy: StatusPolicySpec = Field(
        default_factory=StatusPolicySpec, description="When a state becomes a fault. Default: see its fields."
    )


class RuntimeConfigSpec(_ConfigSpec):
    """What the deployments of a namespace have in common."""

    inherit: Literal["None", "Cluster"] | None = Field(
        default=None,
        description="Whether fields that are absent here come from the ClusterRuntimeConfig of the same name: None or "
        "Cluster. Default: None.",
    )


class ClusterRuntimeConfigSpec(_ConfigSpec):
    """What the deployments of all namespaces without a RuntimeConfig of that name have in common."""


class RuntimeConfigStatus(ApiModel):
    """Who uses the config, and what is wrong with it."""

    observed_generation: Int64 | None = Field(
        default=None, description="Generation of the spec that the status speaks of, a number."
    )
    used_by: Count | None = Field(
        default=None, description="Deployments whose settings come from this config, a number."
    )
    storage_class_name: str | None = Field(default=None, description="StorageClass of claims that name none.")
    conditions: list[ModelDeploymentCondition] = Field(
        default_factory=list,
        json_schema_extra=list_map("type"),
        description="State aspect by aspect: Ready, ConfigValid, RolloutStalled.",
    )


class RuntimeConfig(ApiObject):
    """What the deployments of a namespace have in common, if they name this config (default: the config "default")."""

    kind: str = KIND
    spec: RuntimeConfigSpec = Field(
        default_factory=RuntimeConfigSpec, description="What the deployments of a namespace have in common."
    )
    status: RuntimeConfigStatus = Field(
        default_factory=RuntimeConfigStatus, description="Who uses the config, and what is wrong with it."
    )


class ClusterRuntimeConfig(ApiObject):
    """What the deployments of namespaces without a RuntimeConfig of this name have in common; it has no credentials."""

    kind: str = CLUSTER_KIND
    spec: ClusterRuntimeConfigSpec = Field(
        default_factory=ClusterRuntimeConfigSpec, description="What the deployments of all namespaces have in common."
    )
    status: RuntimeConfigStatus = Field(
        default_factory=RuntimeConfigStatus, description="Who uses the config, and what is wrong with it."
    )


# ------------------------------------------------------------------------------------------------------------- rules


def _common_rules() -> Iterator[ValidationRule]:
    yield ValidationRule(
        path="spec",
        expression="!has(self.defaultStorageClassName) || !has(self.storage)"
        " || !has(self.storage.defaultStorageClassName)"
        " || self.defaultStorageClassName == self.storage.defaultStorageClassName",
        message="defaultStorageClassName and storage.defaultStorageClassName differ: remove one",
        field=".defaultStorageClassName",
    )
    yield ValidationRule(
        path="spec",
        expression="!has(self.maxConcurrentRollouts) || self.maxConcurrentRollouts >= 1",
        message="maxConcurrentRollouts must be at least 1",
        field=".maxConcurrentRollouts",
    )
    yield from path_template_rules("spec.routing")
    yield ValidationRule(
        path="spec.labelPropagation",
        expression="!has(self.match) || self.match.all(p, p != '')",
        message="a pattern must not be empty",
        field=".match",
    )
    for part, field in (
        ("routing", "requestTimeout"),
        ("statusPolicy", "dependencyGracePeriod"),
        ("statusPolicy", "capacityBlockedAfter"),
    ):
        yield duration_rule(f"spec.{part}", field, f"{part}.{field} must be a duration such as 10s, 5m or 1h")


def _rules_of_namespaces() -> Iterator[ValidationRule]:
    """What a namespace may have is given by an administrator, not by its own RuntimeConfig."""
    for field, what in (("pathPrefixes", "paths"), ("modelNames", "model names")):
        yield ValidationRule(
            path="spec.routing",
            expression=f"!has(self.{field}) || self.{field}.size() == 0",
            message=f"a {KIND} gives no namespace its {what}: put routing.{field} into a {CLUSTER_KIND}",
            field=f".{field}",
            reason=FORBIDDEN,
        )


def _rules_of_rights() -> Iterator[ValidationRule]:
    segment = r"([^{}/]|[{]namespace[}])+"
    yield ValidationRule(
        path="spec.routing",
        expression=f"!has(self.pathPrefixes) || self.pathPrefixes.all(p, p.matches('^(/{segment})+$') && "
        f"!p.matches('{reserved_pattern()}'))",
        message="a path prefix is /, a segment that no server or gateway answers itself, and further segments, such as "
        f"/ml/{NAMESPACE_MARK}; {NAMESPACE_MARK} is all that may be in braces",
        field=".pathPrefixes",
    )
    yield ValidationRule(
        path="spec.routing",
        expression="!has(self.modelNames) || self.modelNames.all(p, p.matches('^([^{}]|[{]namespace[}])+$'))",
        message=f"a pattern of model names must not be empty; {NAMESPACE_MARK} is all that may be in braces",
        field=".modelNames",
    )


def _prometheus_rules(*, cluster: bool) -> Iterator[ValidationRule]:
    """The rules of a runtime config about its Prometheus; with `cluster` those of the one without a namespace."""
    path = "spec.autoscaling.prometheus"
    yield ValidationRule(
        path=path,
        expression="self.serverAddress.matches('^https?://[^/?#\\\\s@]+(/[^?#\\\\s]*)?$')",
        message="serverAddress must be an http or https URL, such as http://prometheus.monitoring.svc:9090",
        field=".serverAddress",
    )
    if cluster:
        yield ValidationRule(
            path=path,
            expression="!has(self.authentication) || (has(self.authentication.kind)"
            " && self.authentication.kind == 'ClusterTriggerAuthentication')",
            message="a ClusterRuntimeConfig names a ClusterTriggerAuthentication: put a TriggerAuthentication into a "
            "RuntimeConfig",
            field=".authentication",
            reason=FORBIDDEN,
        )


RUNTIME_CONFIG_RULES: tuple[ValidationRule, ...] = (
    *_common_rules(),
    *_rules_of_namespaces(),
    *_prometheus_rules(cluster=False),
)
"""All rules of the RuntimeConfig (docs/runtime-configs.md)."""

CLUSTER_RUNTIME_CONFIG_RULES: tuple[ValidationRule, ...] = (
    *_common_rules(),
    *_rules_of_rights(),
    *_prometheus_rules(cluster=True),
    *credential_rules(CLUSTER_KIND, namespaced=KIND),
)
"""All rules of the ClusterRuntimeConfig: those of the RuntimeConfig, and no credentials."""
