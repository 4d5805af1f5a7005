"""What the cases share: a second provider that takes almost anything, waiting for things, and a clock to be moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest
from tests.support.clocks import TimeOfDay

from airunway.api.modeldeployment import ModelDeployment
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, NotFound
from airunway.plugins.contract import (
    Compatibility,
    Component,
    Context,
    EngineCapability,
    Observation,
    Observed,
    ProviderManifest,
    Replicas,
    SelectionMode,
    Transformer,
    UpstreamKind,
)
from airunway.plugins.hookspecs import hookimpl
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of
from airunway.resource import ObjectKey, Resource, dig
from airunway.runtime.crd_versions import schema_hash
from airunway_testing import operator
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import event_about, install_definitions, remove_definition

GROUP = "tiny.example.com"
SCHEMA: Resource = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "model": {"type": "string"},
                "engine": {"type": "string"},
                "replicas": {"type": "integer"},
                "prefixCaching": {"type": "boolean"},
                "note": {"type": "string"},
                "env": {"type": "object", "additionalProperties": {"type": "string"}},
                "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
THING_CRD: Resource = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"things.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
    },
}


class Tiny:
    """A provider whose upstream is there as soon as it exists, and well unless its status has a reason; every field may
    change in place.
    """

    @hookimpl
    def provider_manifest(self) -> ProviderManifest:
        return ProviderManifest(
            name="tiny",
            version="1.0",
            selection=SelectionMode.EXPLICIT,
            engines=(
                EngineCapability(name="vllm", gpu_support=True, scale_to_zero=True),
                EngineCapability(name="llamacpp", gpu_support=True, cpu_support=True, scale_to_zero=True),
            ),
            upstream=(UpstreamKind(group=GROUP, kind="Thing", plural="things", versions=("v1",), primary=True),),
            override_schema={
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"note": {"type": "string"}}}},
            },
        )

    @hookimpl
    def transformers(self) -> Sequence[Transformer]:
        return (Transformer(name="tiny-v1", api_version=f"{GROUP}/v1", schema_hashes=(schema_hash(SCHEMA),)),)

    @hookimpl
    def can_handle(self, deployment: ModelDeployment, context: Context) -> Compatibility:
        return Compatibility()

    @hookimpl
    def translate_spec(self, deployment: ModelDeployment, context: Context) -> Sequence[Resource]:
        spec = deployment.spec
        wanted: Resource = {
            "model": spec.model.id,
            "engine": context.engine,
            "replicas": spec.scaling.replicas,
            "env": {variable.name: variable.value or "" for variable in spec.env},
        }
        if spec.engine.enable_prefix_caching is not None:
            wanted["prefixCaching"] = spec.engine.enable_prefix_caching
        if spec.node_selector:
            wanted["nodeSelector"] = dict(spec.node_selector)
        name = deployment.metadata.name
        return [{"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": name}, "spec": wanted}]

    @hookimpl
    def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context) -> Observation:
        count = dig(observed.primary, "spec", "replicas", default=0)
        reason = dig(observed.primary, "status", "reason", default="")
        return Observation(
            components=(
                Component(
                    name="Thing",
                    ready=not reason,
                    reason=reason or "Ready",
                    message=dig(observed.primary, "status", "message", default=""),
                ),
            ),
            replicas=Replicas(desired=count, ready=count, available=count),
        )


@pytest.fixture
def thing() -> Kind:
    return Kind(group=GROUP, version="v1", kind="Thing", plural="things", namespaced=True)


@pytest.fixture
def thing_crd() -> Resource:
    return THING_CRD


@pytest.fixture
async def tiny(client: Client, installed: None, gone: Callable[..., Awaitable[None]]) -> AsyncIterator[ProviderHost]:
    """The second provider, its upstream installed; afterwards no trace of either is left for other tests."""
    await install_definitions(client, [THING_CRD])
    yield host_of("tiny", Tiny(), origin="tiny 1.0")
    with suppress(NotFound):
        await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "tiny"))
        await gone(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "tiny"))
    await remove_definition(client, f"things.{GROUP}")


@pytest.fixture
async def no_inference_sets(client: Client, installed: None) -> None:
    """As KAITO was before 0.11; `installed` brings them back for the next test."""
    await remove_definition(client, "inferencesets.kaito.sh")


@pytest.fixture
def gone(client: Client) -> Callable[[Kind, ObjectKey], Awaitable[None]]:
    """Wait until an object is no longer there."""
    return partial(operator.gone, client)


@pytest.fixture
def seen(client: Client) -> Callable[[Kind, ObjectKey, Callable[[Resource], bool]], Awaitable[Resource]]:
    """Wait until an object is there and something holds of it; returns it."""

    async def seen_(kind: Kind, key: ObjectKey, holds: Callable[[Resource], bool]) -> Resource:
        live: Resource = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        live = await client.get(kind, key)
                    except NotFound:
                        live = {}
                    if live and holds(live):
                        return live
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise TimeoutError(f"waited in vain for {kind.kind} {key}; it is {live}") from error

    return seen_


@pytest.fixture
def event_of(client: Client) -> Callable[[ObjectKey, str], Awaitable[Resource]]:
    """Wait for an event with a reason about a deployment; returns it."""

    return partial(event_about, client)


@pytest.fixture
def edit(client: Client) -> Callable[[ObjectKey, Resource], Awaitable[Resource]]:
    """Change a deployment as its user would."""

    async def edit_(key: ObjectKey, patch: Resource) -> Resource:
        return await client.merge_patch(MODEL_DEPLOYMENT, key, patch, manager="user")

    return edit_


@pytest.fixture
def clock() -> TimeOfDay:
    return TimeOfDay()
