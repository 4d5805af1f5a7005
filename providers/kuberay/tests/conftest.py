"""Deployments and contexts for the translation to RayServices."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.translations import MakeDeployment, deployments_like

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Context, ModelCache, RuntimeSettings, Upstream
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.plugins.settings import read_settings
from airunway.resource import Resource
from airunway_kuberay.manifest import TRANSFORMERS
from airunway_kuberay.settings import Settings

NOW = datetime(2026, 9, 1, tzinfo=UTC)

MakeContext = Callable[..., Context[Any]]
Service = Callable[..., Resource]

WORKERS: Resource = {
    "prefill": {"replicas": 2, "gpu": {"count": 2}, "memory": "64Gi"},
    "decode": {"replicas": 4, "gpu": {"count": 4}, "memory": "32Gi"},
}


@pytest.fixture(scope="session")
def host() -> ProviderHost:
    return load("kuberay")


@pytest.fixture(scope="session")
def deployment() -> MakeDeployment:
    """A Llama on one GPU; keyword arguments replace top-level fields of the spec."""
    return deployments_like()


@pytest.fixture(scope="session")
def split(deployment: MakeDeployment) -> MakeDeployment:
    """The same with prefill and decode apart."""

    def make(name: str = "llama-8b", **fields: Any) -> ModelDeployment:
        base: Resource = {"serving": {"mode": "disaggregated"}, "scaling": WORKERS, "resources": None}
        return deployment(name, **{**base, **fields})

    return make


@pytest.fixture(scope="session")
def context() -> MakeContext:
    """A context; `release` names a transformer by its oldest release, other keywords are provider settings.

    `first`: the first way of writing for that release, else the newest.
    """

    def make(
        engine: str = "vllm",
        *,
        release: str = "1.7",
        runtime: RuntimeSettings | None = None,
        cache: ModelCache | None = None,
        now: datetime = NOW,
        first: bool = False,
        **settings: Any,
    ) -> Context[Settings]:
        transformer = [t for t in TRANSFORMERS if t.since == release][0 if first else -1]
        upstream = Upstream(api_version=transformer.api_version, transformer=transformer)
        return Context(
            engine=engine,
            upstream=upstream,
            runtime=runtime or RuntimeSettings(),
            cache=cache,
            settings=read_settings(Settings, settings, provider="kuberay"),
            now=now,
        )

    return make


@pytest.fixture(scope="session")
def service(host: ProviderHost) -> Service:
    """The RayService that a deployment becomes; what may stand beside it is looked at by its own tests."""

    def make(wanted: ModelDeployment, ctx: Context[Any]) -> Resource:
        assert host.can_handle(wanted, ctx).blockers == ()
        made, *_ = host.translate_spec(wanted, ctx).objects
        return made

    return make
