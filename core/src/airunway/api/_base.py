"""The base of all API types: the base model, the scalar types, and the markers that the CRD generator reads."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from airunway.api.bounds import MAX_CONSTRAINTS, MAX_ENTRIES
from airunway.resource import Resource

__all__ = [
    "EMPTY_MEANS_ABSENT",
    "SERVER_DEFAULT",
    "ApiModel",
    "Count",
    "FreeForm",
    "FreeFormList",
    "Int32",
    "Int64",
    "ObjectMeta",
    "ParseError",
    "Quantity",
    "Text",
    "Timestamp",
    "integral",
    "list_map",
    "parse_model",
]


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


def _absent_if_empty(value: object) -> object:
    return None if value == "" else value


SERVER_DEFAULT: dict[str, Any] = {"x-airunway-server-default": True}
"""Marks a default that the API server writes into the object (`default:` in the CRD).

It is used only for defaults that are not the type's zero value, and only inside objects that the user wrote. So an
absent field always means the zero value, and an applied manifest does not come back with many fields added.
"""

EMPTY_MEANS_ABSENT = BeforeValidator(_absent_if_empty)

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
