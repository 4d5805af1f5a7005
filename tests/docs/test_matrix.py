"""The page of what runs where says what an API server with the upstreams' own CRDs says; and so do the manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.matrix import Run, engine_answers
from tools.fields_page import providers
from tools.generated import ROOT, stale
from tools.matrix_page import PAGE, excerpt, page

from airunway.kube import Client
from airunway.plugins.registry import load
from airunway.selection.choice import PREFERENCE


@pytest.mark.apiserver
@pytest.mark.slow
async def test_the_page_is_current_for_the_oldest_and_the_newest_releases(
    client: Client, namespace: str, recordings: Path
) -> None:
    stored = (ROOT / PAGE).read_text(encoding="utf-8")
    missing = [text for text in await excerpt(client, namespace, recordings / "upstream-crds") if text not in stored]
    assert missing == [], "run `make generate`"


@pytest.mark.soak
@pytest.mark.apiserver
@pytest.mark.timeout(900)  # every sample, on every release of every upstream
async def test_the_page_is_current(client: Client, namespace: str, recordings: Path) -> None:
    assert stale({PAGE: await page(client, namespace, recordings / "upstream-crds")}) == [], "run `make generate`"


@pytest.mark.parametrize("name", providers())
def test_a_provider_runs_the_engines_that_its_manifest_names_and_no_others(name: str) -> None:
    host = load(name)
    declared = {
        engine.name: {
            "one GPU": engine.gpu_support and "aggregated" in engine.serving_modes,
            "no GPU": engine.cpu_support and "aggregated" in engine.serving_modes,
            "disaggregated": "disaggregated" in engine.serving_modes,
            "model cache": engine.model_cache,
        }
        for engine in host.manifest.engines
    }
    for engine in PREFERENCE:
        answers = engine_answers(host, engine)
        runs = {form: answers[form][0] is not Run.NO for form in ("one GPU", "no GPU", "disaggregated", "model cache")}
        assert runs == declared.get(engine, dict.fromkeys(runs, False)), answers
