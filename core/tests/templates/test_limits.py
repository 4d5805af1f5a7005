"""What a process keeps of one template is bounded, and what is missing counts as too large, not as absent."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.support.memory import memory_of

from airunway.modelcache import templates as modelcache
from airunway.process.caches import Caches
from airunway.process.metrics import Metrics
from airunway.process.templates import TemplateProjection
from airunway.resource import Resource
from airunway.templates.contribution import Contribution, contribution_of

MOST = 16 * 2**10
"""Bytes of memory that a process may spend on a template over the limits."""


def template(*, metadata: Resource | None = None, **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelTemplate",
        "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7", **(metadata or {})},
        "spec": {"modelName": "org/m", "metric": "latency", **spec},
    }


def kept(obj: Resource) -> Resource:
    decoded: Resource = orjson.loads(orjson.dumps(obj))
    return TemplateProjection()(decoded)


HUGE: dict[str, Resource] = {
    "affinity": template(defaults={"affinity": {"x": [{}] * 450_000}}),
    "overrides": template(defaults={"provider": {"overrides": {"x": [[]] * 430_000}}}),
    "a key": template(defaults={"affinity": {"a" * 700_000: [0] * 300_000}}),
}


@pytest.mark.parametrize("title", HUGE)
def test_a_huge_template_is_kept_as_an_outline_and_gives_nothing(title: str) -> None:
    found = kept(HUGE[title])
    assert memory_of(found) <= MOST
    assert found["spec"] == {"modelName": "org/m", "metric": "latency"}
    for each in (found, HUGE[title]):  # as the process has it, and as a file or the API server has it
        contribution = contribution_of(each)
        assert contribution.spec == {}
        assert contribution.unusable.startswith("spec.defaults")
        assert "larger than 32 KiB" in contribution.unusable or "a key is longer" in contribution.unusable


@pytest.mark.parametrize("prefix", ["", "airunway.ai/"])
def test_huge_labels_are_not_kept(prefix: str) -> None:
    labels = {f"{prefix}a{i}": "b" * 60 for i in range(20_000)}
    assert memory_of(kept(template(metadata={"labels": labels}))) <= MOST


def test_a_template_within_the_limits_is_kept_as_it_is() -> None:
    obj = template(
        metadata={"labels": {"team": "search"}}, defaults={"env": [{"name": f"A{i}", "value": "x"} for i in range(200)]}
    )
    found = kept(obj)
    assert found["spec"] == obj["spec"]
    assert found["metadata"]["labels"] == {"team": "search"}
    assert not contribution_of(found).unusable


def test_what_a_template_gives_is_not_computed_for_one_that_keeps_nothing_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event of a template is looked at; only those with caching have artifacts."""
    asked: list[Resource] = []

    def counted(obj: Resource) -> Contribution:
        asked.append(obj)
        return contribution_of(obj)

    monkeypatch.setattr(modelcache, "contribution_of", counted)
    unused: Any = None  # no API server is asked
    warm = modelcache.WarmTemplates(
        Caches(unused, project=lambda obj: obj, metrics=Metrics("core")),
        artifacts=unused,
        maker=unused,
        events=unused,
        wake=lambda _: None,
        on_users=lambda _: None,
    )
    for obj, artifacts in ((template(), 0), (template(caching={"enabled": True}), 1)):
        assert len(list(warm._used(obj))) == artifacts
        assert len(asked) == artifacts
