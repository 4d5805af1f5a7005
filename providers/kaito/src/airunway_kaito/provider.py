"""The plugin object that the distribution registers."""

from __future__ import annotations

from airunway.sdk import Context, ModelDeployment, Observation, Observed, Provider
from airunway_kaito.compatibility import compatibility
from airunway_kaito.manifest import MANIFEST
from airunway_kaito.objects import desired_objects
from airunway_kaito.schemas import TRANSFORMERS
from airunway_kaito.settings import Settings
from airunway_kaito.status import observation

__all__ = ["provider"]


def _translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    return observation(deployment, observed)


provider = Provider(
    MANIFEST,
    TRANSFORMERS,
    can_handle=compatibility,
    translate_spec=desired_objects,
    translate_status=_translate_status,
)
