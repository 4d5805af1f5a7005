"""The plugin object that the distribution registers."""

from __future__ import annotations

from airunway.sdk import Provider
from airunway_dynamo.compatibility import compatibility
from airunway_dynamo.manifest import MANIFEST
from airunway_dynamo.objects import desired
from airunway_dynamo.schemas import TRANSFORMERS
from airunway_dynamo.status import observation

__all__ = ["provider"]

provider = Provider(
    MANIFEST,
    TRANSFORMERS,
    can_handle=compatibility,
    translate_spec=desired,
    translate_status=observation,
)
