"""Structural schemas of CRDs, applied like in the API server: validation, pruning and defaults. Pure.

`compile_schema` checks objects of our own kinds, with messages for users; `refusals` checks objects of any CRD.
`unknown_fields`, `pruned` and `defaulted` compute which fields the API server keeps and adds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from airunway.api.bounds import MAX_CAUSES
from airunway.json_path import JsonPath
from airunway.resource import Resource, copy_of, dig

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One problem with an object."""

    path: str
    """JSON path of the field."""
    message: str
    """What is wrong and what to do."""
    reason: str
    """Kubernetes' reason for such a cause (``FieldValueRequired``, ``FieldValueInvalid``, …)."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


TYPE_INVALID = "FieldValueTypeInvalid"
UNKNOWN_FIELD = "unknown field"
"""How the message about a field that the schema does not have begins."""
BLOCKING = frozenset(
    {TYPE_INVALID, "FieldValueRequired", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueTooMany"}
)
"""Reasons after which the rules between fields are not run: they need a well-formed object."""

Check: TypeAlias = Callable[[object, str, list[Violation]], object]
"""``check(value, path, found)`` appends the violations to `found`, and returns the value for the rules.

That is the value with defaults, without nulls and without the content of free-form fields.
"""

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")
_INTEGER = re.compile(r"-?\d{1,18}\Z", re.ASCII)
_BOOLEAN = re.compile(r"(true|false)\Z")
_INT_RANGES = {"int32": range(-(2**31), 2**31), "int64": range(-(2**63), 2**63)}
_TYPES: Mapping[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "array": (list,), "object": (dict,)}


def compile_schema(schema: Resource) -> Check:
    """Returns a function that checks values against `schema`. It never raises, for any JSON value."""
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
    """Returns a hint for common YAML mistakes: 4096, true and maps are no texts, "4096", "true" and JSON are."""
    if wanted == "string" and isinstance(value, bool | int | float):
        return ": put it in quotes"
    if wanted == "string" and isinstance(value, dict | list):
        text = json.dumps(value, default=str)
        return (
            f": write it as JSON text, in quotes: '{text}'"
            if len(text) <= 120
            else ": write it as JSON text, in quotes"
        )
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
    """Compiles `pattern` with Go's meaning of ``$``: the very end of the text, not before a final newline."""
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
    seen: set[tuple[object, ...]] = set()
    for index, element in enumerate(items):
        identity = tuple(element.get(key) for key in keys) if isinstance(element, dict) else ()
        if not identity or not all(isinstance(part, str) for part in identity):
            continue
        if identity in seen:
            named = ", ".join(f"{key} {part}" for key, part in zip(keys, identity, strict=True))
            message = f"{named} is there twice: items must differ in {' and '.join(keys)}"
            found.append(Violation(path=f"{path}[{index}]", message=message, reason="FieldValueDuplicate"))
        seen.add(identity)


def _object(schema: Resource) -> Check:
    properties: Resource = schema.get("properties", {})
    fields = {name: compile_schema(child) for name, child in properties.items()}
    defaults = {name: child["default"] for name, child in properties.items() if "default" in child}
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
        found.extend(
            Violation(path=f"{prefix}{name}", message="required", reason="FieldValueRequired")
            for name in required
            if name not in result
        )
        if longest is not None and len(result) > longest:
            found.append(_too_many(path, longest))
        return result

    return check


def _unknown(path: str, fields: Mapping[str, Check], found: Sequence[Violation]) -> Violation:
    name = path.rsplit(".", 1)[-1]
    nearest = _nearest(name, fields) if len(found) < MAX_CAUSES else None  # the others are not reported
    hint = f", did you mean {nearest}?" if nearest else ""
    return Violation(path=path, message=f"{UNKNOWN_FIELD}{hint}", reason="FieldValueNotSupported")


