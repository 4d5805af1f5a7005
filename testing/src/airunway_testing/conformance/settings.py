"""A provider's settings as the property ``settings`` of its chart's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airunway.plugins.settings import settings_defaults, settings_schema
from airunway.resource import Resource


def settings_property(settings: type) -> Resource:
    """A closed schema without references, which draft-07 and Helm understand.

    The default is empty: only what somebody set reaches the process, so that ``helm upgrade --reuse-values`` does not
    hold on to the defaults of an old release.
    """
    schema = settings_schema(settings)
    properties = _inlined(schema.get("properties", {}), schema.get("$defs", {}))
    for name, value in settings_defaults(settings).items():
        properties[name]["default"] = value
    return {
        "type": "object",
        "description": "Settings of the provider; what is not given has the default of the provider's release.",
        "default": {},
        "properties": properties,
    }


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        return _inlined({**target, **{k: v for k, v in node.items() if k != "$ref"}}, definitions)
    titled = isinstance(node.get("title"), str)
    return {key: _inlined(value, definitions) for key, value in node.items() if not (titled and key == "title")}
