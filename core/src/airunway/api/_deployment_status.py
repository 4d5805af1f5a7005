"""``ModelDeployment.status``: what the controllers report."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from airunway.api.autoscaling import PrometheusSpec
from airunway.api.base import ApiModel, FreeForm, Int32, Int64, Timestamp, list_map
from airunway.resource import Resource

PHASES = ("Pending", "Deploying", "Running", "Degraded", "Failed", "Terminating")

UNSEEN: Resource = {
    "phase": "Pending",
    "reason": "WaitingForController",
    "message": "Waiting for the controller",
    "conditions": [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "WaitingForController",
            "message": "Waiting for the controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }
    ],
}
"""The status of a deployment before its first pass; the API server writes it as the schema's default.

Without it, tools that follow kstatus would regard an object without a status as ready.
"""

_Short = Annotated[str, Field(max_length=1024)]


class ModelDeploymentCondition(ApiModel):
    """One aspect of the state, as in every Kubernetes API."""

    type: str = Field(
        max_length=316,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        description="Aspect that the condition is about, in CamelCase. Required.",
    )
    status: str = Field(
        json_schema_extra={"enum": ["True", "False", "Unknown"]},
        description="Whether it holds: True, False or Unknown. Required.",
    )
    reason: str = Field(
        default="",
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, as one CamelCase word. Required.",
    )
    message: str = Field(default="", max_length=32768, description="Why, as a sentence. Required, may be empty.")
    last_transition_time: Timestamp = Field(
        default=None, description="Moment when status changed last (RFC 3339). Required."
    )
    observed_generation: Int64 | None = Field(
        default=None, description="Generation of the object that the condition speaks of. Default: unknown."
    )


class EngineStatus(ApiModel):
    """The engine in use."""

    type: str | None = Field(default=None, description="Engine in use: the one asked for, or the selected one.")
    selected_reason: str | None = Field(default=None, max_length=1024, description="Why this engine, as a sentence.")


class NewerTranslation(ApiModel):
    """What is newer in the provider than in the revision, and not in use."""

    transformers: list[_Short] = Field(default_factory=list, max_length=16, description="Newer transformers, by name.")
    changes: list[_Short] = Field(
        default_factory=list, max_length=16, description="What would be another, by name, as sentences."
    )


class ProviderStatus(ApiModel):
    """The provider in use and the object that it created."""

    name: str | None = Field(default=None, description="Provider in use: the one asked for, or the selected one.")
    selected_reason: str | None = Field(default=None, max_length=1024, description="Why this provider, as a sentence.")
    resource_name: str | None = Field(default=None, description="Name of the provider's own object.")
    resource_kind: str | None = Field(default=None, description="Kind of the provider's own object, such as Workspace.")
    resource_api_version: str | None = Field(
        default=None,
        alias="resourceAPIVersion",
        description="API version of the provider's own object, such as kaito.sh/v1beta1.",
    )
    schema_hash: str | None = Field(
        default=None, description="Digest of the upstream schema that the object was written for (sha256)."
    )
    revision: str | None = Field(
        default=None, max_length=64, description="Hash of the revision that the provider's objects were written from."
    )
    newer: NewerTranslation | None = Field(
        default=None,
        description="What the provider would write otherwise in a new deployment, where that makes a difference.",
    )


class ReplicaStatus(ApiModel):
    """How many replicas there are."""

    desired: Int32 = Field(default=0, description="Replicas wanted, a number.")
    ready: Int32 = Field(default=0, description="Replicas that serve, a number.")
    available: Int32 = Field(default=0, description="Replicas that have been ready for long enough, a number.")
    summary: str | None = Field(
        default=None, max_length=64, description="Ready and wanted replicas as one text, such as 2/2, for tables."
    )


class PoolStatus(ApiModel):
    """An InferencePool."""

    name: str | None = Field(default=None, max_length=253, description="Name of the pool, in the same namespace.")
    port: Int32 | None = Field(default=None, description="Port of its members, a number.")
    holds_requests: bool | None = Field(
        default=None, description="Whether its endpoint picker holds requests while no replica runs: true or false."
    )


class EndpointStatus(ApiModel):
    """Where the model is served in the cluster."""

    service: str | None = Field(default=None, description="Service that answers requests, in the same namespace.")
    port: Int32 | None = Field(default=None, description="Port of the Service, a number.")
    target_port: Int32 | None = Field(default=None, description="Port of the pods that answer, a number.")
    pool: PoolStatus | None = Field(
        default=None, description="InferencePool that the provider's operator keeps, if there is one."
    )
    scheme: str | None = Field(default=None, description="Scheme of the URL: http or https. Default: http.")
    url: str | None = Field(
        default=None, max_length=1024, description="Address inside the cluster, such as http://llama.default.svc:8000."
    )


class GroupStatus(ApiModel):
    """The deployments with which this one shares a path or a model name at the gateway."""

    name: str | None = Field(default=None, max_length=63, description="Name of the group.")
    holder: str | None = Field(
        default=None, max_length=253, description="ModelDeployment whose route has the rule that the group shares."
    )
    share: Int32 | None = Field(
        default=None, description="Percent of the shared requests that this deployment gets, a number."
    )


class GatewayStatus(ApiModel):
    """Where the model is served through the gateway."""

    ready: bool | None = Field(default=None, description="Whether the gateway routes to the model: true or false.")
    url: str | None = Field(default=None, max_length=2048, description="URL of the model at the gateway.")
    gateway_name: str | None = Field(default=None, max_length=253, description="Name of the Gateway.")
    backend: str | None = Field(
        default=None, max_length=16, description="What the route points to: Pool (InferencePool) or Service."
    )
    endpoint: str | None = Field(default=None, max_length=1024, description="Address of the gateway.")
    path: str | None = Field(default=None, max_length=1024, description="URL path of the model.")
    model_name: str | None = Field(default=None, max_length=2048, description="Model name to send in requests.")
    gateway_namespace: str | None = Field(default=None, description="Namespace of the Gateway.")
    holds_requests: bool | None = Field(
        default=None,
        description="Whether requests wait while no replica runs: true or false. Absent unless minReplicas is 0.",
    )
    group: GroupStatus | None = Field(
        default=None, description="Share of the requests, where other deployments of its group claim the same."
    )
    warnings: list[_Short] = Field(
        default_factory=list,
        max_length=8,
        description="What is to be known of the route although it works, as sentences; status.warnings repeats them.",
    )


class ConfigReference(ApiModel):
    """A runtime config."""

    kind: str | None = Field(
        default=None, max_length=64, description="Kind of the runtime config: RuntimeConfig or ClusterRuntimeConfig."
    )
    namespace: str | None = Field(
        default=None, max_length=63, description="Namespace of the runtime config, of a RuntimeConfig only."
    )
    name: str | None = Field(default=None, description="Name of the runtime config.")


class StatusPolicyInUse(ApiModel):
    """When a state becomes a fault, as the runtime config says it."""

    dependency_grace_period: str | None = Field(
        default=None, max_length=64, description="Time that a dependency may be unreachable, a duration."
    )
    capacity_blocked_after: str | None = Field(
        default=None, max_length=64, description="Time that a deployment may wait for capacity, a duration."
    )


class EffectiveRuntimeConfig(ApiModel):
    """The runtime config in use; exactly one of the two references is set."""

    namespace_ref: ConfigReference | None = Field(
        default=None, description="RuntimeConfig of the same namespace in use."
    )
    cluster_ref: ConfigReference | None = Field(default=None, description="ClusterRuntimeConfig in use.")
    scope: str | None = Field(default=None, description="Where the config comes from: Namespace, Cluster or Merged.")
    hash: str | None = Field(default=None, description="Digest of the effective settings (sha256).")
    label_patterns: list[_Short] = Field(
        default_factory=list, max_length=256, description="Patterns of the deployment's labels that its objects get."
    )
    status_policy: StatusPolicyInUse | None = Field(default=None, description="When a state becomes a fault.")
    routing: bool | None = Field(
        default=None, description="Whether deployments that do not say it get a route: true or false."
    )
    prometheus: PrometheusSpec | None = Field(
        default=None, description="Prometheus for the autoscaler of the deployment, if it is autoscaled."
    )


class TemplateReferenceStatus(ApiModel):
    """A template."""

    kind: str | None = Field(default=None, max_length=64, description="Kind: ModelTemplate or ClusterModelTemplate.")
    namespace: str | None = Field(default=None, max_length=63, description="Namespace of a ModelTemplate.")
    name: str | None = Field(default=None, max_length=253, description="Name of the template.")


class EffectiveTemplate(ApiModel):
    """The template in use; what it gives is in the revision."""

    ref: TemplateReferenceStatus | None = Field(default=None, description="Template in use.")
    scope: str | None = Field(default=None, max_length=32, description="Where it is: Namespace or Cluster.")
    hash: str | None = Field(default=None, max_length=64, description="Digest of what it gives (sha256).")
    newer_hash: str | None = Field(
        default=None,
        max_length=64,
        description="Digest of what the template gives now, where that is not in use yet (sha256): the next change of "
        "the spec takes it.",
    )


class PendingRevision(ApiModel):
    """What is newer and not taken."""

    hash: str | None = Field(default=None, max_length=64, description="Hash of the revision with it.")
    since: Timestamp = Field(default=None, description="Moment since which something waits (RFC 3339).")
    parts: list[_Short] = Field(
        default_factory=list, max_length=8, description="Parts that have something newer, or are not decided yet."
    )
    changes: list[_Short] = Field(
        default_factory=list, max_length=64, description="What differs, by name and never by value."
    )
    waits_for: str | None = Field(
        default=None,
        max_length=64,
        description="What is waited for: change (of the deployment's own spec), or the part that is not decided yet.",
    )


class RevisionStatus(ApiModel):
    """All that the deployment runs with and that is not in its own spec (docs/revisions.md)."""

    hash: str | None = Field(
        default=None, max_length=64, description="Digest of all parts (sha256); absent until each part is decided."
    )
    taken_for: str | None = Field(
        default=None, max_length=64, description="Digest of the deployment's own spec for which it was taken."
    )
    adopted: str | None = Field(
        default=None, max_length=64, description="Digest of the last value of the annotation airunway.ai/adopt."
    )
    template: FreeForm = Field(
        default_factory=dict, description="What the template gives: ref, hash and asked (of the templateRef), and spec."
    )
    settings: FreeForm = Field(
        default_factory=dict,
        description="Pod settings of the runtime config: env, imagePullSecrets, token, labels, runtimeClassName.",
    )
    cache: FreeForm = Field(default_factory=dict, description="Weights: artifact, claim, path, mountPath, accessMode.")
    gateway: FreeForm = Field(
        default_factory=dict, description="Gateway for which the provider makes the pool: name, namespace, usesPool."
    )
    provider: FreeForm = Field(
        default_factory=dict, description="How the provider writes: name, transformers by kind, kept settings."
    )
    pending: PendingRevision | None = Field(default=None, description="What is newer and not taken, if anything is.")


class ModelCacheStatus(ApiModel):
    """The cached weights in use."""

    artifact_name: str | None = Field(default=None, description="ModelArtifact in use.")
    claim_name: str | None = Field(default=None, description="PersistentVolumeClaim with the weights.")
    mount_path: str | None = Field(default=None, description="Path at which the claim is mounted in the container.")
    path: str | None = Field(
        default=None,
        description="Where the weights are in the container: the mount path, or a file or folder below it.",
    )
    access_mode: str | None = Field(
        default=None, max_length=64, description="Access mode of the claim, such as ReadWriteMany."
    )
    template_hash: str | None = Field(
        default=None,
        max_length=64,
        description="Hash of effectiveTemplate for which the part has answered; absent without a template.",
    )
    ready: bool = Field(default=False, description="Whether the weights are complete. Default: false.")


class RefusalStatus(ApiModel):
    """A provider's refusal of the spec, before any object of the deployment existed."""

    generation: Int64 = Field(default=0, description="Generation of the spec that was refused, a number.")
    reason: str | None = Field(default=None, max_length=256, description="Why, as one CamelCase word.")
    message: str | None = Field(default=None, max_length=1024, description="Why, as a sentence, with the field.")