def _nearest(name: str, known: Mapping[str, Check]) -> str | None:
    """The field that may have been meant. `nodesPerReplica` is not what `replicas` means: they are alike by 0.61."""
    # Imported here: only an object with a mistake needs it.
    from difflib import get_close_matches

    lowered = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name[:100].lower(), lowered, n=1, cutoff=0.65)
    return lowered[matches[0]] if matches else None


def _invalid(path: str, message: str) -> Violation:
    return Violation(path=path, message=message, reason="FieldValueInvalid")


def _too_long(path: str, longest: int) -> Violation:
    return Violation(path=path, message=f"must have at most {longest} characters", reason="FieldValueTooLong")


def _too_many(path: str, longest: int) -> Violation:
    return Violation(path=path, message=f"must have at most {longest} items", reason="FieldValueTooMany")


_ROOT = frozenset({"apiVersion", "kind", "metadata"})
"""Fields that the API server keeps of every object, whatever its schema is."""
_API = "apiextensions.k8s.io/v1"


def malformed(crd: Resource) -> str:
    """Returns why an object is not a valid CustomResourceDefinition; empty if it is one.

    The other functions of this module accept a CRD for which this is empty.
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
    """Returns the path of the first part that is not a schema; empty if all parts are."""
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
    """Returns the names of the versions that a CRD serves."""
    return [str(version["name"]) for version in dig(crd, "spec", "versions", default=[]) if version.get("served")]


def storage_version(crd: Resource) -> str:
    """Returns the version in which objects are stored; empty if the CRD names none."""
    found = (v for v in dig(crd, "spec", "versions", default=[]) if v.get("storage"))
    return next((str(version["name"]) for version in found), "")


def schema_in(crd: Resource, version: str) -> Resource | None:
    """Returns the ``openAPIV3Schema`` of a version of a CRD; None if it does not have that version."""
    versions = dig(crd, "spec", "versions", default=[])
    found = next((each for each in versions if each.get("name") == version), None)
    return None if found is None else dig(found, "schema", "openAPIV3Schema", default={})


def fields_of(schema: Resource, path: str = "") -> Iterator[str]:
    """Yields every field of a schema, such as ``spec.volumes[].name``: ``[]`` are items, ``.*`` values of a map."""
    properties = schema.get("properties")
    for name, below in properties.items() if isinstance(properties, dict) else ():
        if path or name not in _ROOT:
            here = f"{path}.{name}" if path else name
            yield here
            yield from fields_of(below, here)
    for keyword, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(keyword), dict):
            yield from fields_of(schema[keyword], f"{path}{mark}")


class UnknownField(NamedTuple):
    """A field of a value that its schema does not have."""

    path: JsonPath
    key: str
    known: tuple[str, ...]
    """The fields that the schema has at this path."""
    holder: dict[str, Any]
    """The object inside the value that has the field."""


def unknown_fields(
    value: object, schema: Resource, *, path: str = "", metadata: bool = True, lenient: bool = False
) -> Iterator[UnknownField]:
    """Yields every field that the schema does not have, also in lists; of nested ones only the outermost.

    Never raises, for any depth of `value`. `metadata`: `value` is a whole object, whose apiVersion, kind and metadata
    the API server always keeps. `lenient`: an object whose schema names no properties may have any, as in JSON Schema;
    with a structural schema it may have none.
    """
    pending: list[tuple[JsonPath, object, Resource, bool]] = [(JsonPath(None, path), value, schema, metadata)]
    while pending:
        at, node, described, whole = pending.pop()
        if isinstance(node, list):
            items = described.get("items")
            if isinstance(items, dict) or lenient:
                each = items if isinstance(items, dict) else {}
                pending.extend(reversed([(JsonPath(at, index), item, each, False) for index, item in enumerate(node)]))
        elif isinstance(node, dict):
            properties, others = described.get("properties"), described.get("additionalProperties", False)
            known = properties if isinstance(properties, dict) else {}
            if lenient:
                free, typed = not isinstance(properties, dict), bool(others)
            else:
                free, typed = bool(described.get("x-kubernetes-preserve-unknown-fields")), isinstance(others, dict)
                free = free or others is True
                whole = whole or described.get("x-kubernetes-embedded-resource") is True
            children: list[tuple[JsonPath, object, Resource, bool]] = []
            for key, child in node.items():
                if whole and key in _ROOT:
                    continue
                if key in known or typed:
                    below = known.get(key, others)
                    children.append((JsonPath(at, key), child, below if isinstance(below, dict) else {}, False))
                elif not free:
                    yield UnknownField(JsonPath(at, key), key, tuple(known), node)
            pending.extend(reversed(children))


def dropped(obj: Resource, schema: Resource) -> list[str]:
    """Returns the sorted paths that the API server would drop under this schema; only the outermost of nested ones."""
    return sorted({field.path.full() for field in unknown_fields(obj, schema)})


def pruned(obj: Resource, schema: Resource) -> Resource:
    """Returns the object as the API server would prune it under this schema."""
    left = copy_of(obj)
    for field in list(unknown_fields(left, schema)):
        del field.holder[field.key]
    return left


def defaulted(obj: Resource, schema: Resource) -> Resource:
    """Returns the object with the schema's defaults, which the API server fills in at every read and write."""
    filled = copy_of(obj)
    _default(filled, schema, root=True)
    return filled


