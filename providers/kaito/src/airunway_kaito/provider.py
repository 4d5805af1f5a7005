"""The plugin object: the hooks of spec/providers.md, "The contract"."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import (
    Compatibility,
    Context,
    Observation,
    Observed,
    ProviderManifest,
    Transformer,
)
from airunway.plugins.hookspecs import hookimpl
from airunway.resource import Resource
from airunway_kaito.compatibility import compatibility
from airunway_kaito.manifest import MANIFEST
from airunway_kaito.objects import desired_objects
from airunway_kaito.schemas import TRANSFORMERS
from airunway_kaito.status import observation

__all__ = ["can_handle", "provider_manifest", "transformers", "translate_spec", "translate_status"]


@hookimpl
def provider_manifest() -> ProviderManifest:
    return MANIFEST


@hookimpl
def transformers() -> Sequence[Transformer]:
    return TRANSFORMERS


@hookimpl
def can_handle(deployment: ModelDeployment, context: Context) -> Compatibility:
    return compatibility(deployment, context)


@hookimpl
def translate_spec(deployment: ModelDeployment, context: Context) -> Sequence[Resource]:
    return desired_objects(deployment, context)


@hookimpl
def translate_status(deployment: ModelDeployment, observed: Observed, context: Context) -> Observation:
    return observation(deployment, observed)
