"""Would the API server take an object under a schema? Pure, with no API server.

What is said here is what a strict server-side apply says: fields that the schema does not have, values that do not fit
it. Rules in CEL are not evaluated; `has_rules` says that there are some.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft4Validator
from jsonschema.exceptions import ValidationError

from airunway.resource import Resource
from airunway.upgrades.schemas import defaulted, dropped

__all__ = ["has_rules", "refusals"]

_INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
_MAPS = ("properties", "patternProperties")
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("items", "additionalProperties", "not")


def refusals(obj: Resource, schema: Resource) -> list[str]:
    """Why the API server would refuse an apply of `obj`, one sentence for each reason; none if it would take it."""
    unknown = [f"{path}: the schema has no such field" for path in dropped(obj, schema)]
    content = {name: value for name, value in defaulted(obj, schema).items() if name != "metadata"}
    wrong = [_told(error) for error in Draft4Validator(_plain(schema)).iter_errors(content)]
    return [*unknown, *sorted(wrong)]


def has_rules(schema: Resource) -> bool:
    """Whether some rule of the schema is beyond what is checked here."""
    return any(True for _ in _rules(schema))


def _rules(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        if isinstance(node.get("x-kubernetes-validations"), list):
            yield node["x-kubernetes-validations"]
        for below in node.values():
            yield from _rules(below)
    elif isinstance(node, list):
        for below in node:
            yield from _rules(below)


def _told(error: ValidationError) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path).lstrip(".")
    return f"{path}: {error.message}" if path else error.message


def _plain(schema: Resource) -> dict[str, Any]:
    """A structural schema as JSON Schema: what Kubernetes says in words of its own, said in the common ones.

    Formats, metadata and defaults are left out; a null where none is allowed counts as absent, as in Kubernetes.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return dict(_INT_OR_STRING)
    ours: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _MAPS and isinstance(value, dict):
            ours[name] = {key: _plain(below) for key, below in value.items() if key != "metadata"}
        elif name in _LISTS and isinstance(value, list):
            ours[name] = [_plain(below) for below in value]
        elif name in _SINGLE and isinstance(value, dict):
            ours[name] = _plain(value)
        elif not name.startswith("x-kubernetes-") and name not in ("format", "default", "nullable", "description"):
            ours[name] = value
    if schema.get("nullable") and isinstance(ours.get("type"), str):
        ours["type"] = [ours["type"], "null"]
    return ours
