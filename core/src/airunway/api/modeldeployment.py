"""The ModelDeployment: what the user writes and what the controllers report."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from airunway.api._deployment_status import ModelDeploymentStatus
from airunway.api.autoscaling import Autoscaling
from airunway.api.base import (
    EMPTY_MEANS_ABSENT,
    SERVER_DEFAULT,
    ApiModel,
    CABundleReference,
    Count,
    EnvVar,
    FreeForm,
    FreeFormList,
    Int32,
    LocalObjectReference,
    ObjectMeta,
    ObjectName,
    Quantity,
    SecurityContext,
    Text,
    Toleration,
    integral,
    list_map,
    parse_model,
)
from airunway.api.bounds import (
    MAX_CONSTRAINTS,
    MAX_ENTRIES,
    MAX_ENV,
    MAX_SECRETS,
    MAX_TOLERATIONS,
    MAX_VALUE,
)
from airunway.api.names import API_VERSION, DEFAULT_GPU_TYPE, DEVICE_CLASS_PREFIX
from airunway.api.rules import COMPILATION_CACHE_PATH, MODEL_CACHE_PATH
from airunway.resource import Resource, digest

_MOUNT_PATHS = {"modelCache": MODEL_CACHE_PATH, "compilationCache": COMPILATION_CACHE_PATH, "custom": None}

_LONGEST, _DIGITS = 63, 8


def volume_claim_name(deployment: str, volume: str) -> str:
    """The name of the claim that is made for a volume with a size: ``<deployment>-<volume>``, at most 63 characters.

    A longer one is cut, and ends with 8 digits of a digest of the whole name.
    """
    name = f"{deployment}-{volume}"
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - _DIGITS - 1].rstrip('-.')}-{digest(name, length=_DIGITS)}"


class FilesReference(ApiModel):
    """A ConfigMap or Secret whose keys become files."""

    name: str = Field(
        min_length=1, max_length=253, description="Name of the object, in the namespace of the deployment. Required."
    )


class Volume(ApiModel):
    """A volume for weights, compiled kernels, files or anything else."""

    name: str = Field(
        max_length=63,
        pattern=r"^[a-z0-9]([a-z0-9\-]*[a-z0-9])?$",
        description="Name of the volume, unique within the deployment: lower-case letters, digits and '-'. Required.",
    )
    claim_name: ObjectName = Field(
        default=None,
        description="PersistentVolumeClaim to mount, in the same namespace. Required unless size, configMap or secret "
        "is set; with size the claim is created, as <deployment>-<volume>, cut to 63 characters.",
    )
    config_map: FilesReference | None = Field(
        default=None,
        description="ConfigMap to mount as files, one for each key, read-only: chat templates, CA bundles, plugins. "
        "Files of running pods follow its content; a server that reads them once needs a restart. Default: none.",
    )
    secret: FilesReference | None = Field(
        default=None, description="Secret to mount as files, one for each key, read-only. Default: none."
    )
    mount_path: Text = Field(
        default=None,
        max_length=1024,
        description="Path in the container, absolute. Default: /model-cache for modelCache, /compilation-cache for "
        "compilationCache; required for custom.",
    )
    purpose: Literal["modelCache", "compilationCache", "custom"] = Field(
        default="custom",
        json_schema_extra=SERVER_DEFAULT,
        description="What the volume is for: modelCache (weights), compilationCache (compiled kernels) or custom. "
        "Default: custom.",
    )
    read_only: bool = Field(default=False, description="Whether the volume is mounted read-only. Default: false.")
    size: Quantity = Field(
        default=None,
        description="Size of the claim to create, in bytes (a quantity such as 100Gi). It can only grow, and the claim "
        "grows with it where its StorageClass can. Default: no claim is created.",
    )
    storage_class_name: str | None = Field(
        default=None,
        max_length=253,
        description="StorageClass of the claim to create; an empty text means no class. Only with size. "
        "Default: that of the runtime config, else the cluster's default class.",
    )
    access_mode: Annotated[
        Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"] | None, EMPTY_MEANS_ABSENT
    ] = Field(
        default=None,
        description="Access mode of the claim to create. Only with size. Default: that of the runtime config, else "
        "ReadWriteMany.",
    )

    @model_validator(mode="after")
    def _defaults(self) -> Volume:
        if self.mount_path is None and (path := _MOUNT_PATHS[self.purpose]) is not None:
            self.mount_path = path
        if self.size is not None and self.access_mode is None:
            self.access_mode = "ReadWriteMany"
        return self


class Storage(ApiModel):
    """Volumes of the model server."""

    volumes: list[Volume] = Field(
        default_factory=list,
        max_length=8,
        json_schema_extra=list_map("name"),
        description="Volumes to mount into the model server, at most 8. Default: none.",
    )


class ModelCacheSpec(ApiModel):
    """How the weights are cached in the cluster."""

    mode: Literal["None", "Shared", "Dedicated"] = Field(
        default="None",
        description="How weights are kept between starts: None (no cache), Shared (one copy per namespace, used by all "
        "deployments of the same model) or Dedicated (a copy of this deployment's own). Default: None.",
    )
    artifact_name: ObjectName = Field(
        default=None,
        description="Name of an existing ModelArtifact to use, in the same namespace. Default: chosen or created.",
    )
    revision: ObjectName = Field(
        default=None,
        description="Branch, tag or commit of the model's repository; it is resolved to a commit once. Default: main.",
    )
    size: Quantity = Field(
        default=None,
        description="Size of the cache volume, in bytes (a quantity such as 100Gi). Default: measured from the model.",
    )
    storage_class_name: ObjectName = Field(
        default=None,
        description="StorageClass of the cache volume. Default: that of the runtime config, else the cluster's.",
    )
    access_mode: Annotated[Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] | None, EMPTY_MEANS_ABSENT] = (
        Field(
            default=None,
            description="Access mode of the cache volume. Default: that of the runtime config, else ReadWriteMany.",
        )
    )
    ca_bundle: CABundleReference | None = Field(
        default=None,
        description="Authorities that the download trusts besides the public ones, for a hub with a private one: a "
        "ConfigMap of the namespace. Default: that of the runtime config.",
    )


Value = Annotated[str, Field(max_length=MAX_VALUE)]


Task = Literal["generate", "embed", "rerank", "classify", "transcribe"]


class Model(ApiModel):
    """The model to serve."""

    id: Text = Field(
        default=None,
        max_length=2048,
        description="Model to serve: a Hugging Face id such as meta-llama/Llama-3.1-8B-Instruct. Required when source "
        "is huggingface or oci.",
    )
    served_name: Text = Field(
        default=None,
        max_length=2048,
        description="Name under which clients ask for the model. Default: the last segment of id.",
    )
    source: Literal["huggingface", "custom", "oci"] = Field(
        default="huggingface",
        json_schema_extra=SERVER_DEFAULT,
        description="Where the model comes from: huggingface, custom (it is in the container image or a volume) or "
        "oci (an image or artifact in a registry, see uri). Default: huggingface.",
    )
    uri: Text = Field(
        default=None,
        max_length=1024,
        description="Image or artifact with the weights, as oci://REGISTRY/REPOSITORY[:TAG|@DIGEST]; nodes pull it and "
        "pods mount it read-only (Kubernetes 1.33). Required when source is oci.",
    )
    task: Task = Field(
        default="generate",
        description="What the model does: generate (text), embed, rerank, classify or transcribe. It decides which "
        "engines and providers can run it, how they are started, and that no endpoint picker stands before a model "
        "that does not generate. Default: generate.",
    )
    storage: Storage = Field(default_factory=Storage, description="Volumes of the model server. Default: none.")
    cache: ModelCacheSpec = Field(
        default_factory=ModelCacheSpec, description="Caching of the weights in the cluster. Default: no cache."
    )


class ProviderSpec(ApiModel):
    """The provider that runs the model."""

    name: ObjectName = Field(
        default=None,
        description="Provider to use: the name of an InferenceProviderConfig. Default: selected from the providers "
        "that can run the deployment.",
    )
    overrides: FreeForm = Field(
        default_factory=dict,
        description="Settings of the provider itself, free-form; its documentation lists the keys. Default: none.",
    )


class Engine(ApiModel):
    """The inference engine and its settings."""

    type: str | None = Field(
        default=None,
        max_length=63,
        description="Inference engine: vllm, sglang, trtllm, llamacpp or another that a provider offers. Default: "
        "selected from what the providers offer, see status.engine.type.",
    )
    image: Text = Field(
        default=None,
        max_length=1024,
        description="Container image of the engine, preferred to spec.image. Default: the provider's image.",
    )
    context_length: Int32 | None = Field(
        default=None, description="Longest context of a request, in tokens. Default: the model's own maximum."
    )
    trust_remote_code: bool = Field(
        default=False, description="Whether code from the model repository may be executed. Default: false."
    )
    enable_prefix_caching: bool | None = Field(
        default=None,
        description="Whether common prompt prefixes are cached: true or false. Default: the engine's own default.",
    )
    enforce_eager: bool = Field(
        default=False,
        description="Whether CUDA graphs are switched off (starts faster, serves slower). Default: false.",
    )
    args: dict[str, Value] = Field(
        default_factory=dict,
        max_length=256,
        description="Flags of the engine by name without dashes, values as text, for example "
        'gpu-memory-utilization: "0.9". Default: none.',
    )
    extra_args: list[Value] = Field(
        default_factory=list,
        max_length=512,
        description="Arguments appended to the engine's command line as they are, one token each. Default: none.",
    )


class Serving(ApiModel):
    """How requests are served."""

    mode: Literal["aggregated", "disaggregated"] = Field(
        default="aggregated",
        json_schema_extra=SERVER_DEFAULT,
        description="Serving mode: aggregated (one worker does all) or disaggregated (prefill and decode are separate "
        "workers, see scaling.prefill and scaling.decode). Default: aggregated.",
    )


class Gpu(ApiModel):
    """GPUs of one replica."""

    count: Count = Field(default=0, description="GPUs per replica, a number from 0 to 64. Default: 0.")
    type: Annotated[str, BeforeValidator(lambda value: DEFAULT_GPU_TYPE if value == "" else value)] = Field(
        default=DEFAULT_GPU_TYPE,
        max_length=317,
        json_schema_extra=SERVER_DEFAULT,
        description="Resource name of the GPUs, for example amd.com/gpu. Default: nvidia.com/gpu.",
    )
    device_class: ObjectName = Field(
        default=None,
        description="DeviceClass of the GPUs, for example gpu.nvidia.com, in place of type: they are asked for by "
        "Dynamic Resource Allocation (Kubernetes 1.34). Default: none.",
    )

    @property
    def resource(self) -> str:
        """The resource name of the GPUs; of a device class the one that Kubernetes gives its devices."""
        return f"{DEVICE_CLASS_PREFIX}{self.device_class}" if self.device_class else self.type


class ResourceLimits(ApiModel):
    """Limits of resources."""

    cpu: Quantity = Field(
        default=None,
        description="CPU limit, in cores (a quantity such as 8 or 500m), at least cpu and at most 512: for namespaces "
        "whose quota demands one. Helpers, such as a picker, then get limits too. Default: no limit.",
    )


class RoleSpec(ApiModel):
    """The workers of one role in disaggregated mode."""

    replicas: Count = Field(
        default=1,
        json_schema_extra=SERVER_DEFAULT,
        description="Workers of this role, a number from 0 to 32. Default: 1.",
    )
    gpu: Gpu = Field(
        default_factory=Gpu, description="GPUs of each worker. A count of at least 1 is required in disaggregated mode."
    )
    memory: Quantity = Field(
        default=None,
        description="Memory of each worker, in bytes (a quantity such as 64Gi), at most 4Ti. Required in disaggregated "
        "mode.",
    )
    cpu: Quantity = Field(
        default=None,
        description="CPU of each worker, in cores (a quantity such as 8 or 500m), at most 512. Default: by provider.",
    )
    limits: ResourceLimits = Field(
        default_factory=ResourceLimits, description="Limits of each worker. Default: those of resources.limits."
    )


NodeCount = Annotated[int, Field(ge=1, le=2**31 - 1, json_schema_extra={"format": "int32"}), BeforeValidator(integral)]


class Scaling(ApiModel):
    """How many replicas run."""

    replicas: Count = Field(
        default=1,
        json_schema_extra=SERVER_DEFAULT,
        description="Replicas in aggregated mode, a number from 0 (scaled to zero) to 32. Default: 1.",
    )
    nodes_per_replica: NodeCount | None = Field(
        default=None,
        description="Nodes over which each replica (in disaggregated mode each worker) is spread evenly, a number from "
        "1 to 32. Default: as many as its GPUs need, by the provider's setting gpusPerNode.",
    )
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="How the number of replicas follows the load, in aggregated mode. Leave replicas out then. "
        "Default: none.",
    )
    prefill: RoleSpec | None = Field(
        default=None, description="Prefill workers. Required in disaggregated mode, ignored otherwise."
    )
    decode: RoleSpec | None = Field(
        default=None, description="Decode workers. Required in disaggregated mode, ignored otherwise."
    )


class Resources(ApiModel):
    """Resources of one replica in aggregated mode."""

    gpu: Gpu = Field(default_factory=Gpu, description="GPUs of each replica. Default: none, the model runs on CPU.")
    memory: Quantity = Field(
        default=None,
        description="Memory of each replica, in bytes (a quantity such as 32Gi), at most 4Ti. Default: the provider's.",
    )
    cpu: Quantity = Field(
        default=None,
        description="CPU of each replica, in cores (a quantity such as 8 or 500m), at most 512. Default: by provider.",
    )
    limits: ResourceLimits = Field(
        default_factory=ResourceLimits,
        description="Limits besides those that follow from gpu and memory, also for the workers of both roles where "
        "these have none. Default: none.",
    )
    extended: dict[str, Quantity] = Field(
        default_factory=dict,
        max_length=16,
        description="Extended resources of each pod that runs the model, as name: count, such as rdma/ib: 1. GPUs "
        "belong into gpu. Default: none.",
    )


class PodTemplateMetadata(ApiModel):
    """Metadata of the created pods."""

    labels: dict[str, Value] = Field(
        default_factory=dict, max_length=MAX_ENTRIES, description="Labels of the created pods. Default: none."
    )
    annotations: dict[str, Value] = Field(
        default_factory=dict, max_length=MAX_ENTRIES, description="Annotations of the created pods. Default: none."
    )


class PodTemplate(ApiModel):
    """What is added to the created pods."""

    metadata: PodTemplateMetadata = Field(
        default_factory=PodTemplateMetadata, description="Labels and annotations of the created pods. Default: none."
    )


class WorkloadMetadata(ApiModel):
    """Metadata of the workload object."""

    labels: dict[str, Value] = Field(
        default_factory=dict,
        max_length=MAX_ENTRIES,
        description="Labels of the workload object, such as kueue.x-k8s.io/queue-name; its pods do not get them from "
        "here. Default: none.",
    )
    annotations: dict[str, Value] = Field(
        default_factory=dict, max_length=MAX_ENTRIES, description="Annotations of the workload object. Default: none."
    )


class Workload(ApiModel):
    """The object that a provider makes to run the model: a Deployment, a Workspace, a graph."""

    metadata: WorkloadMetadata = Field(
        default_factory=WorkloadMetadata, description="Labels and annotations of the object alone. Default: none."
    )


class Secrets(ApiModel):
    """Secrets that the model server uses."""

    hugging_face_token: ObjectName = Field(
        default=None,
        description="Name of the Secret with the Hugging Face token under the key HF_TOKEN, in the same namespace. "
        "Default: none (public models).",
    )


class GatewayReference(ApiModel):
    """The Gateway to attach to."""

    name: str = Field(max_length=253, description="Name of the Gateway. Required.")
    namespace: Text = Field(
        default=None, max_length=63, description="Namespace of the Gateway. Default: that of the deployment."
    )
    section_name: ObjectName = Field(
        default=None, description="Listener of the Gateway. Default: every listener that admits the route."
    )


class GatewaySpec(ApiModel):
    """How the model is reached from outside."""

    enabled: bool | None = Field(
        default=None, description="Whether the model is routed: true or false. Default: true where a gateway is found."
    )
    model_name: Text = Field(
        default=None,
        max_length=2048,
        description="Model name that requests are routed by. Default: the served name, else the id.",
    )
    http_route_ref: ObjectName = Field(
        default=None, description="Name of an HTTPRoute of your own, in the same namespace. Default: one is created."
    )
    gateway_ref: GatewayReference | None = Field(
        default=None, description="Gateway to attach to. Default: that of the runtime config, else the detected one."
    )
    endpoint_picker: Literal["Auto", "None"] = Field(
        default="Auto",
        description="Whether routes lead to an endpoint picker: Auto (where the provider has one, for models that "
        "generate text) or None (they lead to the Service). Default: Auto.",
    )
    path_template: Text = Field(
        default=None,
        max_length=1024,
        description="Template of the URL path under which the model is served. Default: that of the runtime config.",
    )
    request_timeout: Text = Field(
        default=None,
        max_length=32,
        pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$",
        description="Longest time for one request, a duration such as 30s or 5m. Default: the gateway's.",
    )
    annotations: dict[str, Value] = Field(
        default_factory=dict, max_length=MAX_ENTRIES, description="Annotations of the created route. Default: none."
    )
    group: Text = Field(
        default=None,
        max_length=63,
        description="Deployments of this namespace with the same group share the paths and model names that they have "
        "in common, by weight. Default: none.",
    )
    weight: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Proportional share of the requests that the group shares, a number. Default: 1.",
    )


class TemplateReference(ApiModel):
    """The template to use: one by its name, or the best one for a model."""

    name: ObjectName = Field(
        default=None,
        description="Name of a ModelTemplate of the namespace, else of a ClusterModelTemplate. Default: by modelName.",
    )
    model_name: Text = Field(
        default=None, max_length=512, description="Model: the best of its templates that are Ready is used."
    )
    metric: Literal["latency", "throughput"] | None = Field(
        default=None, description="With modelName: only templates tuned for latency or throughput. Default: either."
    )
    precision: Text = Field(
        default=None, max_length=32, description="With modelName: only templates of that precision. Default: any."
    )


class ModelDeploymentSpec(ApiModel):
    """What is to run."""

    model: Model = Field(
        default_factory=Model, description="Model to serve. Required, unless templateRef names a template."
    )
    template_ref: TemplateReference | None = Field(
        default=None,
        description="Template with the model and with values for what is absent here; instead of model.id. "
        "Default: none.",
    )
    provider: ProviderSpec = Field(
        default_factory=ProviderSpec, description="Provider that runs the model. Default: selected automatically."
    )
    engine: Engine = Field(
        default_factory=Engine, description="Inference engine and its settings. Default: selected automatically."
    )
    serving: Serving = Field(default_factory=Serving, description="How requests are served. Default: aggregated.")
    scaling: Scaling = Field(
        default_factory=Scaling,
        json_schema_extra={**SERVER_DEFAULT, "default": {}},
        description="How many replicas run. Default: 1.",
    )
    resources: Resources = Field(
        default_factory=Resources,
        description="Resources of each replica in aggregated mode. Default: no GPU; memory and CPU of the provider.",
    )
    image: Text = Field(
        default=None,
        max_length=1024,
        description="Container image of the model server; engine.image is preferred. Default: the provider's image.",
    )
    env: list[EnvVar] = Field(
        default_factory=list,
        max_length=MAX_ENV,
        description="Environment variables of the model server. Default: none.",
    )
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate, description="Labels and annotations for the created pods. Default: none."
    )
    workload: Workload = Field(
        default_factory=Workload,
        description="Labels and annotations of the object that runs the model, not of its pods. Default: none.",
    )
    secrets: Secrets = Field(
        default_factory=Secrets, description="Names of Secrets that the model server uses. Default: none."
    )
    gateway: GatewaySpec = Field(
        default_factory=GatewaySpec, description="How the model is reached through a gateway. Default: as detected."
    )
    node_selector: dict[str, Value] = Field(
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
    service_account_name: ObjectName = Field(
        default=None, description="ServiceAccount of the pods. Default: the provider's choice."
    )
    security_context: SecurityContext = Field(
        default_factory=SecurityContext,
        description="User and groups of the model server, and whether it can write to its image. Default: the image's.",
    )
    image_pull_secrets: list[LocalObjectReference] = Field(
        default_factory=list,
        max_length=MAX_SECRETS,
        json_schema_extra=list_map("name"),
        description="Secrets for pulling images, in the same namespace. Default: those of the ServiceAccount.",
    )
    priority_class_name: ObjectName = Field(
        default=None, description="PriorityClass of the pods. Default: the cluster's default."
    )
    runtime_class_name: ObjectName = Field(
        default=None,
        description="RuntimeClass of the pods that run the model, such as nvidia. Default: that of the runtime config "
        "for pods with GPUs, else the node's default runtime.",
    )
    runtime_config_name: ObjectName = Field(
        default=None, description="Name of the RuntimeConfig or ClusterRuntimeConfig to use. Default: default."
    )
    suspend: bool = Field(
        default=False, description="Whether the model is stopped while the deployment is kept. Default: false."
    )


KIND = "ModelDeployment"
PLURAL = "modeldeployments"


class ModelDeployment(ApiModel):
    """A model to serve: one object, whatever engine and provider run it."""

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: ModelDeploymentSpec = Field(description="What is to run. Required.")
    status: ModelDeploymentStatus = Field(
        default_factory=ModelDeploymentStatus, description="What is running, written by the controllers only."
    )

    @model_validator(mode="after")
    def _name_created_claims(self) -> ModelDeployment:
        for volume in self.spec.model.storage.volumes:
            if volume.size is not None and volume.claim_name is None:
                volume.claim_name = volume_claim_name(self.metadata.name, volume.name)
        return self


def parse_deployment(obj: Resource) -> ModelDeployment:
    """Parses a ModelDeployment and fills in every default (no GPU is ever added).

    Never fails for an object that the CRD accepts. Otherwise raises ParseError with the path and the problem.
    """
    return parse_model(ModelDeployment, obj)


_FREE_FORM: dict[str, bool | set[str]] = {
    "provider": {"overrides"},
    "affinity": True,
    "topology_spread_constraints": True,
}


def defaulted_spec(spec: Resource, *, engine: str | None) -> Resource:
    """Returns `spec` with every default filled in, and `engine` (the resolved one, if any) as ``engine.type``.

    The result always has the objects that a rule may read (``resources.gpu``, ``serving``, ``scaling``, ``engine``,
    ``provider``, …), and counts, modes, lists and maps. It has ``scaling.prefill``/``decode`` and texts without a
    default (``image``, ``resources.memory``) only if they were given. Quantities are texts, so
    ``quantity(spec.resources.memory)`` works. Raises ParseError if the spec does not fit the schema.
    """
    parsed = parse_model(ModelDeploymentSpec, spec)
    # Free-form parts are copied unchanged: they may be nested deeper than pydantic can write.
    defaulted: Resource = parsed.model_dump(by_alias=True, exclude_none=True, exclude=_FREE_FORM)
    defaulted["provider"]["overrides"] = parsed.provider.overrides
    defaulted["affinity"] = parsed.affinity
    defaulted["topologySpreadConstraints"] = parsed.topology_spread_constraints
    if engine is not None:
        defaulted["engine"]["type"] = engine
    return defaulted
