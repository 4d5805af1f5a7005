"""Builds the claims that this part makes, and adds headroom to a measured size (spec/platform.md, "Model cache"). Pure.

Example: 14.9 GB measured with 10 % headroom becomes a claim of ``16Gi``; an explicit size is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from airunway.api import names
from airunway.configs import EffectiveConfig, propagated
from airunway.quantity import parse_quantity
from airunway.resource import Resource, dig, key_of, labels_of
from airunway.status.rollup import Verdict

__all__ = [
    "Wish",
    "artifact_labels",
    "can_grow",
    "claim_of",
    "claim_verdict",
    "is_smaller",
    "labels_for",
    "possible",
    "room_of",
    "size_with_headroom",
]

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


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a claim should be."""

    size: str
    """A quantity."""
    class_name: str | None
    """StorageClass; None: the cluster's default one; empty: none, so that only a volume without a class fits."""
    access_mode: str
    """The only access mode."""


def possible(wish: Wish, live: Resource | None, storage_class: Resource | None) -> Wish:
    """What of a wish a claim that exists can be: it only grows, where its class can expand; class and access mode stay.

    `storage_class` is the class of the claim, None if it is not known.
    """
    if live is None:
        return wish
    allocated = dig(live, "spec", "resources", "requests", "storage")
    modes, class_name = dig(live, "spec", "accessModes"), dig(live, "spec", "storageClassName")
    grows = is_smaller(allocated, wish.size)
    stays = is_smaller(wish.size, allocated) or (grows and not can_grow(storage_class))
    found = replace(wish, class_name=class_name if isinstance(class_name, str) else None)
    if isinstance(modes, list) and modes and isinstance(modes[0], str):
        found = replace(found, access_mode=modes[0])
    return replace(found, size=str(allocated)) if stays else found


def room_of(claim: Resource | None) -> str:
    """How much fits on a claim: what its volume has, else what was asked for; empty for no claim.

    A volume whose file system only a pod that mounts it can expand counts as expanded.
    """
    request = dig(claim, "spec", "resources", "requests", "storage")
    capacity = dig(claim, "status", "capacity", "storage")
    conditions = dig(claim, "status", "conditions")
    waits = any(
        (dig(each, "type"), dig(each, "status")) == ("FileSystemResizePending", "True")
        for each in (conditions if isinstance(conditions, list) else ())
    )
    found = request if waits or capacity is None else capacity
    return found if isinstance(found, str) else ""


def claim_of(name: str, wish: Wish, *, labels: Mapping[str, str] | None = None) -> Resource:
    """A PersistentVolumeClaim without owner and namespace."""
    spec: Resource = {"accessModes": [wish.access_mode], "resources": {"requests": {"storage": wish.size}}}
    if wish.class_name is not None:
        spec["storageClassName"] = wish.class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": spec,
    }


def claim_verdict(
    live: Resource | None, *, class_name: str, class_found: bool, storage_class: Resource | None, first_user: str
) -> Verdict:
    """Whether a claim is there and bound. `first_user` is the pod with which a class that waits for one binds it."""
    phase = dig(live, "status", "phase")
    if live is not None and phase == "Bound":
        return Verdict(ready=True, reason="Bound", message=f"claim {key_of(live).name} is bound")
    if live is not None and phase == "Lost":
        text = f"claim {key_of(live).name} has lost its volume: delete the claim, and fill the new one again"
        return Verdict(ready=False, reason="PvcLost", message=text)
    if not class_found:
        text = f"there is no StorageClass {class_name}: create it, or name another one"
        return Verdict(ready=False, reason="StorageClassNotFound", message=text)
    if live is None:
        return Verdict(ready=False, reason="Starting", message="the claim is created")
    if dig(storage_class, "volumeBindingMode") == "WaitForFirstConsumer":
        text = f"claim {key_of(live).name} is bound when {first_user} is scheduled"
        return Verdict(ready=False, reason="PvcPending", message=text)
    return Verdict(ready=False, reason="PvcPending", message=f"claim {key_of(live).name} is not bound yet")
