"""Deployments and contexts, as the tests of this provider need them; everything goes through the core's own host."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.translations import MakeDeployment, deployments_like

from airunway.plugins.contract import Context, ModelCache, RuntimeSettings, Upstream
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.sdk.workloads import LEADER_WORKER_SET
from airunway_vllm.manifest import TRANSFORMERS
from airunway_vllm.settings import Settings

NOW = datetime(2026, 9, 1, tzinfo=UTC)
DEPLOYMENT, GROUP = TRANSFORMERS[-2:]

MakeContext = Callable[..., Context[Any]]


@pytest.fixture(scope="session")
def host() -> ProviderHost:
    return load("vllm")


@pytest.fixture(scope="session")
def deployment() -> MakeDeployment:
    """A Llama on one GPU; keyword arguments replace top-level fields of the spec."""
    return deployments_like()


@pytest.fixture(scope="session")
def context() -> MakeContext:
    """A context; `groups`: LeaderWorkerSet is installed; other keywords are provider settings."""

    def make(
        engine: str = "vllm",
        *,
        groups: bool = True,
        runtime: RuntimeSettings | None = None,
        cache: ModelCache | None = None,
        **settings: Any,
    ) -> Context[Settings]:
        upstream = Upstream(api_version=DEPLOYMENT.api_version, transformer=DEPLOYMENT)
        served = {"Deployment.apps": upstream}
        if groups:
            served[LEADER_WORKER_SET.key] = Upstream(api_version=GROUP.api_version, transformer=GROUP)
        return Context(
            engine=engine,
            upstream=upstream,
            served=served,
            runtime=runtime or RuntimeSettings(),
            cache=cache,
            settings=Settings(**settings),
            now=NOW,
        )

    return make
