"""Kubernetes' own types inside a ModelDeployment: environment variables, tolerations, references."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from airunway.api._base import ApiModel, Count, Int64, Quantity, integral
from airunway.api.bounds import MAX_NAME, MAX_VALUE

__all__ = ["EnvVar", "LocalObjectReference", "SecurityContext", "Toleration"]

_User = Annotated[int, Field(ge=1, le=2**31 - 1, json_schema_extra={"format": "int32"}), BeforeValidator(integral)]


class LocalObjectReference(ApiModel):
    """A reference to an object in the same namespace."""

    name: str = Field(max_length=253, description="Name of the object, in the namespace of the deployment. Required.")


class KeySelector(ApiModel):
    """One key of a ConfigMap or Secret."""

    name: str = Field(default="", max_length=253, description="Name of the object, in the namespace of the deployment.")
    key: str = Field(max_length=253, description="Key within the object. Required.")
    optional: bool = Field(
        default=False, description="Whether the pod may start without the object or key. Default: false."
    )


class FieldSelector(ApiModel):
    """A field of the pod."""

    api_version: str | None = Field(
        default=None, max_length=MAX_NAME, description="Version of the schema of fieldPath. Default: v1."
    )
    field_path: str = Field(max_length=1024, description="Path of the pod's field, for example status.podIP. Required.")


class ResourceFieldSelector(ApiModel):
    """Resource limit or request of a container."""

    container_name: str | None = Field(
        default=None, max_length=253, description="Container to read from. Default: the same container."
    )
    resource: str = Field(max_length=MAX_NAME, description="Resource to read, for example limits.memory. Required.")
    divisor: Quantity = Field(default=None, description="Unit in which the value is expressed, a quantity. Default: 1.")


class FileKeySelector(ApiModel):
    """One key of an environment file in a volume."""

    volume_name: str = Field(max_length=253, description="Name of the volume with the file. Required.")
    path: str = Field(max_length=1024, description="Path of the file within the volume, relative. Required.")
    key: str = Field(max_length=253, description="Key within the file. Required.")
    optional: bool = Field(
        default=False, description="Whether the pod may start without the file or key. Default: false."
    )


class EnvVarSource(ApiModel):
    """Where the value of a variable comes from; exactly one field is set."""

    config_map_key_ref: KeySelector | None = Field(default=None, description="Key of a ConfigMap.")
    secret_key_ref: KeySelector | None = Field(default=None, description="Key of a Secret.")
    field_ref: FieldSelector | None = Field(default=None, description="Field of the pod itself.")
    resource_field_ref: ResourceFieldSelector | None = Field(
        default=None, description="Resource limit or request of a container."
    )
    file_key_ref: FileKeySelector | None = Field(default=None, description="Key of an environment file in a volume.")


class EnvVar(ApiModel):
    """An environment variable."""

    name: str = Field(max_length=1024, description="Name of the variable. Required.")
    value: str | None = Field(
        default=None, max_length=MAX_VALUE, description="Value of the variable. Default: the empty text."
    )
    value_from: EnvVarSource | None = Field(
        default=None, description="Source of the value, instead of value: a ConfigMap, a Secret or the pod itself."
    )


class Toleration(ApiModel):
    """A taint that the pods accept."""

    key: str | None = Field(
        default=None, max_length=MAX_NAME, description="Key of the taint. Default: every key (with operator Exists)."
    )
    operator: str | None = Field(
        default=None, max_length=63, description="How value is compared: Equal or Exists. Default: Equal."
    )
    value: str | None = Field(
        default=None, max_length=MAX_NAME, description="Value of the taint, for the operator Equal."
    )
    effect: str | None = Field(
        default=None,
        max_length=63,
        description="Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute. Default: every effect.",
    )
    toleration_seconds: Int64 | None = Field(
        default=None, description="Seconds that a pod stays on a node with a NoExecute taint. Default: forever."
    )


class SecurityContext(ApiModel):
    """The user and groups of the model server, for what the Pod Security Standard `restricted` leaves to the image.

    It only restricts: it cannot make a container run as root.
    """

    run_as_non_root: bool = Field(
        default=False,
        description="Whether the pods must not run as root: the image needs a numeric user, or runAsUser is set. "
        "Default: false.",
    )
    run_as_user: _User | None = Field(
        default=None, description="Number of the user that the containers run as, not 0. Default: the image's user."
    )
    run_as_group: Count | None = Field(
        default=None, description="Number of the group that the containers run as. Default: the image's group."
    )
    fs_group: Count | None = Field(
        default=None,
        description="Number of the group that volumes are given to, so that the user can write to them. Default: none; "
        "some providers have one of their own.",
    )
    read_only_root_filesystem: bool = Field(
        default=False,
        description="Whether the image cannot be written to: /tmp is then an empty volume of its own, and the home "
        "directory. Default: false.",
    )
