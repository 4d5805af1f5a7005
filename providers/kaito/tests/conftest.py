"""Deployments, contexts and the recorded upstream, as the tests of this provider need them."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.recorded import recorded_by
from tests.support.translations import MakeDeployment, deployments_like

from airunway.plugins.contract import Context, RuntimeSettings, Upstream
from airunway.plugins.settings import read_settings
from airunway_kaito.manifest import INFERENCE_SET, TRANSFORMERS, WORKSPACE
from airunway_kaito.settings import Settings

NOW = datetime(2026, 9, 1, tzinfo=UTC)

MakeContext = Callable[..., Context[Settings]]


@pytest.fixture(scope="session")
def vllm() -> MakeDeployment:
    """A Llama on one GPU; keyword arguments replace top-level fields of the spec."""
    return deployments_like()


@pytest.fixture(scope="session")
def llamacpp() -> MakeDeployment:
    """The seeds' GGUF example on CPU; keyword arguments replace top-level fields of the spec."""
    model = {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"}
    image = "ghcr.io/sozercan/llama-cpp-runner:latest"
    base = {"model": model, "resources": {"memory": "16Gi", "cpu": "8"}, "image": image}
    return deployments_like(base, name="gemma-cpu")


@pytest.fixture(scope="session")
def context() -> MakeContext:
    """A context; `release` names a transformer by its oldest release, `sets` that of InferenceSets (without: none are
    served), `live` is the kind that runs; other keywords are provider settings."""

    def make(
        engine: str = "vllm",
        *,
        release: str = "0.12",
        sets: str = "",
        live: str = "",
        runtime: RuntimeSettings | None = None,
        **settings: Any,
    ) -> Context[Settings]:
        upstream = _upstream(f"v1beta1-{release}")
        return Context(
            engine=engine,
            upstream=upstream,
            served={WORKSPACE.key: upstream}
            | ({INFERENCE_SET.key: _upstream(f"inferenceset-v1beta1-{sets}")} if sets else {}),
            live_kind=live,
            runtime=runtime or RuntimeSettings(),
            settings=read_settings(Settings, settings, provider="kaito"),
            now=NOW,
        )

    return make


@pytest.fixture(scope="session")
def upstream_crds(recordings: Path) -> Path:
    """KAITO's own CRDs by release; data beside the checkout, not part of it."""
    return recordings / "upstream-crds"


@pytest.fixture(scope="session")
def upstream_traces() -> Path:
    """What KAITO's controller wrote, recorded."""
    return recorded_by("kaito-v0.12.0")


def _upstream(name: str) -> Upstream:
    """The newest way of writing a generation."""
    *_, transformer = (t for t in TRANSFORMERS if t.name in (name, f"{name}-r3"))
    return Upstream(api_version=transformer.api_version, transformer=transformer)
