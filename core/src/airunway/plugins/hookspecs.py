"""The hooks that a provider plugin implements: the contract (docs/providers/contract.md).

A provider distribution registers one plugin object under the entry-point group ``airunway.providers``: usually an
`airunway.sdk.Provider`, else anything whose functions are marked with `hookimpl`. All hooks are pure: no I/O, no
environment, no clock but ``context.now``, nothing of their arguments changed. A site adds hook wrappers of its own
(``hookimpl(wrapper=True)``) that change what any provider returns, under the group ``airunway.wrappers``.
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

__all__ = ["ON_REQUEST", "PROJECT", "PROVIDERS", "WRAPPERS", "hookimpl"]

PROJECT = "airunway"

PROVIDERS = "airunway.providers"
"""Entry-point group of providers: the entry point's name is the provider's."""

ON_REQUEST = "airunway.providers.on_request"
"""Entry-point group of providers that run only where somebody names them: for tests, never for a whole cluster."""

WRAPPERS = "airunway.wrappers"
"""Entry-point group of a site's own hook wrappers: they go around the hooks of every provider of the process."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks the hooks of a plugin that is no `Provider`; ``hookimpl(wrapper=True)`` those of a site's own wrapper."""


@hookspec(firstresult=True)
def provider_manifest() -> ProviderManifest:
    """Who the provider is: name, version, capabilities, selection rules, kinds, pods, settings, overrides, rights."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def transformers() -> Sequence[Transformer]:
    """The schema registry: each way of writing a kind with the schema hashes that it fits, oldest first."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def can_handle(deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
    """Whether the provider can honour this deployment; names every field that it would have to drop."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> Translation | Sequence[Resource]:
    """The complete desired objects, primary first; deterministic, byte-identical in every process.

    The runtime adds namespace, owner reference, labels and the spec hash; a translation sets none of them. Called only
    if `can_handle` found no blocker.
    """
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
    """Components, replicas and endpoint, from whatever of the objects exists. Total: any input, never an exception."""
    raise AssertionError("a hookspec is never called")
