"""The toy provider with parts of it replaced: what tests of the contract load instead of writing plugins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of
from airunway.sdk import Context, ModelDeployment, Provider, Translation
from airunway_testing.toy.provider import TRANSFORMERS, provider

SHAPE = "SHAPE"
"""The environment variable by which a test asks its variant for something else; the toy itself has no use for it."""


def toy_host(**changes: Any) -> ProviderHost:
    """A host of a variant, checked as at load. Keyword arguments: hooks, `transformers`, fields of the manifest."""
    hooks: dict[str, Any] = {
        name: getattr(provider, name) for name in ("can_handle", "translate_spec", "translate_status")
    }
    hooks |= {name: changes.pop(name) for name in tuple(hooks) if name in changes}
    transformers = changes.pop("transformers", TRANSFORMERS)
    variant = Provider(replace(provider.manifest, **changes), transformers, **hooks)
    host = host_of(variant.manifest.name, variant, origin="a variant of the toy")
    host.check()
    return host


def shape_of(deployment: ModelDeployment) -> str:
    """What the deployment asks its variant for; empty for the usual."""
    return next((variable.value or "" for variable in deployment.spec.env if variable.name == SHAPE), "")


def usual(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """What the toy itself makes of a deployment: Toy, Service, ConfigMap, and a ToyBox where there are such."""
    found = provider.translate_spec(deployment, context)
    assert isinstance(found, Translation), "the toy answers with a Translation"
    return found
