"""Checking plain JSON against a structural schema, with defaults, as the API server does it."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from airunway.api.bounds import MAX_CAUSES
from airunway.resource import Resource, canonical_json

__all__ = ["BLOCKING", "Violation", "compile_schema"]


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One problem: the JSON path of the field, what is wrong and what to do, and Kubernetes' reason for such a cause
    (``FieldValueRequired``, ``FieldValueInvalid``, …)."""

    path: str
    message: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


TYPE_INVALID = "FieldValueTypeInvalid"
BLOCKING = frozenset(
    {TYPE_INVALID, "FieldValueRequired", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueTooMany"}
)
"""Reasons after which the rules between fields are not run, because they could only fail for want of a sound object."""

Check: TypeAlias = Callable[[object, str, list[Violation]], object]
"""Takes a value and its path, appends what is wrong, and returns the value as rules see it: with defaults, without
nulls and without the content of free-form fields."""

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")
_INTEGER = re.compile(r"-?\d{1,18}\Z", re.ASCII)
_BOOLEAN = re.compile(r"(true|false)\Z")
_INT_RANGES = {"int32": range(-(2**31), 2**31), "int64": range(-(2**63), 2**63)}
_TYPES: Mapping[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "array": (list,), "object": (dict,)}


def compile_schema(schema: Resource) -> Check:
    """A function that checks values against `schema`. Total: any JSON value gives violations, never an exception."""
    if schema.get("x-kubernetes-int-or-string"):
        return _int_or_string(schema)
    match schema["type"]:
        case "object":
            return _object(schema)
        case "array":
            return _array(schema)
        case "string":
            return _string(schema)
        case "integer":
            return _integer(schema)
        case _:
            return _plain(schema)


def _misfit(value: object, wanted: str, path: str) -> Violation:
    message = f"must be of type {wanted}, not {_type_name(value)}{_remedy(value, wanted)}"
    return Violation(path=path, message=message, reason=TYPE_INVALID)


def _remedy(value: object, wanted: str) -> str:
    """YAML's own traps: 4096 and true are no texts, "4096" and "true" are."""
    if wanted == "string" and isinstance(value, bool | int | float):
        return ": put it in quotes"
    written = {"integer": _INTEGER, "boolean": _BOOLEAN}.get(wanted)
    return ": write it without quotes" if written and isinstance(value, str) and written.match(value) else ""


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    return next((name for name, types in _TYPES.items() if isinstance(value, types)), type(value).__name__)


def _plain(schema: Resource) -> Check:
    wanted: str = schema["type"]
    types = _TYPES[wanted]

    def check(value: object, path: str, found: list[Violation]) -> object:
        if not isinstance(value, types):
            found.append(_misfit(value, wanted, path))
        return value

    return check


def _int_or_string(schema: Resource) -> Check:
    longest: int | None = schema.get("maxLength")

    def check(value: object, path: str, found: list[Violation]) -> object:
        if isinstance(value, bool) or not isinstance(value, int | str):
            found.append(_misfit(value, "integer or string", path))
        elif isinstance(value, str) and longest is not None and len(value) > longest:
            found.append(_too_long(path, longest))
        elif isinstance(value, int) and value not in _INT_RANGES["int64"]:
            found.append(_misfit(float(value), "integer or string", path))
        return value

    return check


def _integer(schema: Resource) -> Check:
    allowed = _INT_RANGES[schema.get("format", "int64")]
    minimum: int | None = schema.get("minimum")
    maximum: int | None = schema.get("maximum")

    def check(value: object, path: str, found: list[Violation]) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or value not in _INT_RANGES["int64"]:
            found.append(_misfit(value, "integer", path))
        elif value not in allowed:
            limit = allowed.stop - 1 if value > 0 else allowed.start
            found.append(_invalid(path, f"must be {'at most' if value > 0 else 'at least'} {limit}"))
        elif minimum is not None and value < minimum:
            found.append(_invalid(path, f"must be at least {minimum}"))
        elif maximum is not None and value > maximum:
            found.append(_invalid(path, f"must be at most {maximum}"))
        return value

    return check


def _string(schema: Resource) -> Check:
    choices = schema.get("enum")
    longest, shortest = schema.get("maxLength"), schema.get("minLength", 0)
    pattern = _anchored(schema["pattern"]) if "pattern" in schema else None
    is_time = schema.get("format") == "date-time"

    def check(value: object, path: str, found: list[Violation]) -> object:
        if not isinstance(value, str):
            found.append(_misfit(value, "string", path))
            return value
        if choices is not None and value not in choices:
            known = ", ".join(f'"{choice}"' for choice in choices)
            message = f'"{value:.200}" is not one of the supported values: {known}'
            found.append(Violation(path=path, message=message, reason="FieldValueNotSupported"))
        if longest is not None and len(value) > longest:
            found.append(_too_long(path, longest))
        if len(value) < shortest:
            found.append(_invalid(path, f"must have at least {shortest} characters"))
        if pattern is not None and not pattern.search(value):
            found.append(_invalid(path, f'"{value:.200}" must match {schema["pattern"]}'))
        if is_time and not _TIMESTAMP.match(value):
            found.append(_invalid(path, f'"{value:.200}" must be a moment such as 2026-01-31T12:00:00Z'))
        return value

    return check


def _anchored(pattern: str) -> re.Pattern[str]:
    """`pattern` with Go's meaning of ``$``: the very end of the text, not before a final newline."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _array(schema: Resource) -> Check:
    item = compile_schema(schema["items"])
    longest: int | None = schema.get("maxItems")
    keys: list[str] = schema.get("x-kubernetes-list-map-keys", [])

    def check(value: object, path: str, found: list[Violation]) -> object:
        if not isinstance(value, list):
            found.append(_misfit(value, "array", path))
            return value
        if longest is not None and len(value) > longest:
            found.append(_too_many(path, longest))
        items = [item(element, f"{path}[{index}]", found) for index, element in enumerate(value)]
        if keys:
            _check_unique(items, keys, path, found)
        return items

    return check


def _check_unique(items: list[object], keys: list[str], path: str, found: list[Violation]) -> None:
    seen: set[Hashable] = set()
    for index, element in enumerate(items):
        if not isinstance(element, dict):
            continue
        identity = canonical_json({key: element.get(key) for key in keys}) if _is_flat(element, keys) else None
        if identity is not None and identity in seen:
            named = ", ".join(f"{key} {element.get(key)}" for key in keys)
            message = f"{named} is there twice: items must differ in {' and '.join(keys)}"
            found.append(Violation(path=f"{path}[{index}]", message=message, reason="FieldValueDuplicate"))
        seen.add(identity)


def _is_flat(element: Mapping[str, Any], keys: list[str]) -> bool:
    return all(isinstance(element.get(key), str) for key in keys)


def _object(schema: Resource) -> Check:
    fields = {name: compile_schema(child) for name, child in schema.get("properties", {}).items()}
    defaults = {name: child["default"] for name, child in schema.get("properties", {}).items() if "default" in child}
    required: list[str] = schema.get("required", [])
    others = compile_schema(schema["additionalProperties"]) if "additionalProperties" in schema else None
    keeps_unknown: bool = schema.get("x-kubernetes-preserve-unknown-fields", False)
    longest: int | None = schema.get("maxProperties")

    def check(value: object, path: str, found: list[Violation]) -> object:
        if not isinstance(value, dict):
            found.append(_misfit(value, "object", path))
            return value
        if keeps_unknown and not fields:
            if longest is not None and len(value) > longest:
                found.append(_too_many(path, longest))
            return {}
        prefix = f"{path}." if path else ""
        result: Resource = {}
        for name, child in value.items():
            checker = fields.get(name, others)
            if child is None and not keeps_unknown:
                if checker is None:
                    found.append(_unknown(f"{prefix}{name}", fields, found))
            elif checker is not None:
                result[name] = checker(child, f"{prefix}{name}", found)
            elif keeps_unknown:
                result[name] = child
            else:
                found.append(_unknown(f"{prefix}{name}", fields, found))
        for name, default in defaults.items():
            if name not in result:
                result[name] = fields[name](default, f"{prefix}{name}", found)
        found.extend(_required(f"{prefix}{name}") for name in required if name not in result)
        if longest is not None and len(result) > longest:
            found.append(_too_many(path, longest))
        return result

    return check


def _unknown(path: str, fields: Mapping[str, Check], found: Sequence[Violation]) -> Violation:
    name = path.rsplit(".", 1)[-1]
    nearest = _nearest(name, fields) if len(found) < MAX_CAUSES else None  # what will not be told needs no hint
    hint = f", did you mean {nearest}?" if nearest else ""
    return Violation(path=path, message=f"unknown field{hint}", reason="FieldValueNotSupported")


def _nearest(name: str, known: Mapping[str, Check]) -> str | None:
    # Imported here: only an object with a mistake needs it.
    from difflib import get_close_matches

    lowered = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name[:100].lower(), lowered, n=1)
    return lowered[matches[0]] if matches else None


def _required(path: str) -> Violation:
    return Violation(path=path, message="required", reason="FieldValueRequired")


def _invalid(path: str, message: str) -> Violation:
    return Violation(path=path, message=message, reason="FieldValueInvalid")


def _too_long(path: str, longest: int) -> Violation:
    return Violation(path=path, message=f"must have at most {longest} characters", reason="FieldValueTooLong")


def _too_many(path: str, longest: int) -> Violation:
    return Violation(path=path, message=f"must have at most {longest} items", reason="FieldValueTooMany")
