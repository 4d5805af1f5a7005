"""What a provider reports is checked before anything is written of it: no condition has two writers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from airunway.runtime.rendering import observation_of

from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.plugins.contract import (
    Compatibility,
    Component,
    Context,
    EngineCapability,
    Observation,
    Observed,
    ProviderManifest,
    State,
    Transformer,
    UpstreamKind,
)
from airunway.plugins.errors import PluginFault
from airunway.plugins.hookspecs import hookimpl
from airunway.plugins.registry import host_of
from airunway.resource import Resource

pytestmark = pytest.mark.unit


class Reporting:
    """A plugin that reports on one component of any name."""

    def __init__(self, component: str) -> None:
        self.component = component

    @hookimpl
    def provider_manifest(self) -> ProviderManifest:
        return ProviderManifest(
            name="curious",
            version="1.0",
            engines=(EngineCapability(name="vllm", gpu_support=True),),
            upstream=(UpstreamKind(group="example.org", kind="Thing", plural="things", versions=("v1",)),),
        )

    @hookimpl
    def transformers(self) -> Sequence[Transformer]:
        return (Transformer(name="only", api_version="example.org/v1", schema_hashes=()),)

    @hookimpl
    def can_handle(self, deployment: ModelDeployment, context: Context) -> Compatibility:
        return Compatibility()

    @hookimpl
    def translate_spec(self, deployment: ModelDeployment, context: Context) -> Sequence[Resource]:
        return [{"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": deployment.metadata.name}}]

    @hookimpl
    def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context) -> Observation:
        return Observation(components=(Component(name=self.component, state=State.READY, reason="Ready"),))


def report_on(component: str) -> Observation:
    deployment = parse_deployment(
        {
            "apiVersion": "airunway.ai/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": "llama", "namespace": "default"},
            "spec": {"model": {"id": "org/model"}},
        }
    )
    context = Context(engine="vllm", upstream=None, now=datetime(2026, 11, 21, tzinfo=UTC))
    host = host_of("curious", Reporting(component), origin="curious 1.0")
    return observation_of(host, deployment, Observed(primary=None), context)


@pytest.mark.parametrize("component", ["Gateway", "ModelCache", "RuntimeConfig", "", "two words", "X" * 400])
def test_a_component_whose_condition_is_the_cores_or_has_no_name_is_the_plugins_fault(component: str) -> None:
    with pytest.raises(PluginFault, match=r"provider 'curious' \(curious 1\.0\): translate_status names a component"):
        report_on(component)


def test_a_component_of_the_plugins_own_is_taken() -> None:
    assert report_on("Decode").components[0].name == "Decode"
