"""The InferenceProviderConfig: the capabilities and the state of a provider."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from airunway.api._deployment_status import ModelDeploymentCondition
from airunway.api.base import (
    SERVER_DEFAULT,
    ApiModel,
    ApiObject,
    Count,
    FreeForm,
    Timestamp,
    list_map,
)

KIND = "InferenceProviderConfig"

_Word = Annotated[str, Field(max_length=253)]


class EndpointPicker(ApiModel):
    """Customisation of the endpoint picker."""

    image: str | None = Field(
        default=None, max_length=1024, description="Container image of the endpoint picker. Default: the core's image."
    )
    config_data: str | None = Field(
        default=None,
        max_length=65536,
        description="Configuration of the endpoint picker, as text (YAML). Default: the core's configuration.",
    )


class EngineGateway(ApiModel):
    """What the provider does about routing."""

    manages_inference_pool: bool = Field(
        default=False,
        description="Whether the provider's operator makes the InferencePool and endpoint picker. Default: false.",
    )
    inference_pool_name_pattern: str | None = Field(
        default=None,
        max_length=253,
        description="Name of that pool, with the placeholders {name} and {namespace}. Default: {name}.",
    )
    inference_pool_namespace: str | None = Field(
        default=None,
        max_length=253,
        description="Namespace of that pool, with the placeholders {name} and {namespace}. Default: {namespace}.",
    )
    endpoint_picker: EndpointPicker | None = Field(
        default=None, description="Customisation of the endpoint picker; ignored with managesInferencePool."
    )
    ignores_served_name: bool = Field(
        default=False, description="Whether the served name is not what requests are routed by. Default: false."
    )


class EngineCapabilitySpec(ApiModel):
    """What the provider can do with one engine."""

    name: str = Field(
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="Engine: vllm, sglang, trtllm, llamacpp or any other name. Required.",
    )
    serving_modes: list[Literal["aggregated", "disaggregated"]] = Field(
        default_factory=list,
        max_length=8,
        description="Serving modes that work: aggregated, disaggregated. Default: none.",
    )
    gpu_support: bool = Field(default=False, description="Whether the engine runs on GPUs. Default: false.")
    cpu_support: bool = Field(default=False, description="Whether the engine runs without a GPU. Default: false.")
    api_formats: list[_Word] = Field(
        default_factory=list,
        max_length=16,
        description="API formats that are served, such as openai-chat. Default: openai-chat.",
    )
    tasks: list[_Word] = Field(
        default_factory=list,
        max_length=16,
        description="Tasks of models that it runs: generate, embed, rerank, classify, transcribe. Default: generate.",
    )
    requires_crd: bool | None = Field(
        default=None, alias="requiresCRD", description="Whether the upstream's CRD must be installed. Default: true."
    )
    model_cache: bool = Field(
        default=False, description="Whether weights can be mounted from a model cache. Default: false."
    )
    model_cache_helpers: int = Field(
        default=0,
        ge=0,
        description="Pods that mount the model cache besides one for each replica, such as a router or a head. "
        "Default: 0.",
    )
    image_volumes: bool = Field(
        default=False, description="Whether weights can be mounted from an OCI image or artifact. Default: false."
    )
    path_routing: bool = Field(
        default=False, description="Whether the model can be served under a URL path of its own. Default: false."
    )
    scale_to_zero: bool = Field(default=False, description="Whether zero replicas are possible. Default: false.")
    autoscaling: Literal["Scale", "Own"] = Field(
        default="Scale",
        description="Who follows scaling.autoscaling: Scale (KEDA changes scaling.replicas) or Own (the upstream "
        "scales by itself). Default: Scale.",
    )
    multi_node: bool = Field(default=False, description="Whether one replica can span several nodes. Default: false.")
    gateway: EngineGateway | None = Field(default=None, description="What the provider does about routing.")


class Capabilities(ApiModel):
    """What the provider can do."""

    engines: list[EngineCapabilitySpec] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra=list_map("name"),
        description="Engines that the provider runs, each with what works. Default: none.",
    )


class SelectionRuleSpec(ApiModel):
    """A rule that makes the provider preferable for some deployments."""

    condition: str = Field(
        min_length=1,
        max_length=2048,
        description="CEL expression over spec (the fully defaulted spec of the deployment), true or false. Required.",
    )
    priority: Count = Field(
        default=0,
        description="Score of the provider when the condition is true, a number; the highest score wins. Default: 0.",
    )


class UpstreamKindSpec(ApiModel):
    """A kind of the upstream that the provider writes."""

    group: str = Field(max_length=253, description="API group of the upstream kind. Required.")
    kind: str = Field(max_length=63, description="Name of the upstream kind, such as Workspace. Required.")
    versions: list[_Word] = Field(
        default_factory=list, max_length=16, description="Versions that the provider can write, preferred first."
    )
    requires_crd: bool = Field(
        default=True,
        alias="requiresCRD",
        json_schema_extra=SERVER_DEFAULT,
        description="Whether the provider cannot work without this kind. Default: true.",
    )


class HelmRepo(ApiModel):
    """A Helm repository."""

    name: str = Field(max_length=253, description="Name of the Helm repository. Required.")
    url: str = Field(max_length=2048, description="URL of the Helm repository. Required.")


class HelmChart(ApiModel):
    """A Helm chart of the upstream."""

    name: str = Field(max_length=253, description="Name of the release. Required.")
    chart: str = Field(default="", max_length=2048, description="Chart: repository/name, or a URL.")
    version: str | None = Field(default=None, max_length=253, description="Version of the chart. Default: the newest.")
    namespace: str | None = Field(default=None, max_length=63, description="Namespace to install into.")
    create_namespace: bool = Field(default=False, description="Whether the namespace is created. Default: false.")
    skip_crds: bool = Field(default=False, description="Whether the chart's CRDs are left out. Default: false.")
    fetch_url: str | None = Field(default=None, max_length=2048, description="URL to fetch the chart from.")
    pre_crd_urls: list[Annotated[str, Field(max_length=2048)]] = Field(
        default_factory=list, max_length=64, description="URLs of CRDs to install before the chart. Default: none."
    )
    pre_install_missing_crds: bool = Field(
        default=False, description="Whether missing CRDs are installed before the chart. Default: false."
    )
    values: FreeForm = Field(default_factory=dict, description="Values of the chart, free-form. Default: none.")


class InstallationStep(ApiModel):
    """One step of an installation by hand."""

    title: str = Field(max_length=1024, description="What the step does. Required.")
    command: str | None = Field(default=None, max_length=8192, description="Command to run, if there is one.")
    description: str | None = Field(default=None, max_length=8192, description="What to know about the step.")


class InstallationSpec(ApiModel):
    """How an administrator installs the upstream."""

    description: str | None = Field(default=None, max_length=8192, description="What gets installed, as text.")
    default_namespace: str | None = Field(default=None, max_length=63, description="Namespace of the upstream.")
    helm_repos: list[HelmRepo] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra=list_map("name"),
        description="Helm repositories to add. Default: none.",
    )
    helm_charts: list[HelmChart] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra=list_map("name"),
        description="Helm charts to install, in this order. Default: none.",
    )
    steps: list[InstallationStep] = Field(
        default_factory=list, max_length=64, description="Steps to do by hand, in this order. Default: none."
    )


class InferenceProviderConfigSpec(ApiModel):
    """What the provider is and can do."""

    capabilities: Capabilities | None = Field(default=None, description="What the provider can do.")
    selection: Literal["Auto", "Explicit"] = Field(
        default="Auto",
        json_schema_extra=SERVER_DEFAULT,
        description="Whether the provider takes part in automatic selection: Auto, or Explicit (only when "
        "spec.provider.name names it). Default: Auto.",
    )
    selection_rules: list[SelectionRuleSpec] = Field(
        default_factory=list,
        max_length=64,
        description="Rules that make the provider preferable for some deployments. Default: none (score 0).",
    )
    contract_versions: list[_Word] = Field(
        default_factory=list,
        max_length=16,
        description="Versions of the provider contract that the provider speaks. Default: unknown.",
    )
    upstream: list[UpstreamKindSpec] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra=list_map("group", "kind"),
        description="Upstream kinds that the provider writes. Default: none.",
    )
    installation: InstallationSpec | None = Field(
        default=None, description="How an administrator installs the upstream."
    )
    documentation: str | None = Field(default=None, max_length=2048, description="URL of the provider's documentation.")


class TranslationStatus(ApiModel):
    """How the provider would write a new deployment."""

    transformers: dict[str, Annotated[str, Field(max_length=253)]] = Field(
        default_factory=dict, max_length=64, description="Transformer of each kind, by Kind.group."
    )
    settings: FreeForm = Field(default_factory=dict, description="Settings that running deployments keep.")


class InferenceProviderConfigStatus(ApiModel):
    """How the provider is doing."""

    ready: bool = Field(default=False, description="Whether the provider takes deployments. Default: false.")
    version: str | None = Field(default=None, max_length=253, description="Version of the provider.")
    last_heartbeat: Timestamp = Field(
        default=None, description="Moment when the provider was last known to run (RFC 3339)."
    )
    upstream_crd_version: str | None = Field(
        default=None,
        max_length=317,
        alias="upstreamCRDVersion",
        description="API version of the upstream in use, such as kaito.sh/v1beta1.",
    )
    upstream_schema_hash: str | None = Field(
        default=None, max_length=253, description="Digest of the upstream schema in use (sha256)."
    )
    translation: TranslationStatus | None = Field(
        default=None,
        description="How the provider would write a new deployment: the core records it on each (status.revision).",
    )
    conditions: list[ModelDeploymentCondition] = Field(
        default_factory=list, json_schema_extra=list_map("type"), description="State aspect by aspect."
    )
    namespaces: dict[str, Annotated[str, Field(max_length=2048)]] = Field(
        default_factory=dict,
        max_length=10000,
        description="Namespaces with deployments of the provider, each with the service accounts that they name and "
        "what they use by leave of a policy (tolerations=*), separated by blanks. The core writes it, and the guards "
        "of the provider's account read it.",
    )


class InferenceProviderConfig(ApiObject):
    """A provider, registered in the cluster."""

    kind: str = KIND
    spec: InferenceProviderConfigSpec = Field(
        default_factory=InferenceProviderConfigSpec, description="What the provider is and can do."
    )
    status: InferenceProviderConfigStatus = Field(
        default_factory=InferenceProviderConfigStatus, description="How the provider is doing, written by it only."
    )
