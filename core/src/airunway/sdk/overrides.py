"""Fragments for the JSON schema of ``spec.provider.overrides``.

Maps are closed: an unknown key, at any depth and also in lists, is left out with a warning that names it. Sizes in
overrides obey the ceilings of the spec (docs/providers/contract.md).
"""

from __future__ import annotations

from typing import Any

from airunway.resource import Resource

__all__ = [
    "BOOLEAN",
    "CPU",
    "GPUS",
    "LABELS",
    "MEMORY",
    "REPLICAS",
    "TEXT",
    "TEXTS",
    "choice",
    "items",
    "keys",
    "typed",
]

TEXT: Resource = {"type": "string", "maxLength": 8192}
"""Any text."""

TEXTS: Resource = {"type": "array", "maxItems": 256, "items": TEXT}
"""A list of texts."""

BOOLEAN: Resource = {"type": "boolean"}
"""True or false."""

LABELS: Resource = {"type": "object", "maxProperties": 64, "additionalProperties": {"type": ["string", "null"]}}
"""A map of texts; null removes a key that the translation adds."""

GPUS: Resource = {"type": "integer", "minimum": 0, "maximum": 64}
"""A number of GPUs, up to the ceiling of the spec."""

REPLICAS: Resource = {"type": "integer", "minimum": 0, "maximum": 32}
"""A number of replicas, up to the ceiling of the spec."""

MEMORY: Resource = {"type": ["string", "integer"], "x-airunway-ceiling": "4Ti"}
"""An amount of memory, up to the ceiling of the spec."""

CPU: Resource = {"type": ["string", "integer", "number"], "x-airunway-ceiling": "512"}
"""An amount of CPU, up to the ceiling of the spec."""


def keys(**properties: Resource) -> Resource:
    """An object with these keys and no others."""
    return {"type": "object", "properties": properties}


def items(item: Resource, *, most: int = 256) -> Resource:
    """A list of up to `most` such items."""
    return {"type": "array", "maxItems": most, "items": item}


def choice(*values: str) -> Resource:
    """One of these words."""
    return {"type": "string", "enum": list(values)}


def typed(schema: Resource) -> Resource:
    """Marks a key that the translation reads itself: it is validated but not merged into the primary object."""
    marked: dict[str, Any] = {**schema, "x-airunway-typed": True}
    return marked
