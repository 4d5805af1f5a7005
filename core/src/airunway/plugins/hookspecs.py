"""The hooks that a provider plugin implements: the contract (docs/providers/contract.md).

A provider distribution registers one plugin object under the entry-point group ``airunway.providers``; its functions
are marked with `hookimpl`. All hooks are pure: no I/O, no environment, no clock but ``context.now``. A site can add
hook wrappers of its own (``hookimpl(wrapper=True)``) that change what any provider returns.
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import (
    Compatibility,
    Context,
    Observation,
    Observed,
    ProviderManifest,
    Transformer,
)
from airunway.resource import Resource

__all__ = ["ENTRY_POINT_GROUP", "PROJECT", "hookimpl"]

PROJECT = "airunway"
ENTRY_POINT_GROUP = "airunway.providers"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def provider_manifest() -> ProviderManifest:
    """Who the provider is: name, version, capabilities, selection rules, upstream kinds, overrides, immutable paths."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def transformers() -> Sequence[Transformer]:
    """The schema registry: each way of writing the primary kind with the schema hashes that it fits, oldest first."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def can_handle(deployment: ModelDeployment, context: Context) -> Compatibility:
    """Whether the provider can honour this deployment; names every field that it would have to drop."""
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def translate_spec(deployment: ModelDeployment, context: Context) -> Sequence[Resource]:
    """The complete desired objects, primary first; deterministic, byte-identical in every process.

    The runtime adds namespace, owner reference, managed-by labels and the spec hash; a translation sets none of them.
    Called only if `can_handle` found no blocker.
    """
    raise AssertionError("a hookspec is never called")


@hookspec(firstresult=True)
def translate_status(deployment: ModelDeployment, observed: Observed, context: Context) -> Observation:
    """Components, replicas and endpoint, from whatever of the objects exists. Total: any input, never an exception."""
    raise AssertionError("a hookspec is never called")
