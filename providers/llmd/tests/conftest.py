"""Deployments and contexts, as the tests of this provider need them; everything goes through the core's own host."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.translations import MakeDeployment, deployments_like

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Context, RuntimeSettings, Upstream
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway_llmd.manifest import TRANSFORMERS
from airunway_llmd.settings import Settings

NOW = datetime(2026, 9, 1, tzinfo=UTC)

MakeContext = Callable[..., Context[Any]]


@pytest.fixture(scope="session")
def host() -> ProviderHost:
    return load("llmd")


@pytest.fixture(scope="session")
def deployment() -> MakeDeployment:
    """A Llama on one GPU; keyword arguments replace top-level fields of the spec."""
    return deployments_like(name="llama")


@pytest.fixture(scope="session")
def apart(deployment: MakeDeployment) -> MakeDeployment:
    """Prefill and decode apart, with so many GPUs each."""

    def make(name: str = "llama", *, prefill: int = 1, decode: int = 1, **fields: Any) -> ModelDeployment:
        roles = {
            role: {"replicas": 1, "gpu": {"count": gpus}, "memory": "8Gi"}
            for role, gpus in (("prefill", prefill), ("decode", decode))
        }
        mode = {"serving": {"mode": "disaggregated"}, "scaling": roles, "resources": None}
        return deployment(name, **{**mode, **fields})

    return make


@pytest.fixture(scope="session")
def context() -> MakeContext:
    """A context; `pool` and `groups`: what is installed; other keywords are provider settings."""

    def make(
        engine: str = "vllm",
        *,
        pool: bool = True,
        groups: bool = True,
        kubernetes: tuple[int, int] = (1, 36),
        runtime: RuntimeSettings | None = None,
        **settings: Any,
    ) -> Context[Settings]:
        newest = {t.kind: Upstream(api_version=t.api_version, transformer=t) for t in TRANSFORMERS}
        primary, group, pooled = (newest[kind] for kind in ("", "LeaderWorkerSet", "InferencePool"))
        served = {"Deployment.apps": primary}
        if groups:
            served["LeaderWorkerSet.leaderworkerset.x-k8s.io"] = group
        if pool:
            served["InferencePool.inference.networking.k8s.io"] = pooled
        return Context(
            engine=engine,
            upstream=primary,
            served=served,
            runtime=runtime or RuntimeSettings(),
            settings=Settings(**settings),
            kubernetes=kubernetes,
            now=NOW,
        )

    return make
