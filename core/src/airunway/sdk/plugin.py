"""`Provider`: the object that a distribution registers under the entry-point group ``airunway.providers``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import (
    Compatibility,
    Context,
    Observation,
    Observed,
    ProviderManifest,
    Transformer,
    Translation,
)
from airunway.plugins.hookspecs import hookimpl
from airunway.resource import Resource

__all__ = ["Provider"]

CanHandle = Callable[[ModelDeployment, Context[Any]], Compatibility]
TranslateSpec = Callable[[ModelDeployment, Context[Any]], Translation | Sequence[Resource]]
TranslateStatus = Callable[[ModelDeployment, Observed, Context[Any]], Observation]


class Provider:
    """A plugin made of data and three functions, which are called with positional arguments.

    Without `can_handle` every deployment is accepted. The runtime then reports the fields that the translation did not
    read.
    """

    def __init__(
        self,
        manifest: ProviderManifest,
        transformers: Sequence[Transformer],
        *,
        can_handle: CanHandle | None = None,
        translate_spec: TranslateSpec,
        translate_status: TranslateStatus,
    ) -> None:
        self.manifest = manifest
        self._transformers = tuple(transformers)
        self._can_handle = can_handle
        self._translate_spec = translate_spec
        self._translate_status = translate_status

    @hookimpl
    def provider_manifest(self) -> ProviderManifest:
        return self.manifest

    @hookimpl
    def transformers(self) -> Sequence[Transformer]:
        return self._transformers

    @hookimpl
    def can_handle(self, deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
        return self._can_handle(deployment, context) if self._can_handle is not None else Compatibility()

    @hookimpl
    def translate_spec(self, deployment: ModelDeployment, context: Context[Any]) -> Translation | Sequence[Resource]:
        return self._translate_spec(deployment, context)

    @hookimpl
    def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
        return self._translate_status(deployment, observed, context)
