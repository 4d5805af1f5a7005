"""What a provider imports, and all of it: the contract's values, and a kit that makes objects and reads statuses.

Pure, and versioned with the contract (docs/providers/sdk.md has every name with an example). Imports of anything else
of `airunway` by a provider are refused by its linter rules, and may break with any release.
"""

from airunway.api import names as labels
from airunway.api.modeldeployment import DEFAULT_GPU_TYPE, ModelDeployment, parse_deployment
from airunway.engines import (
    EngineArguments,
    FlagTable,
    KeywordArguments,
    Remark,
    engine_arguments,
    flag_table,
    keyword_arguments,
    literal,
)
from airunway.plugins.contract import (
    CONTRACT_VERSIONS,
    Compatibility,
    Component,
    Context,
    Endpoint,
    EngineCapability,
    Finding,
    Gateway,
    Installation,
    ModelCache,
    Observation,
    Observed,
    Pool,
    ProviderManifest,
    Replicas,
    RuntimeSettings,
    SecretKey,
    SelectionMode,
    SelectionRule,
    Transformer,
    Translation,
    Upstream,
    UpstreamKind,
    kind_key,
)
from airunway.plugins.hookspecs import hookimpl
from airunway.resource import Resource, canonical_json, dig, digest
from airunway.sdk import conditions, overrides, picker, serving, workloads
from airunway.sdk.fields import CORE_FIELDS, ignored_fields, tracked
from airunway.sdk.gguf import gguf_reference, llamacpp_dialect
from airunway.sdk.groups import Member
from airunway.sdk.launch import DEFAULT_IMAGES, Launch, launch, served_name_of
from airunway.sdk.names import derived_name, too_long
from airunway.sdk.plugin import Provider
from airunway.sdk.pods import (
    Sizing,
    container_resources,
    environment,
    model_pod,
    pod_blockers,
    pod_findings,
    pod_labels,
    pod_specs,
    pod_templates,
    sizing,
)
from airunway.sdk.settings import NoSettings, SettingsError, setting
from airunway.status.evidence import EventFacts

__all__ = [
    "CONTRACT_VERSIONS",
    "CORE_FIELDS",
    "DEFAULT_GPU_TYPE",
    "DEFAULT_IMAGES",
    "Compatibility",
    "Component",
    "Context",
    "Endpoint",
    "EngineArguments",
    "EngineCapability",
    "EventFacts",
    "Finding",
    "FlagTable",
    "Gateway",
    "Installation",
    "KeywordArguments",
    "Launch",
    "Member",
    "ModelCache",
    "ModelDeployment",
    "NoSettings",
    "Observation",
    "Observed",
    "Pool",
    "Provider",
    "ProviderManifest",
    "Remark",
    "Replicas",
    "Resource",
    "RuntimeSettings",
    "SecretKey",
    "SelectionMode",
    "SelectionRule",
    "SettingsError",
    "Sizing",
    "Transformer",
    "Translation",
    "Upstream",
    "UpstreamKind",
    "canonical_json",
    "conditions",
    "container_resources",
    "derived_name",
    "dig",
    "digest",
    "engine_arguments",
    "environment",
    "flag_table",
    "gguf_reference",
    "hookimpl",
    "ignored_fields",
    "keyword_arguments",
    "kind_key",
    "labels",
    "launch",
    "literal",
    "llamacpp_dialect",
    "model_pod",
    "overrides",
    "parse_deployment",
    "picker",
    "pod_blockers",
    "pod_findings",
    "pod_labels",
    "pod_specs",
    "pod_templates",
    "served_name_of",
    "serving",
    "setting",
    "sizing",
    "too_long",
    "tracked",
    "workloads",
]