class CandidateStatus(ApiModel):
    """One provider as seen by the selection."""

    name: str = Field(max_length=253, description="Provider that was considered. Required.")
    eligible: bool = Field(default=False, description="Whether the provider can run the deployment. Default: false.")
    score: Int32 = Field(default=0, description="Score: the highest priority of its rules that are true. Default: 0.")
    reasons: list[_Short] = Field(
        default_factory=list, max_length=16, description="Why, as sentences: failed checks, true rules, rule errors."
    )
    refusal: RefusalStatus | None = Field(
        default=None,
        description="Refusal of the provider itself (ProviderCompatible=False): the next candidate is chosen.",
    )


class SelectionStatus(ApiModel):
    """How the provider was selected; at most 8 KiB."""

    candidates: list[CandidateStatus] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra=list_map("name"),
        description="Providers that were considered, with the verdict on each.",
    )
    evaluated_at: Timestamp = Field(default=None, description="Moment of the selection (RFC 3339).")


class RootCauseStatus(ApiModel):
    """The one fault that explains why the deployment is not ready."""

    code: str | None = Field(default=None, max_length=256, description="Kind of fault, such as ImagePull.NotFound.")
    object: str | None = Field(
        default=None, max_length=1024, description="Object that shows the fault, such as Pod/llama-0."
    )
    field: str | None = Field(default=None, max_length=1024, description="Field of the deployment to look at, if any.")
    message: str | None = Field(default=None, max_length=1024, description="Evidence and remedy, as sentences.")
    since: Timestamp = Field(default=None, description="Moment when the fault was first seen (RFC 3339).")


