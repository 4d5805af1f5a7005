"""The ModelSource: a registry whose images become ClusterModelTemplates (docs/model-sources.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from airunway.api._deployment_status import ModelDeploymentCondition, WorkStatus
from airunway.api.base import (
    ApiModel,
    ApiObject,
    CABundleReference,
    Count,
    Duration,
    LocalObjectReference,
    ObjectName,
    Timestamp,
    list_map,
)
from airunway.api.bounds import MAX_ENTRIES
from airunway.api.rules import ValidationRule, duration_rule

KIND = "ModelSource"

MAX_FILTERS = 32
"""Most filters of one source."""
_MAX_CONSTRAINTS = 16

_Constraint = Annotated[str, Field(max_length=64)]
_Pattern = Annotated[str, Field(min_length=1, max_length=256)]


class SourceFilter(ApiModel):
    """Images of the registry; one that any filter selects counts."""

    image: _Pattern = Field(
        description="Repository below the registry, such as library/model; * and ? stop at a slash. Required."
    )
    exclude: list[_Pattern] = Field(
        default_factory=list, max_length=MAX_ENTRIES, description="Repositories to leave out. Default: none."
    )
    versions: list[_Constraint] = Field(
        default_factory=list,
        max_length=_MAX_CONSTRAINTS,
        description="Versions that count, such as >=1.2 and <2; all must hold. Default: those of the source.",
    )


class ModelSourceSpec(ApiModel):
    """Where images are looked for, and which of them count."""

    registry: str = Field(
        max_length=253, description="Registry, such as registry.example:5000 or registry.example/team. Required."
    )
    filters: list[SourceFilter] = Field(
        max_length=MAX_FILTERS, description="Images that count: one that any filter selects. Required."
    )
    versions: list[_Constraint] = Field(
        default_factory=list,
        max_length=_MAX_CONSTRAINTS,
        description="Versions that count for filters without their own, such as >=1.2; all must hold. Default: all.",
    )
    max_models: Count | None = Field(default=None, description="Most templates that this source makes. Default: 100.")
    sync_interval: Duration = Field(
        default=None, description="Time between two scans, a duration such as 30m; at least 1m. Default: 1h."
    )
    image_pull_secrets: list[LocalObjectReference] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES,
        json_schema_extra=list_map("name"),
        description="Secrets with the registry's credentials, in the operator's namespace. Default: none.",
    )
    ca_bundle: CABundleReference | None = Field(
        default=None,
        description="Authorities that are trusted besides the public ones, for a registry with a private one: a "
        "ConfigMap in the operator's namespace. Default: none.",
    )
    models: list[_Pattern] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES,
        description="Names of models that its images may be for, such as meta-llama/*; * and ? stop at a slash. An "
        "image that names another model gives no template. Default: all.",
    )
    trust_optimized: bool = Field(
        default=False,
        description="Whether an image's own word that it was tuned and tested counts in the choice among templates: "
        "true or false. Default: false.",
    )
    insecure: bool = Field(default=False, description="Whether the registry speaks plain HTTP. Default: false.")
    runtime_config_name: ObjectName = Field(
        default=None, description="Runtime config of what is made. Default: default."
    )


class SourceFilterStatus(ApiModel):
    """What the last scan found by one filter."""

    image: str | None = Field(default=None, max_length=256, description="The filter.")
    found: Count | None = Field(default=None, description="Images that it selected, a number.")
    reason: str | None = Field(default=None, max_length=256, description="Why it failed, as one CamelCase word.")
    message: str | None = Field(default=None, max_length=512, description="Why it failed, as a sentence.")


class ModelSourceStatus(WorkStatus):
    """What the last scan found."""

    last_sync_time: Timestamp = Field(default=None, description="Moment when the last scan ended (RFC 3339).")
    next_sync_time: Timestamp = Field(default=None, description="Moment of the next scan (RFC 3339).")
    models: Count | None = Field(default=None, description="Templates that were made from this source, a number.")
    filters: list[SourceFilterStatus] = Field(
        default_factory=list, max_length=MAX_FILTERS, description="What each filter found."
    )
    conditions: list[ModelDeploymentCondition] = Field(
        default_factory=list,
        json_schema_extra=list_map("type"),
        description="State aspect by aspect: Ready, ConfigValid, AuthValid, DependenciesReachable, "
        "RuntimeConfigReady, ScanReady.",
    )


class ModelSource(ApiObject):
    """A registry whose images become ClusterModelTemplates; those that were made are kept when the source goes."""

    kind: str = KIND
    spec: ModelSourceSpec = Field(description="Where images are looked for, and which of them count.")
    status: ModelSourceStatus = Field(default_factory=ModelSourceStatus, description="What the last scan found.")


def _rules() -> Iterator[ValidationRule]:
    yield ValidationRule(
        path="spec",
        expression="self.registry.matches('^[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?"
        "(/[a-z0-9][-a-z0-9._]*)*$') && !self.registry.contains('..')",
        message="registry is host, host:port or host/folder, without https://",
        field=".registry",
    )
    yield ValidationRule(
        path="spec",
        expression="self.filters.size() > 0",
        message="name at least one image in filters",
        field=".filters",
    )
    yield duration_rule("spec", "syncInterval", "syncInterval must be a duration such as 30m or 1h")


MODEL_SOURCE_RULES: tuple[ValidationRule, ...] = tuple(_rules())
"""All rules of the ModelSource. Constraints on versions are read by the catalogue: ``InvalidConstraint``."""
