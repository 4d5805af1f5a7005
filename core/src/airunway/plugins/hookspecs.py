"""The hooks that a provider plugin implements (docs/providers/contract.md).

A provider distribution registers one plugin object under the entry-point group ``airunway.providers``: usually an
`airunway.sdk.Provider`, otherwise any object whose functions are marked with `hookimpl`. All hooks are pure: no I/O, no
environment variables, no clock except ``context.now``, no changes to their arguments. A site can register its own hook
wrappers (``hookimpl(wrapper=True)``) under the group ``airunway.wrappers``; they can change the result of any provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pluggy

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
from airunway.resource import Resource

PROJECT = "airunway"

PROVIDERS = "airunway.providers"
"""Entry-point group of providers; the name of the entry point is the provider's name."""

ON_REQUEST = "airunway.providers.on_request"
"""Entry-point group of providers that run only if they are requested by name: for tests, never for a whole cluster."""

WRAPPERS = "airunway.wrappers"
"""Entry-point group of a site's own hook wrappers, which wrap the hooks of every provider in the process."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks the hooks of a plugin that is not a `Provider`; ``hookimpl(wrapper=True)`` marks those of a site's wrapper."""


@hookspec(firstresult=True)
def provider_manifest() -> ProviderManifest:
    """Static data: name, version, capabilities, selection rules, kinds, pods, settings, overrides, rights."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def transformers() -> Sequence[Transformer]:
    """The schema registry: each way of writing a kind, with the schema hashes it supports, oldest first."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def can_handle(deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
    """Whether the provider can honour this deployment; it names every field that it would have to drop."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> Translation | Sequence[Resource]:
    """The complete desired objects, primary first; deterministic and byte-identical in every process.

    The runtime adds namespace, owner reference, labels and the spec hash; a translation must not set them. It is called
    only if `can_handle` found no blocker.
    """
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
    """Components, replicas and endpoint, from the objects that exist. It must accept any input and never raise."""
    raise AssertionError("a hookspec is never called")
