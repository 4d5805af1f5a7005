"""The plugin object that the distribution registers."""

from __future__ import annotations

from airunway.sdk import Context, ModelDeployment, Observation, Observed, Provider, Translation
from airunway_kaito.compatibility import compatibility
from airunway_kaito.manifest import MANIFEST
from airunway_kaito.objects import OVERRIDES_AT, desired_objects
from airunway_kaito.schemas import INFERENCE_SET, TRANSFORMERS
from airunway_kaito.settings import Settings
from airunway_kaito.status import observation

__all__ = ["provider"]


def _translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    objects = desired_objects(deployment, context)
    several = objects[0]["kind"] == INFERENCE_SET.kind
    return Translation(objects=tuple(objects), overrides_at=OVERRIDES_AT if several else {})


def _translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    return observation(deployment, observed)


provider = Provider(
    MANIFEST,
    TRANSFORMERS,
    can_handle=compatibility,
    translate_spec=_translate_spec,
    translate_status=_translate_status,
)