def gained(obj: Resource, schema: Resource) -> list[str]:
    """Returns the defaults that the schema would add to the object, such as ``spec.size=1``; sorted."""
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


_INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
_MAPS = ("properties", "patternProperties")
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("items", "additionalProperties", "not")


def refusals(obj: Resource, schema: Resource) -> list[str]:
    """Returns why the API server would refuse a strict server-side apply of `obj`, one sentence for each reason.

    Empty if it would accept the object. CEL rules are not evaluated: `has_rules` returns whether there are any.
    """
    # Imported here: the operator's processes do not need it.
    from jsonschema import Draft4Validator

    unknown = [f"{path}: the schema has no such field" for path in dropped(obj, schema)]
    content = {name: value for name, value in defaulted(obj, schema).items() if name != "metadata"}
    # A copy without the metadata, which every object has, and which is not looked at here.
    checked = {**schema, "required": [name for name in schema.get("required") or () if name != "metadata"]}
    if not checked["required"]:
        del checked["required"]  # JSON Schema wants one at least
    wrong = [_sentence(error) for error in Draft4Validator(_as_json_schema(checked)).iter_errors(content)]
    return [*unknown, *sorted(wrong)]


def has_rules(schema: object) -> bool:
    """Whether the schema has CEL rules, which are not checked here."""
    if isinstance(schema, list):
        return any(map(has_rules, schema))
    if not isinstance(schema, dict):
        return False
    return isinstance(schema.get("x-kubernetes-validations"), list) or any(map(has_rules, schema.values()))


def _sentence(error: ValidationError) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path).lstrip(".")
    return f"{path}: {error.message}" if path else error.message


def _as_json_schema(schema: Resource) -> dict[str, Any]:
    """Converts a structural schema to JSON Schema; Kubernetes' own keywords are replaced by standard ones.

    Formats, metadata and defaults are left out.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return dict(_INT_OR_STRING)
    ours: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _MAPS and isinstance(value, dict):
            ours[name] = {key: _as_json_schema(below) for key, below in value.items() if key != "metadata"}
        elif name in _LISTS and isinstance(value, list):
            ours[name] = [_as_json_schema(below) for below in value]
        elif name in _SINGLE and isinstance(value, dict):
            ours[name] = _as_json_schema(value)
        elif not name.startswith("x-kubernetes-") and name not in ("format", "default", "nullable", "description"):
            ours[name] = value
    if schema.get("nullable") and isinstance(ours.get("type"), str):
        ours["type"] = [ours["type"], "null"]
    return ours
