"""Volumes and the model cache: the storage part of ``ModelDeployment.spec.model``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from airunway.api._base import EMPTY_MEANS_ABSENT, SERVER_DEFAULT, ApiModel, Quantity, Text, list_map
from airunway.resource import digest

__all__ = ["ModelCacheSpec", "Storage", "Volume", "volume_claim_name"]

_MOUNT_PATHS = {"modelCache": "/model-cache", "compilationCache": "/compilation-cache", "custom": None}

_LONGEST, _DIGITS = 63, 8


def volume_claim_name(deployment: str, volume: str) -> str:
    """The name of the claim that is made for a volume with a size: ``<deployment>-<volume>``, at most 63 characters.

    A longer one is cut, and ends with 8 digits of a digest of the whole name.
    """
    name = f"{deployment}-{volume}"
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - _DIGITS - 1].rstrip('-.')}-{digest(name, length=_DIGITS)}"


class Volume(ApiModel):
    """A volume for weights, compiled kernels or anything else."""

    name: str = Field(
        max_length=63,
        pattern=r"^[a-z0-9]([a-z0-9\-]*[a-z0-9])?$",
        description="Name of the volume, unique within the deployment: lower-case letters, digits and '-'. Required.",
    )
    claim_name: Text = Field(
        default=None,
        max_length=253,
        description="PersistentVolumeClaim to mount, in the same namespace. Required unless size is set; with size the "
        "claim is created, as <deployment>-<volume>, cut to 63 characters.",
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
    artifact_name: Text = Field(
        default=None,
        max_length=253,
        description="Name of an existing ModelArtifact to use, in the same namespace. Default: chosen or created.",
    )
    revision: Text = Field(
        default=None,
        max_length=253,
        description="Branch, tag or commit of the model's repository; it is resolved to a commit once. Default: main.",
    )
    size: Quantity = Field(
        default=None,
        description="Size of the cache volume, in bytes (a quantity such as 100Gi). Default: measured from the model.",
    )
    storage_class_name: Text = Field(
        default=None,
        max_length=253,
        description="StorageClass of the cache volume. Default: that of the runtime config, else the cluster's.",
    )
    access_mode: Annotated[Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] | None, EMPTY_MEANS_ABSENT] = (
        Field(
            default=None,
            description="Access mode of the cache volume. Default: that of the runtime config, else ReadWriteMany.",
        )
    )
