"""Builds the claims that this part makes, and adds headroom to a measured size (spec/platform.md, "Model cache"). Pure.

Example: 14.9 GB measured with 10 % headroom becomes a claim of ``16Gi``; an explicit size is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from airunway.api import names
from airunway.configs import EffectiveConfig, propagated
from airunway.quantity import parse_quantity
from airunway.resource import Resource, dig, key_of, labels_of

__all__ = ["artifact_labels", "can_grow", "claim_of", "is_smaller", "labels_for", "size_with_headroom"]

_GIB = 2**30


def size_with_headroom(measured: int, percent: int) -> str:
    """The size of a claim for so many bytes: with headroom, rounded up to whole GiB."""
    wanted = Decimal(measured) * (100 + max(percent, 0)) / 100
    return f"{max(1, int((wanted / _GIB).to_integral_value(ROUND_CEILING)))}Gi"


def is_smaller(left: object, right: object) -> bool:
    """Whether one quantity is smaller than the other; False if one of them is none."""
    try:
        return parse_quantity(left) < parse_quantity(right)
    except ValueError:
        return False


def can_grow(storage_class: Resource | None) -> bool:
    """Whether claims of the class can be expanded."""
    return dig(storage_class, "allowVolumeExpansion") is True


def artifact_labels(artifact: str, component: str = "") -> dict[str, str]:
    """The labels of an artifact's claim (without a component), Jobs and their pods."""
    found = {
        names.MANAGED_BY: names.MANAGED_BY_VALUE,
        names.PART: names.MODEL_CACHE_PART,
        names.ARTIFACT: artifact,
        names.CACHE_TYPE: "artifact",
    }
    return {**found, names.COMPONENT: component} if component else found


def labels_for(artifact: Resource, config: EffectiveConfig | None, component: str = "") -> dict[str, str]:
    """Labels of what an artifact owns: those of the artifact that its config propagates, then ours (platform.md)."""
    found = labels_of(artifact)
    texts = {key: value for key, value in found.items() if isinstance(key, str) and isinstance(value, str)}
    return propagated(texts, config) | artifact_labels(key_of(artifact).name, component)


def claim_of(
    name: str, *, size: str, class_name: str | None, access_mode: str, labels: Mapping[str, str] | None = None
) -> Resource:
    """A PersistentVolumeClaim without owner and namespace. `class_name` None or empty: the cluster's default class."""
    spec: Resource = {"accessModes": [access_mode], "resources": {"requests": {"storage": size}}}
    if class_name:
        spec["storageClassName"] = class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": spec,
    }
