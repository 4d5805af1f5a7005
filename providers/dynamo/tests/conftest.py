"""Deployments and contexts, as the tests of this provider need them; everything goes through the core's own host."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.translations import MakeDeployment, deployments_like

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Context, Gateway, ModelCache, RuntimeSettings, Upstream
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway_dynamo.manifest import TRANSFORMERS
from airunway_dynamo.settings import Settings

NOW = datetime(2026, 9, 1, tzinfo=UTC)
NAMES = tuple(transformer.name for transformer in TRANSFORMERS)

MakeContext = Callable[..., Context[Any]]


@pytest.fixture(scope="session")
def host() -> ProviderHost:
    return load("dynamo")


@pytest.fixture(scope="session")
def deployment() -> MakeDeployment:
    """A Llama on one GPU; keyword arguments replace top-level fields of the spec."""

    like = deployments_like()

    def make(name: str = "llama-8b", *, overrides: dict[str, Any] | None = None, **fields: Any) -> ModelDeployment:
        provider = {"name": "dynamo", **({"overrides": overrides} if overrides is not None else {})}
        return like(name, **{"provider": provider, **fields})

    return make


@pytest.fixture(scope="session")
def context() -> MakeContext:
    """A context; `written` names a transformer, `grove`: Grove is installed, `live` is the kind that runs, `graph` the
    graph itself (`changed`: the spec has changed since); other keywords are provider settings."""

    def make(
        engine: str = "vllm",
        *,
        written: str = NAMES[-1],
        grove: bool = False,
        pool: bool = False,
        runtime: RuntimeSettings | None = None,
        cache: ModelCache | None = None,
        live: str = "",
        graph: Resource | None = None,
        changed: bool = False,
        **settings: Any,
    ) -> Context[Settings]:
        transformer = next(t for t in TRANSFORMERS if t.name == written)
        upstream = Upstream(api_version=transformer.api_version, transformer=transformer)
        served = {"DynamoGraphDeployment.nvidia.com": upstream}
        if grove:
            served["PodClique.grove.io"] = upstream
        return Context(
            engine=engine,
            upstream=upstream,
            served=served,
            runtime=runtime or RuntimeSettings(),
            cache=cache,
            live_kind=live or ("DynamoGraphDeployment.nvidia.com" if graph else ""),
            live=graph,
            spec_changed=changed,
            gateway=Gateway(name="edge", namespace="gateways", uses_pool=True) if pool else None,
            settings=Settings(**settings),
            now=NOW,
        )

    return make


@pytest.fixture(scope="session")
def upstream_crds(recordings: Path) -> Path:
    """Dynamo's own CRDs by release; data beside the checkout, not part of it."""
    found = recordings / "upstream-crds" / "dynamo"
    if not found.is_dir():
        pytest.skip("not beside the checkout: ../shared/upstream-crds/dynamo")
    return found
