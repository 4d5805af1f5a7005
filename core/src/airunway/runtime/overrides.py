"""``spec.provider.overrides``: what is allowed, what is mistyped, and merging it into the primary object.

Pure (spec/providers.md, "Overrides"). The same list of forbidden keys is checked at admission and here, because a
deployment can reach the provider without any webhook.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import jsonschema
import orjson

from airunway.api.rules import FORBIDDEN_OVERRIDES
from airunway.plugins.contract import Finding
from airunway.resource import Resource, canonical_json

__all__ = ["Overrides", "check_overrides", "merged"]

ROOT = "spec.provider.overrides"


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """The verdict on a deployment's overrides: `errors` stop it, `unknown` become warnings, `merge` is to be merged."""

    errors: tuple[Finding, ...]
    unknown: tuple[Finding, ...]
    merge: Resource


def check_overrides(overrides: Resource, schema: Resource) -> Overrides:
    """Check overrides against the provider's JSON schema.

    Properties of the schema marked ``x-airunway-typed: true`` are read by the translation itself and are not merged.
    """
    if not overrides:
        return Overrides(errors=(), unknown=(), merge={})
    errors = [
        Finding(
            path=f"{ROOT}.{path}",
            reason="InvalidOverride",
            message=f'overriding "{key}" is not allowed for security reasons',
        )
        for path, key in _forbidden(overrides, "")
    ]
    for problem in _validator(canonical_json(schema)).iter_errors(overrides):
        path = f"{ROOT}.{'.'.join(str(step) for step in problem.absolute_path)}".rstrip(".")
        if problem.validator == "additionalProperties":
            continue  # reported below as unknown, with the nearest key
        wrong_type = f"must be of type {problem.validator_value}"  # without the value: it may be anything
        text = wrong_type if problem.validator == "type" else problem.message[:200]
        errors.append(Finding(path=path, reason="InvalidOverride", message=f"{path}: {text}"))
    unknown = []
    for path, key, known in _unknown(overrides, schema, ""):
        near = get_close_matches(key, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(sorted(known)) or 'none'}"
        text = f"unknown override {path!r} is passed over{hint}"
        unknown.append(Finding(path=f"{ROOT}.{path}", reason="UnknownOverride", message=text))
    properties = schema.get("properties") or {}
    merge = {
        key: value
        for key, value in overrides.items()
        if key in properties and not properties[key].get("x-airunway-typed")
    }
    return Overrides(errors=tuple(errors), unknown=tuple(unknown), merge=_known_only(merge, schema))


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(orjson.loads(schema))


def _forbidden(node: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            here = f"{path}.{key}" if path else str(key)
            if key in FORBIDDEN_OVERRIDES:
                yield here, key
            else:
                yield from _forbidden(value, here)
    elif isinstance(node, Sequence) and not isinstance(node, (str, bytes)):
        for position, value in enumerate(node):
            yield from _forbidden(value, f"{path}[{position}]")


def _unknown(node: Resource, schema: Resource, path: str) -> Iterator[tuple[str, str, list[str]]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or schema.get("additionalProperties", False):
        return
    for key, value in node.items():
        here = f"{path}.{key}" if path else key
        if key not in properties:
            yield here, key, list(properties)
        elif isinstance(value, dict):
            yield from _unknown(value, properties[key], here)


def _known_only(node: Resource, schema: Resource) -> Resource:
    """`node` without the keys that the schema does not know."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or schema.get("additionalProperties", False):
        return node
    return {
        key: _known_only(value, properties[key]) if isinstance(value, dict) else value
        for key, value in node.items()
        if key in properties
    }


def merged(base: Resource, overlay: Resource) -> Resource:
    """`base` with `overlay` merged in: maps merge key by key, null removes, everything else (lists too) replaces."""
    result: dict[str, Any] = dict(base)
    for key, value in overlay.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result
