"""The ModelArtifact: weights on a claim of the namespace, fetched once and verified (docs/model-cache.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from airunway.api._deployment_status import ModelDeploymentCondition, WorkStatus
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
    Quantity,
    Text,
    Timestamp,
    Toleration,
    list_map,
)
from airunway.api.bounds import MAX_ENTRIES, MAX_SHARED_ENV
from airunway.api.names import MAX_NAME_LENGTH
from airunway.api.rules import ValidationRule, amount_of, duration_rule, immutable_rule, quantity_rules, uri_form_rule
from airunway.resource import Resource

KIND = "ModelArtifact"

_MAX_PATTERNS = 64
_MAX_URI = 1024

_Glob = Annotated[str, Field(min_length=1, max_length=512)]
_Value = Annotated[str, Field(max_length=253)]


class ArtifactSource(ApiModel):
    """Where the weights come from; immutable."""

    uri: str = Field(
        max_length=_MAX_URI,
        description="Source: hf://owner/name, hf://owner/name/path (a file or folder of it) or s3://bucket/prefix. "
        "Required.",
    )
    revision: ObjectName = Field(
        default=None,
        description="Branch, tag or commit of a Hugging Face repository. It is resolved to a commit once. "
        "Default: main.",
    )
    include: list[_Glob] = Field(
        default_factory=list,
        max_length=_MAX_PATTERNS,
        description="Patterns of the files to fetch, such as *.safetensors. Default: what an engine needs.",
    )
    exclude: list[_Glob] = Field(
        default_factory=list, max_length=_MAX_PATTERNS, description="Patterns of files to leave out. Default: none."
    )


class ArtifactSecrets(ApiModel):
    """Secrets of the namespace that the download uses."""

    hugging_face_token: ObjectName = Field(
        default=None,
        description="Name of the Secret with the Hugging Face token under the key HF_TOKEN. Default: that of the "
        "runtime config.",
    )


class Retention(ApiModel):
    """When weights that nothing uses are deleted; only for artifacts that AI Runway made."""

    policy: Literal["Keep", "DeleteUnused"] | None = Field(
        default=None, description="Keep, or DeleteUnused some time after the last user went. Default: Keep."
    )
    ttl_after_unused: Duration = Field(
        default=None, description="Time without a user after which it is deleted, a duration such as 24h. Default: 24h."
    )


class ModelArtifactSpec(ApiModel):
    """The weights, and where they are kept."""

    source: ArtifactSource = Field(description="Where the weights come from; immutable. Required.")
    model_id: Text = Field(default=None, max_length=2048, description="Id of the model, for people. Default: none.")
    size: Quantity = Field(
        default=None,
        description="Size of the claim, in bytes (a quantity such as 100Gi); it may only grow. Default: measured.",
    )
    storage_class_name: ObjectName = Field(
        default=None,
        description="StorageClass of the claim; immutable. Default: that of the runtime config, else the cluster's.",
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] | None = Field(
        default=None,
        description="Access mode of the claim; immutable. Default: that of the runtime config, else ReadWriteMany.",
    )
    secrets: ArtifactSecrets = Field(
        default_factory=ArtifactSecrets, description="Secrets that the download uses. Default: those of the config."
    )
    env: list[EnvVar] = Field(
        default_factory=list,
        max_length=MAX_SHARED_ENV,
        json_schema_extra=list_map("name"),
        description="Environment variables of the download, such as AWS_REGION. Default: those of the config.",
    )
    ca_bundle: CABundleReference | None = Field(
        default=None,
        description="Authorities that the download trusts besides the public ones, for a hub or store with a private "
        "one: a ConfigMap of the namespace. Default: that of the config.",
    )
    image_pull_secrets: list[LocalObjectReference] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES,
        json_schema_extra=list_map("name"),
        description="Secrets for pulling the downloader's image. Default: those of the config.",
    )
    service_account_name: ObjectName = Field(
        default=None,
        description="ServiceAccount of the download's pods; they get no token of the API. Default: default.",
    )
    node_selector: dict[str, _Value] = Field(
        default_factory=dict,
        max_length=MAX_ENTRIES,
        description="Labels of the nodes that may run the download: a volume may be bound to where it runs. "
        "Default: none.",
    )
    tolerations: list[Toleration] = Field(
        default_factory=list, max_length=MAX_ENTRIES, description="Taints that the download accepts. Default: none."
    )
    runtime_config_name: ObjectName = Field(
        default=None, description="Name of the runtime config to follow. Default: default."
    )
    downloader_image: Text = Field(
        default=None, max_length=1024, description="Image of the downloader. Default: that of the installation."
    )
    retention: Retention = Field(
        default_factory=Retention,
        description="When unused weights are deleted; no effect on an artifact that a user made. Default: never.",
    )


class Progress(ApiModel):
    """How far the download is."""

    total_bytes: Int64 | None = Field(default=None, description="Bytes to fetch, a number.")
    downloaded_bytes: Int64 | None = Field(default=None, description="Bytes that were fetched, a number.")
    percentage: Count | None = Field(default=None, description="Part that was fetched, in percent.")
    bytes_per_second: Int64 | None = Field(default=None, description="Speed, in bytes per second.")
    estimated_completion: Timestamp = Field(
        default=None, description="Moment when the download ends at this speed (RFC 3339)."
    )


class DownloadStatus(ApiModel):
    """Tries to fetch the weights."""

    attempts: Count | None = Field(default=None, description="Tries so far, a number.")
    last_attempt_time: Timestamp = Field(default=None, description="Moment when the last try began (RFC 3339).")
    next_attempt_time: Timestamp = Field(default=None, description="Moment of the next try, if one waits (RFC 3339).")


class Completed(ApiModel):
    """The proof that the weights are complete on one claim."""

    digest: str | None = Field(default=None, max_length=128, description="Digest over all files (sha256).")
    files: Count | None = Field(default=None, description="Files, a number.")
    bytes: Int64 | None = Field(default=None, description="Bytes of all files, a number.")
    claim_uid: str | None = Field(
        default=None, alias="claimUID", max_length=128, description="UID of the claim that has them."
    )
    at: Timestamp = Field(default=None, description="Moment when they were complete (RFC 3339).")


class AdapterFacts(ApiModel):
    """What a LoRA adapter says of itself in its adapter_config.json."""

    type: str | None = Field(default=None, max_length=253, description="PEFT's type of the adapter, such as LORA.")
    rank: Count | None = Field(default=None, description="Highest rank of its matrices, a number.")
    base_model: str | None = Field(default=None, max_length=253, description="Model that it was trained for.")
    problem: str | None = Field(default=None, max_length=253, description="Why the file says nothing.")


class ModelArtifactStatus(WorkStatus):
    """How far the weights are, and who uses them."""

    mode: str | None = Field(
        default=None, max_length=32, description="Shared, Dedicated, or User where AI Runway did not make it."
    )
    progress: Progress | None = Field(default=None, description="How far the download is.")
    download: DownloadStatus | None = Field(default=None, description="Tries to fetch the weights.")
    discovered_size_bytes: Int64 | None = Field(default=None, description="Measured size, in bytes.")
    allocated_size: str | None = Field(default=None, max_length=64, description="Size of the claim.")
    headroom_percent: Count | None = Field(default=None, description="Space added to the measured size, in percent.")
    resolved_revision: str | None = Field(default=None, max_length=253, description="Commit that is fetched.")
    persistent_volume_claim: str | None = Field(
        default=None, max_length=253, description="PersistentVolumeClaim with the weights."
    )
    completed: Completed | None = Field(default=None, description="Proof that the weights are complete.")
    adapter: AdapterFacts | None = Field(
        default=None, description="What the weights say of themselves if they are those of a LoRA adapter."
    )
    users: Count | None = Field(default=None, description="Deployments and templates that use it, a number.")
    used_by: list[Annotated[str, Field(max_length=253)]] = Field(
        default_factory=list,
        max_length=16,
        description="Names of the first 16 that use it: deployments, and templates as ModelTemplate/name.",
    )
    unused_since: Timestamp = Field(default=None, description="Moment when the last user went (RFC 3339).")
    conditions: list[ModelDeploymentCondition] = Field(
        default_factory=list,
        json_schema_extra=list_map("type"),
        description="State aspect by aspect: Ready, ConfigValid, AuthValid, DependenciesReachable, "
        "RuntimeConfigReady, StorageReady, DownloadReady.",
    )


class ModelArtifact(ApiObject):
    """Weights of a model on a claim of the namespace: fetched once, verified, and mounted by every deployment that
    asks for them.
    """

    kind: str = KIND
    spec: ModelArtifactSpec = Field(description="The weights, and where they are kept.")
    status: ModelArtifactStatus = Field(
        default_factory=ModelArtifactStatus, description="How far the weights are, and who uses them."
    )


# ------------------------------------------------------------------------------------------------------------- rules


def _never_smaller(node: Resource, old: Resource | None) -> bool:
    before, now = amount_of((old or {}).get("size")), amount_of(node.get("size"))
    return before is None or (now is not None and now >= before)


def _rules() -> Iterator[ValidationRule]:
    yield ValidationRule(
        path="",
        expression=f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
        message=f"metadata.name must have at most {MAX_NAME_LENGTH} characters: claim and Jobs are named after it",
        field=".metadata.name",
        unless_unchanged="metadata.name",
    )
    source = "spec.source"
    yield uri_form_rule(source)
    yield ValidationRule(
        path=source,
        expression="!self.uri.matches('[[:space:][:cntrl:]]')",
        message="uri must not have blanks or control characters",
        field=".uri",
    )
    yield ValidationRule(
        path=source,
        expression="!((self.uri + '/').contains('/../') || (self.uri + '/').contains('/./'))",
        message="uri must not have . or .. as a part of its path",
        field=".uri",
    )
    yield ValidationRule(
        path="spec",
        expression="self.source == oldSelf.source",
        message="sourceUri is immutable: create another ModelArtifact for another source",
        field=".source",
    )
    yield from (immutable_rule("spec", field, f"{field} is immutable") for field in ("storageClassName", "accessMode"))
    yield from quantity_rules("spec", "size", example="100Gi")
    size = "string(self.size)"
    yield ValidationRule(
        path="spec",
        expression="!has(oldSelf.size) || !isQuantity(string(oldSelf.size)) || (has(self.size) && "
        f"isQuantity({size}) && quantity({size}).compareTo(quantity(string(oldSelf.size))) >= 0)",
        message="size may only grow",
        field=".size",
        check=_never_smaller,
    )
    yield duration_rule(
        "spec.retention", "ttlAfterUnused", "retention.ttlAfterUnused must be a duration such as 24h or 30m"
    )


MODEL_ARTIFACT_RULES: tuple[ValidationRule, ...] = tuple(_rules())
"""All rules of the ModelArtifact."""
