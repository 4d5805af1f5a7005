"""Structural schemas as the API server uses them: which fields they have, what they drop of an object and add. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from airunway.resource import Resource, copy_of, dig

__all__ = [
    "defaulted",
    "dropped",
    "fields_of",
    "gained",
    "malformed",
    "pruned",
    "schema_in",
    "served_versions",
    "storage_version",
]

_Path: TypeAlias = tuple[str | int, ...]

_ROOT = frozenset({"apiVersion", "kind", "metadata"})
"""Fields that the API server keeps of every object, whatever its schema says."""


_API = "apiextensions.k8s.io/v1"


def malformed(crd: Resource) -> str:
    """What keeps an object that calls itself a CustomResourceDefinition from being one; empty if nothing does.

    Where that is empty the other functions here take it.
    """
    if crd.get("apiVersion") != _API:
        return f"its apiVersion is {crd.get('apiVersion')!r}; only {_API} is served since Kubernetes 1.22"
    versions = dig(crd, "spec", "versions")
    if not isinstance(versions, list) or not versions:
        return "spec.versions is no list of versions"
    for position, version in enumerate(versions):
        here = f"spec.versions[{position}]"
        if not isinstance(dig(version, "name"), str):
            return f"{here} is no version with a name"
        if where := _no_schema(dig(version, "schema", "openAPIV3Schema", default={}), f"{here}.schema.openAPIV3Schema"):
            return f"{where} is no schema"
    return ""


def _no_schema(schema: object, path: str) -> str:
    """The path of the first part of a schema that is none; empty if there is none such."""
    if not isinstance(schema, dict):
        return path
    below = schema.get("properties") or {}
    if not isinstance(below, dict):
        return f"{path}.properties"
    parts = [(each, f"{path}.properties.{name}") for name, each in below.items()]
    keywords = (word for word in ("items", "additionalProperties") if not isinstance(schema.get(word), bool | None))
    parts += [(schema[keyword], f"{path}.{keyword}") for keyword in keywords]
    return next((found for each in parts if (found := _no_schema(*each))), "")


def served_versions(crd: Resource) -> list[str]:
    """The names of the versions that a CRD serves."""
    return [str(version["name"]) for version in dig(crd, "spec", "versions", default=[]) if version.get("served")]


def storage_version(crd: Resource) -> str:
    """The version in which objects are stored; empty for a CRD that names none."""
    found = (v for v in dig(crd, "spec", "versions", default=[]) if v.get("storage"))
    return next((str(version["name"]) for version in found), "")


def schema_in(crd: Resource, version: str) -> Resource | None:
    """The ``openAPIV3Schema`` of a version of a CRD; None for a version that it has not."""
    versions = dig(crd, "spec", "versions", default=[])
    found = next((each for each in versions if each.get("name") == version), None)
    return None if found is None else dig(found, "schema", "openAPIV3Schema", default={})


def fields_of(schema: Resource, path: str = "") -> Iterator[str]:
    """Every field that a schema names, as ``spec.volumes[].name``: ``[]`` are items, ``.*`` values of a map."""
    properties = schema.get("properties")
    for name, below in properties.items() if isinstance(properties, dict) else ():
        if path or name not in _ROOT:
            here = f"{path}.{name}" if path else name
            yield here
            yield from fields_of(below, here)
    for keyword, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(keyword), dict):
            yield from fields_of(schema[keyword], f"{path}{mark}")


def dropped(obj: Resource, schema: Resource) -> list[str]:
    """The paths in an object that the API server would not keep under this schema, outermost only; sorted."""
    return sorted({_text(steps) for steps in _dropped(obj, schema, (), root=True)})


def pruned(obj: Resource, schema: Resource) -> Resource:
    """The object as the API server would give it under this schema."""
    left = copy_of(obj)
    for *steps, last in list(_dropped(obj, schema, (), root=True)):
        node: Any = left
        for step in steps:
            node = node[step]
        del node[last]
    return left


def defaulted(obj: Resource, schema: Resource) -> Resource:
    """The object with what the schema gives it by default, as the API server does for every read and write."""
    filled = copy_of(obj)
    _default(filled, schema, root=True)
    return filled


def gained(obj: Resource, schema: Resource) -> list[str]:
    """What the schema gives an object by default that it has not, as ``spec.size=1``; sorted."""
    return sorted(_gained(obj, defaulted(obj, schema), ""))


def _default(value: object, schema: Resource, *, root: bool = False) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        for item in value if isinstance(items, dict) else ():
            _default(item, items or {})
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    for name, below in properties.items():
        if root and name in _ROOT:
            continue
        if "default" in below and (name not in value or (value[name] is None and not below.get("nullable"))):
            value[name] = copy_of({"default": below["default"]})["default"]
        if name in value:
            _default(value[name], below)
    additional = schema.get("additionalProperties")
    for name, child in value.items() if isinstance(additional, dict) else ():
        if name not in properties:
            _default(child, additional or {})


def _gained(before: object, after: object, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in after.items():
            here = f"{path}.{name}" if path else name
            if name in before:
                yield from _gained(before[name], value, here)
            else:
                yield f"{here}={json.dumps(value)}"
    elif isinstance(before, list) and isinstance(after, list):
        for position, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _gained(old, new, f"{path}[{position}]")


def _dropped(value: object, schema: Resource, path: _Path, *, root: bool = False) -> Iterator[_Path]:
    if isinstance(value, list):
        items = schema.get("items")
        for position, item in enumerate(value if isinstance(items, dict) else ()):
            yield from _dropped(item, items or {}, (*path, position))
        return
    if not isinstance(value, dict):
        return
    root = root or schema.get("x-kubernetes-embedded-resource") is True
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for name, below in value.items():
        if root and name in _ROOT:
            continue
        if name in properties:
            yield from _dropped(below, properties[name], (*path, name))
        elif isinstance(additional, dict):
            yield from _dropped(below, additional, (*path, name))
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and additional is not True:
            yield (*path, name)


def _text(steps: _Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
