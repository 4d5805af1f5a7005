"""The base of all API types: the base model, the scalar types, the markers that the CRD generator reads, and the types
that Kubernetes has for pods."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from airunway.api.bounds import MAX_CONSTRAINTS, MAX_ENTRIES, MAX_NAME, MAX_VALUE
from airunway.api.names import API_VERSION
from airunway.resource import Resource


class ParseError(ValueError):
    """The object does not fit the type.

    `path` is the JSON path of the first field that does not fit, `problem` what is wrong with it.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class ApiModel(BaseModel):
    """Base of every type: camelCase in JSON, snake_case in Python.

    Parsing ignores unknown fields, because an older release must be able to read a newer object (the API server prunes
    or refuses them). An explicit null counts as an absent field, as in the API server.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", strict=True, validate_default=False
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict) and None in data.values():
            return {key: value for key, value in data.items() if value is not None}
        return data

    def to_resource(self) -> Resource:
        """Returns the JSON form with only the fields that were given (or set since)."""
        return self.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)

    def to_essence(self) -> Resource:
        """Returns the JSON form without fields that equal their default, whether they were given or filled in."""
        return self.model_dump(by_alias=True, exclude_defaults=True, exclude_none=True)


def integral(value: object) -> object:
    """Returns a whole number that is written as a float (``1.0``) as an integer; anything else unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _quantity_text(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(integral(value))
    return value


SERVER_DEFAULT: dict[str, Any] = {"x-airunway-server-default": True}
"""Marks a default that the API server writes into the object (`default:` in the CRD).

It is used only for defaults that are not the type's zero value, and only inside objects that the user wrote. So an
absent field always means the zero value, and an applied manifest does not come back with many fields added.
"""

EMPTY_MEANS_ABSENT = BeforeValidator(lambda value: None if value == "" else value)

# Constraints come before the validator: pydantic adds them to the JSON schema only next to a plain type.
Int32 = Annotated[
    int, Field(ge=-(2**31), le=2**31 - 1, json_schema_extra={"format": "int32"}), BeforeValidator(integral)
]
Count = Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra={"format": "int32"}), BeforeValidator(integral)]
"""A number of things, never negative."""
Int64 = Annotated[
    int, Field(ge=-(2**63), le=2**63 - 1, json_schema_extra={"format": "int64"}), BeforeValidator(integral)
]
Text = Annotated[str | None, EMPTY_MEANS_ABSENT]
"""Optional text; the empty string means no text."""
ObjectName = Annotated[str | None, Field(max_length=253), EMPTY_MEANS_ABSENT]
"""Optional name of an object of the cluster."""
Duration = Annotated[str | None, Field(max_length=32), EMPTY_MEANS_ABSENT]
"""Optional duration as text, such as ``30s``; a rule checks the format, for a better message."""
Quantity = Annotated[
    str | None,
    BeforeValidator(_quantity_text),
    EMPTY_MEANS_ABSENT,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 64}),
]
"""Optional Kubernetes quantity as text; numbers are accepted. A CEL rule checks the format, for a better message."""
Timestamp = Annotated[str | None, WithJsonSchema({"type": "string", "format": "date-time"})]
"""Optional RFC 3339 time, kept as text (`airunway.resource.parse_time` reads it)."""
_FREE: dict[str, Any] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "maxProperties": MAX_ENTRIES,
}
FreeForm = Annotated[dict[str, Any], Field(max_length=MAX_ENTRIES), WithJsonSchema(_FREE)]
FreeFormList = Annotated[
    list[dict[str, Any]],
    WithJsonSchema({"type": "array", "maxItems": MAX_CONSTRAINTS, "items": _FREE}),
]


def list_map(*keys: str) -> dict[str, Any]:
    """Returns the schema markers of a list whose items are identified by `keys` (server-side apply merges by item)."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


class ObjectMeta(ApiModel):
    """The parts of Kubernetes' own object metadata that AI Runway reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: Int64 = 0
    resource_version: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[dict[str, Any]] = Field(default_factory=list)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class ApiObject(ApiModel):
    """What every object of the group has besides spec and status."""

    api_version: str = API_VERSION
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)


_Model = TypeVar("_Model", bound=ApiModel)


def parse_model(model: type[_Model], value: object) -> _Model:
    """Parses `value` as `model`. Raises ParseError, which names the first field that does not fit."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise ParseError(_json_path(first["loc"]), first["msg"]) from None


def _json_path(location: tuple[int | str, ...]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


_User = Annotated[int, Field(ge=1, le=2**31 - 1, json_schema_extra={"format": "int32"}), BeforeValidator(integral)]


class LocalObjectReference(ApiModel):
    """A reference to an object in the same namespace."""

    name: str = Field(max_length=253, description="Name of the object, in the namespace of the deployment. Required.")


class CABundleReference(ApiModel):
    """Certificates of authorities that are trusted besides those of the image."""

    config_map: str = Field(
        min_length=1, max_length=253, description="Name of the ConfigMap with the certificates. Required."
    )
    key: Annotated[str | None, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(
        default=None, description="Key of the ConfigMap that has the certificates in PEM. Default: ca.crt."
    )


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


_Capability = Annotated[Literal["IPC_LOCK"], WithJsonSchema({"type": "string", "enum": ["IPC_LOCK"]})]


class LinuxCapabilities(ApiModel):
    """Linux capabilities of the model's container."""

    add: list[_Capability] = Field(
        default_factory=list,
        max_length=1,
        description="Capabilities to add: IPC_LOCK, with which RDMA pins memory. Only where the policy lists it under "
        "capabilities. Default: none.",
    )


class SecurityContext(ApiModel):
    """The user and groups of the model server, for what the Pod Security Standard `restricted` leaves to the image.

    It cannot make a container run as root, and adds no capability but those that a policy allows.
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
    capabilities: LinuxCapabilities = Field(
        default_factory=LinuxCapabilities, description="Capabilities of the model's container. Default: none are added."
    )
    read_only_root_filesystem: bool = Field(
        default=False,
        description="Whether the image cannot be written to: /tmp is then an empty volume of its own, and the home "
        "directory. Default: false.",
    )
