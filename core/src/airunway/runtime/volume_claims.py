"""What a provider does about volumes with a size, whose claims the model cache part makes (spec/platform.md). Pure."""

from __future__ import annotations

from collections.abc import Collection

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Finding
from airunway.resource import Resource, condition_of, dig
from airunway.runtime.state import has_part

__all__ = ["claim_fields", "claims_hinder", "unclaimed_volumes", "without_claims"]

_OF_CLAIMS = ("size", "storageClassName", "accessMode")

_VOLUME = "spec.model.storage.volumes[]"


_HARMLESS = ("PvcPending", "DryRun", "Suspended")
"""Reasons of StorageReady=False with which the first object can be made, or is not made anyway."""


def claim_fields(read: Collection[str]) -> tuple[str, ...]:
    """Fields of the spec that reach a provider as the claim of a volume, if it has read the claim's name."""
    return tuple(f"{_VOLUME}.{field}" for field in _OF_CLAIMS) if f"{_VOLUME}.claimName" in read else ()


def unclaimed_volumes(typed: ModelDeployment) -> list[Finding]:
    """Volumes with a size where that part is off: pods would wait for their claims forever."""
    return [
        Finding(
            path=f"spec.model.storage.volumes[{position}].size",
            reason="IncompatibleConfiguration",
            message=f"volume {volume.name}: claims are created from size by the model cache part, which is off: start "
            "the controller with --model-cache=on, or create a PersistentVolumeClaim, name it in claimName and take "
            "size out",
        )
        for position, volume in enumerate(typed.spec.model.storage.volumes)
        if volume.size is not None
    ]


def claims_hinder(deployment: Resource) -> str | None:
    """Why the first object of a deployment is not made yet because of its volumes with a size; None if they do not
    hinder it, empty if the condition StorageReady says why.

    A claim that is not bound hinders nothing: some are bound only with their first pod. One that is not made yet does:
    a foreign object may have its name.
    """
    volumes = dig(deployment, "spec", "model", "storage", "volumes")
    sized = isinstance(volumes, list) and any(dig(volume, "size") is not None for volume in volumes)
    if not sized or not has_part(deployment, names.MODEL_CACHE_PART):
        return None
    condition = condition_of(deployment, "StorageReady") or {}
    if condition.get("observedGeneration") != dig(deployment, "metadata", "generation"):
        return "Waiting until the claims of the volumes are created"
    return None if condition.get("status") == "True" or condition.get("reason") in _HARMLESS else ""


def without_claims(spec: Resource) -> Resource:
    """A spec without what only concerns claims of volumes: a claim that grows is no change for what mounts it."""
    volumes = dig(spec, "model", "storage", "volumes")
    if not isinstance(volumes, list) or not any(dig(volume, "size") is not None for volume in volumes):
        return spec
    kept = [{key: value for key, value in volume.items() if key not in _OF_CLAIMS} for volume in volumes]
    model = spec["model"]
    return {**spec, "model": {**model, "storage": {**model["storage"], "volumes": kept}}}
