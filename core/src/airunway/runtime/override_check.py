"""Checks ``spec.provider.overrides`` and merges it into the primary object.

Pure (spec/providers.md, "Overrides"). Admission checks the same list of forbidden keys; it is checked again here
because a deployment can reach the provider without any webhook.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema
import orjson

from airunway.api.bounds import MAX_CAUSES
from airunway.api.rules import FORBIDDEN_OVERRIDES
from airunway.json_path import JsonPath, entries
from airunway.plugins.contract import Finding
from airunway.quantity import parse_quantity
from airunway.resource import Resource, canonical_json, copy_of, dig
from airunway.schema import unknown_fields

__all__ = ["Overrides", "check_overrides", "merged", "placed"]

ROOT = "spec.provider.overrides"


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """The result of checking a deployment's overrides."""

    errors: tuple[Finding, ...]
    """Findings that stop the deployment."""
    unknown: tuple[Finding, ...]
    """Unknown keys: they become warnings and are not merged."""
    merge: Resource
    """The part of the overrides that is merged into the primary object."""


def check_overrides(overrides: Resource, schema: Resource) -> Overrides:
    """Check overrides against the provider's JSON schema.

    Properties of the schema marked ``x-airunway-typed: true`` are read by the translation itself and are not merged. A
    property with ``x-airunway-ceiling`` is a quantity between 0 and the ceiling. If the schema has no properties, every
    key is unknown.
    """
    if not overrides:
        return Overrides(errors=(), unknown=(), merge={})
    schema = {"type": "object", "properties": {}, **schema}
    errors = [
        Finding(
            path=str(place),
            reason="InvalidOverride",
            message=f'overriding "{key}" is not allowed for security reasons',
        )
        for place, key in islice(_forbidden(overrides), MAX_CAUSES)
    ]
    wrong = (
        problem
        for problem in _validator(canonical_json(schema)).iter_errors(overrides)
        if problem.validator != "additionalProperties"  # reported below as unknown, with the nearest key
    )
    for problem in islice(wrong, MAX_CAUSES):
        place = JsonPath(None, ROOT)
        for step in problem.absolute_path:
            place = JsonPath(place, step)
        path = str(place)
        types = problem.validator_value
        wrong_type = f"must be of type {' or '.join(types) if isinstance(types, list) else types}"
        # Without the value: it may be anything.
        text = wrong_type if problem.validator == "type" else problem.message[:200]
        errors.append(Finding(path=path, reason="InvalidOverride", message=f"{path}: {text}"))
    merge = deepcopy(overrides)
    passed_over = list(unknown_fields(merge, schema, path=ROOT, metadata=False, lenient=True))
    unknown = []
    for field in passed_over[:MAX_CAUSES]:
        path = str(field.path)
        near = get_close_matches(field.key[:100], field.known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(sorted(field.known)) or 'none'}"
        text = f"unknown override {path.removeprefix(f'{ROOT}.')!r} is passed over{hint}"
        unknown.append(Finding(path=path, reason="UnknownOverride", message=text))
    for field in passed_over:
        del field.holder[field.key]
    properties = schema["properties"]
    merge = {
        key: value for key, value in merge.items() if key in properties and not properties[key].get("x-airunway-typed")
    }
    return Overrides(errors=tuple(errors), unknown=tuple(unknown), merge=merge)


def _within_ceiling(_: object, ceiling: str, value: object, __: object) -> Iterator[jsonschema.ValidationError]:
    """The keyword ``x-airunway-ceiling``: a quantity between 0 and the ceiling."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return  # the keyword ``type`` reports other types
    try:
        amount = parse_quantity(str(value))
    except ValueError as error:
        yield jsonschema.ValidationError(str(error))
        return
    if not 0 <= amount <= parse_quantity(ceiling):
        yield jsonschema.ValidationError(f"must be between 0 and {ceiling}")


def _matching(_: object, pattern: str, value: object, __: object) -> Iterator[jsonschema.ValidationError]:
    """The keyword ``pattern``: in JSON Schema ``$`` matches only at the end, in Python also before a last newline."""
    if isinstance(value, str) and not re.search(_END.sub(r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"does not match {pattern!r}")


_END = re.compile(r"(?<!\\)\$\Z")
_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"x-airunway-ceiling": _within_ceiling, "pattern": _matching}
)


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> Any:
    return _Validator(orjson.loads(schema))


def _forbidden(overrides: Resource) -> Iterator[tuple[JsonPath, str]]:
    for place, key, _ in entries(overrides, ROOT, below=lambda key: key not in FORBIDDEN_OVERRIDES):
        if key in FORBIDDEN_OVERRIDES:
            yield place, key


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


def placed(overlay: Resource, places: Mapping[str, str]) -> Iterator[Resource]:
    """Split `overlay` into parts that are merged one after the other.

    The value at each path of `places` is moved to the path given for it (longer paths first); the rest comes last,
    unmoved.
    """
    rest = copy_of(overlay)
    for path in sorted(places, key=len, reverse=True):
        *above, key = path.split(".")
        holder = dig(rest, *above) if above else rest
        if isinstance(holder, dict) and key in holder:
            part = holder.pop(key)
            for step in reversed(places[path].split(".")):
                part = {step: part}
            yield part
    yield rest
