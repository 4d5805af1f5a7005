"""Converts pydantic types to the structural schemas of CRDs."""

from __future__ import annotations

from typing import Any

from airunway.api._base import ApiModel
from airunway.resource import Resource

__all__ = ["SchemaError", "structural_schema"]

_KEPT = frozenset(
    {
        "description",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-preserve-unknown-fields",
    }
)
_DROPPED = frozenset({"additionalProperties", "default", "title", "x-airunway-required", "x-airunway-server-default"})
_LEAST = {"int32": -(2**31), "int64": -(2**63)}
_MOST = {"int32": 2**31 - 1, "int64": 2**63 - 1}
_SHAPE = frozenset({"$ref", "allOf", "anyOf", "const", "items", "properties", "required"})


class SchemaError(TypeError):
    """A type of the API cannot be expressed as a structural schema."""


def structural_schema(model: type[ApiModel]) -> Resource:
    """Returns the structural schema of `model`: no references, no unions, only marked defaults.

    Raises SchemaError for what a CRD cannot express (real unions, recursion, an unknown keyword).
    """
    document = model.model_json_schema(by_alias=True, mode="validation")
    definitions = document.pop("$defs", {})
    return _convert(document, definitions, model.__name__, ())


def _convert(node: Resource, definitions: Resource, path: str, open_refs: tuple[str, ...]) -> Resource:
    node = _without_null(node, path)
    if reference := node.get("$ref"):
        name = reference.rsplit("/", 1)[-1]
        if name in open_refs:
            raise SchemaError(f"{path}: {name} contains itself")
        outer = {key: value for key, value in node.items() if key != "$ref"}
        return _convert({**definitions[name], **outer}, definitions, path, (*open_refs, name))
    unknown = node.keys() - _KEPT - _DROPPED - _SHAPE
    if unknown:
        raise SchemaError(f"{path}: keyword {sorted(unknown)[0]!r} has no place in a structural schema")
    schema = {key: value for key, value in node.items() if key in _KEPT}
    if node.get("x-airunway-server-default"):
        schema["default"] = node["default"]
    for keyword, limits in (("minimum", _LEAST), ("maximum", _MOST)):
        if schema.get(keyword) == limits.get(schema.get("format", "")):
            schema.pop(keyword, None)  # the format implies this limit
    if schema.get("type") == "object":
        _convert_object(schema, node, definitions, path, open_refs)
    elif schema.get("type") == "array":
        schema["items"] = _convert(node["items"], definitions, f"{path}[*]", open_refs)
        schema.setdefault("x-kubernetes-list-type", "atomic")
    elif "type" not in schema and "x-kubernetes-int-or-string" not in schema:
        raise SchemaError(f"{path}: no type")
    return schema


def _convert_object(
    schema: Resource, node: Resource, definitions: Resource, path: str, open_refs: tuple[str, ...]
) -> None:
    properties: dict[str, Any] = node.get("properties", {})
    if properties:
        schema["properties"] = {
            name: _convert(child, definitions, f"{path}.{name}", open_refs) for name, child in properties.items()
        }
        marked = {name for name, child in properties.items() if child.get("x-airunway-required")}
        if required := sorted(marked | set(node.get("required", ()))):
            schema["required"] = required
    elif "x-kubernetes-preserve-unknown-fields" not in schema:
        schema["additionalProperties"] = _convert(node["additionalProperties"], definitions, f"{path}.*", open_refs)


def _without_null(node: Resource, path: str) -> Resource:
    """Converts ``X | None`` to X: in Kubernetes an optional field is absent, not null."""
    if "anyOf" not in node:
        return node
    variants = [variant for variant in node["anyOf"] if variant.get("type") != "null"]
    if len(variants) != 1:
        raise SchemaError(f"{path}: a union of {len(variants)} types")
    outer = {key: value for key, value in node.items() if key != "anyOf"}
    return {**variants[0], **outer}
