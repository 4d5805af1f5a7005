"""Structural schemas as the API server uses them: which fields they have, and what they drop of an object. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from airunway.resource import Resource, dig

__all__ = ["dropped", "fields_of", "schema_in", "served_versions", "storage_version"]

_ROOT = frozenset({"apiVersion", "kind", "metadata"})
"""Fields that the API server keeps of every object, whatever its schema says."""


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
    return sorted(set(_dropped(obj, schema, "", root=True)))


def _dropped(value: object, schema: Resource, path: str, *, root: bool = False) -> Iterator[str]:
    if isinstance(value, list):
        items = schema.get("items")
        for position, item in enumerate(value if isinstance(items, dict) else ()):
            yield from _dropped(item, items or {}, f"{path}[{position}]")
        return
    if not isinstance(value, dict):
        return
    root = root or schema.get("x-kubernetes-embedded-resource") is True
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for name, below in value.items():
        here = f"{path}.{name}" if path else name
        if root and name in _ROOT:
            continue
        if name in properties:
            yield from _dropped(below, properties[name], here)
        elif isinstance(additional, dict):
            yield from _dropped(below, additional, here)
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and additional is not True:
            yield here
