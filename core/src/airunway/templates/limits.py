"""What a cache keeps of a template of any size. Pure.

A template gives a deployment at most 16 KiB, so the limit of a deployment's own spec is far above what one needs. Of a
larger one only an outline and the exceeded limit are kept: it cannot be used, and its state says so.
"""

from __future__ import annotations

from airunway.api.bounds import (
    EXCESS,
    MAX_KEY,
    MAX_LABELS,
    Excess,
    is_over,
    limit_texts,
    noted_excess,
    spec_excess,
)
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
        limit_texts(metadata)
        for field in ("finalizers", "ownerReferences"):
            value = metadata.get(field)
            if isinstance(value, list) and is_over(value, _MAX_ENTRY):
                metadata[field] = [entry for entry in value[:_MOST] if not is_over(entry, MAX_LABELS)]
        entries = metadata.get("managedFields")
        if isinstance(entries, list) and is_over(entries, _MAX_ENTRY):
            metadata["managedFields"] = [entry for entry in entries if not is_over(entry, _MAX_ENTRY)]
    return template