class WorkStatus(ApiModel):
    """What the statuses of the other kinds with a phase have in common: artifacts, templates and sources."""

    observed_generation: Int64 | None = Field(
        default=None, description="Generation of the spec that the status speaks of, a number."
    )
    phase: str | None = Field(
        default=None,
        max_length=32,
        description="State as one word: Pending, Starting, Progressing, Ready, Degraded, NotAvailable or Failed.",
    )
    reason: str | None = Field(default=None, max_length=256, description="Why, as one CamelCase word.")
    message: str | None = Field(default=None, max_length=1024, description="Why, as a sentence.")
    effective_runtime_config: EffectiveRuntimeConfig | None = Field(
        default=None, description="Runtime config that it follows."
    )
    root_cause: RootCauseStatus | None = Field(default=None, description="The fault that explains the state.")


class ImageStatus(ApiModel):
    """The container image in use."""

    requested: str | None = Field(default=None, max_length=1024, description="Image as asked for.")
    resolved: str | None = Field(default=None, max_length=1024, description="Image that runs, with digest where known.")


class ModelDeploymentStatus(ApiModel):
    """What is running."""

    phase: str | None = Field(
        default=None,
        json_schema_extra={"enum": list(PHASES)},
        description="State as one word: Pending, Deploying, Running, Degraded, Failed or Terminating.",
    )
    reason: str | None = Field(default=None, max_length=256, description="Why, as one CamelCase word.")
    message: str | None = Field(
        default=None, max_length=1024, description="Why, as a sentence, at most 1024 characters."
    )
    observed_generation: Int64 | None = Field(
        default=None, description="Generation of the spec that the provider has applied, a number."
    )
    conditions: list[ModelDeploymentCondition] = Field(
        default_factory=list, json_schema_extra=list_map("type"), description="State aspect by aspect."
    )
    engine: EngineStatus = Field(default_factory=EngineStatus, description="Engine in use.")
    provider: ProviderStatus = Field(default_factory=ProviderStatus, description="Provider in use and its object.")
    replicas: ReplicaStatus = Field(default_factory=ReplicaStatus, description="How many replicas there are.")
    endpoint: EndpointStatus = Field(default_factory=EndpointStatus, description="Where the model is served.")
    gateway: GatewayStatus = Field(default_factory=GatewayStatus, description="Where the gateway serves the model.")
    effective_runtime_config: EffectiveRuntimeConfig = Field(
        default_factory=EffectiveRuntimeConfig, description="Runtime config in use."
    )
    effective_template: EffectiveTemplate | None = Field(
        default=None, description="Template in use, and what it gives."
    )
    parts: list[_Short] = Field(
        default_factory=list,
        max_length=8,
        description="Parts of the core that are on, of those that the deployment asks for: gateway, model-cache.",
    )
    model_cache: ModelCacheStatus = Field(default_factory=ModelCacheStatus, description="Cached weights in use.")
    revision: RevisionStatus | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
        description="All that the deployment runs with and that is not in its own spec.",
    )
    selection: SelectionStatus = Field(default_factory=SelectionStatus, description="How the provider was selected.")
    root_cause: RootCauseStatus | None = Field(default=None, description="Fault behind all that is wrong, if any.")
    warnings: list[_Short] = Field(
        default_factory=list, max_length=32, description="Things to know that stop nothing, as sentences."
    )
    selector: str | None = Field(
        default=None,
        max_length=1024,
        description="Label selector of the pods, as text, for kubectl scale and autoscalers.",
    )
    image: ImageStatus = Field(default_factory=ImageStatus, description="Container image in use.")
