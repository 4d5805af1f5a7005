"""What a cache keeps of a template of any size. Pure.

A template gives a deployment at most 16 KiB, so the limit of a deployment's own spec is far above what one needs. Of a
larger one only an outline and the exceeded limit are kept: it cannot be used, and its state says so.
"""

from __future__ import annotations

from airunway.api.bounds import (
    EXCESS,
    MAX_ANNOTATIONS,
    MAX_KEY,
    MAX_LABELS,
    Excess,
    is_modest,
    noted_excess,
    size_of,
    spec_excess,
)
from airunway.api.names import GROUP
from airunway.resource import Resource

_OUTLINE = ("modelName", "metric", "precision", "runtimeConfigName")
"""Fields of the spec by which a template is found, and by which its state is decided."""

_MAX_ENTRY = 16 * 2**10
"""Maximum bytes of one manager's field entry, of all finalizers, and of all owner references: any user writes them."""

_MOST = 64
"""Finalizers and owner references that are kept of more."""


def excess_of(template: Resource) -> Excess | None:
    """Returns the limit that a template's spec exceeds, by its cache or by its size; None if it may be walked."""
    noted = noted_excess(template)
    return noted[0] if noted else spec_excess(template.get("spec"))


def bound(template: Resource) -> Resource:
    """Replaces what is too large in a decoded template, and returns it; all others stay as they are."""
    found = spec_excess(template.get("spec"))
    if found is not None:
        spec = template.get("spec")
        fields = spec.items() if isinstance(spec, dict) else ()
        template["spec"] = {
            key: value for key, value in fields if key in _OUTLINE and isinstance(value, str) and len(value) <= MAX_KEY
        }
        template[EXCESS] = [tuple(found)]
    metadata = template.get("metadata")
    if isinstance(metadata, dict):
        for field, limit in (("labels", MAX_LABELS), ("annotations", MAX_ANNOTATIONS)):
            value = metadata.get(field)
            if isinstance(value, dict) and is_over(value, limit):
                ours = {key: text for key, text in value.items() if key.startswith(f"{GROUP}/")}
                metadata[field] = {} if is_over(ours, limit) else ours
        for field in ("finalizers", "ownerReferences"):
            value = metadata.get(field)
            if isinstance(value, list) and is_over(value, _MAX_ENTRY):
                metadata[field] = [entry for entry in value[:_MOST] if not is_over(entry, MAX_LABELS)]
        entries = metadata.get("managedFields")
        if isinstance(entries, list) and is_over(entries, _MAX_ENTRY):
            metadata["managedFields"] = [entry for entry in entries if not is_over(entry, _MAX_ENTRY)]
    return template


def is_over(value: object, limit: int) -> bool:
    """Whether a value has more than `limit` bytes, is nested too deeply or has a key that is too long."""
    if is_modest(value, limit=limit):
        return False
    size = size_of(value, limit=limit)
    return size.over or size.too_deep or bool(size.long_key)
