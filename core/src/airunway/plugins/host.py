"""`ProviderHost`: the only way in which the rest of the project calls a plugin.

It gives the hooks their types, checks what comes back, and turns whatever a plugin raises into one exception.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import pluggy

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import (
    CONTRACT_VERSIONS,
    Compatibility,
    Context,
    Observation,
    Observed,
    ProviderManifest,
    Transformer,
    UpstreamKind,
)
from airunway.plugins.errors import PluginFault
from airunway.resource import Resource

__all__ = ["ProviderHost"]

T = TypeVar("T")


class ProviderHost:
    """One provider plugin behind its typed façade.

    Every method raises PluginFault (a bug of the plugin) if the hook raises or returns something else than promised.
    """

    def __init__(self, manager: pluggy.PluginManager, *, name: str, origin: str) -> None:
        self._hook = manager.hook
        self.name = name
        self.origin = origin

    @cached_property
    def manifest(self) -> ProviderManifest:
        return self._call("provider_manifest", ProviderManifest, self._hook.provider_manifest)

    @cached_property
    def contract_version(self) -> str:
        """The newest contract version that both sides speak."""
        return next(version for version in CONTRACT_VERSIONS if version in self.manifest.contract_versions)

    @cached_property
    def transformers(self) -> tuple[Transformer, ...]:
        """The schema registry, oldest first."""
        return tuple(self._list("transformers", self._hook.transformers))

    @cached_property
    def primary_kind(self) -> UpstreamKind:
        """The kind that ``translate_spec`` puts first."""
        kinds = self.manifest.upstream
        return next((kind for kind in kinds if kind.primary), kinds[0])

    def can_handle(self, deployment: ModelDeployment, context: Context) -> Compatibility:
        return self._call(
            "can_handle", Compatibility, lambda: self._hook.can_handle(deployment=deployment, context=context)
        )

    def translate_spec(self, deployment: ModelDeployment, context: Context) -> list[Resource]:
        objects: list[Resource] = self._list(
            "translate_spec", lambda: self._hook.translate_spec(deployment=deployment, context=context)
        )
        for position, obj in enumerate(objects):
            if not (
                isinstance(obj, dict)
                and obj.get("apiVersion")
                and obj.get("kind")
                and (obj.get("metadata") or {}).get("name")
            ):
                raise PluginFault(
                    f"provider {self.name!r}: translate_spec returned object {position} "
                    "without apiVersion, kind or metadata.name"
                )
        if not objects:
            raise PluginFault(f"provider {self.name!r}: translate_spec returned no object")
        return objects

    def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context) -> Observation:
        return self._call(
            "translate_status",
            Observation,
            lambda: self._hook.translate_status(deployment=deployment, observed=observed, context=context),
        )

    def _list(self, hook: str, call: Callable[[], object]) -> list[Any]:
        """The items of a hook that returns a list or a tuple."""
        found = self._call(hook, object, call)
        if not isinstance(found, (list, tuple)):
            raise PluginFault(
                f"provider {self.name!r} ({self.origin}): {hook} returned {type(found).__name__}, no list"
            )
        return list(found)

    def _call(self, hook: str, expected: type[T], call: Callable[[], object]) -> T:
        try:
            result = call()
        except Exception as error:
            # Foreign code: whatever it raises is its bug and must cost one deployment's pass, not the process.
            raise PluginFault(f"provider {self.name!r} ({self.origin}): {hook} raised {error!r}") from error
        if not isinstance(result, expected):
            raise PluginFault(
                f"provider {self.name!r} ({self.origin}): "
                f"{hook} returned {type(result).__name__}, not {expected.__name__}"
            )
        return result
