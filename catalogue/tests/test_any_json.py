"""Sources, labels and answers of any shape: a status each, which the API server would take, and never an exception."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import orjson
import pytest
from core.tests.any_json import MANY, anything
from hypothesis import given
from hypothesis import strategies as st

from airunway.configs.resolution import resolve
from airunway.resource import Resource, dig
from airunway_catalogue.labels import read_labels
from airunway_catalogue.scan import Image, complete_images, plan_of, templates_of
from airunway_catalogue.source_status import FilterResult, Scan, due_in, last_scan, next_scan, status_of

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
PHASES = {"Pending", "Starting", "Progressing", "Ready", "Degraded", "NotAvailable", "Failed"}
KEYS = [
    "spec",
    "status",
    "metadata",
    "filters",
    "image",
    "exclude",
    "versions",
    "registry",
    "maxModels",
    "syncInterval",
    "imagePullSecrets",
    "insecure",
    "name",
    "lastSyncTime",
    "nextSyncTime",
    "observedGeneration",
    "conditions",
    "type",
    "reason",
    "message",
    "phase",
    "generation",
    "labels",
    "annotations",
    "runtimeConfigName",
    "found",
    "lastTransitionTime",
    "defaults",
    "ai.airunway.model.recommendedDeployments",
    "com.amd.aim.model.canonicalName",
    "gpuModel",
    "gpuCount",
    "metric",
]
VALUES = [
    "~1.2",
    ">=1",
    "team/*",
    "[",
    "2026-11-25T12:00:00Z",
    "0001-01-01T00:00:00Z",
    "ScanReady",
    "False",
    "Unauthorized",
    "Timeout",
    "Ready",
    "[{'gpuModel': 'H100'}]",
    '{"gpuCount": 8}, {"gpuCount": "x"}',
    "{" * 40,
    2**63,
    1,
]
REASONS = ["", "Unauthorized", "Timeout", "SourceNotFound", "InvalidConstraint", "Invented", "Unknown", "ProviderStale"]


def some(chance: Random) -> Resource:
    found = anything(chance, depth=5, keys=KEYS, values=VALUES)
    return found if isinstance(found, dict) else {"spec": found, "status": found}


def source_of(chance: Random) -> Resource:
    """A source whose name is that of an object, as the API server has it; all else may be anything."""
    found = some(chance)
    metadata = some(chance)
    labels = {str(key): str(value) for key, value in some(chance).items()}
    return {**found, "kind": "ModelSource", "metadata": {**metadata, "name": "s", "labels": labels, "annotations": {}}}


def check(chance: Random) -> None:
    source = source_of(chance)
    plan = plan_of(source)
    assert all(each.reason or each.image for each in plan.filters)
    assert due_in(source, now=NOW) >= 0
    results = tuple(
        FilterResult(image="x" * chance.randint(0, 400), found=chance.randint(0, 3), reason=chance.choice(REASONS))
        for _ in range(chance.randint(0, 4))
    )
    before = last_scan(source)
    following = next_scan(results, before=before, interval=plan.interval, retry_after=None, now=NOW)
    assert following > NOW
    new = Scan(filters=results, generation=1, ended=NOW, following=following)
    scan = chance.choice([before, new, None])
    status, wake = status_of(
        source, scan=scan, models=1, resolution=resolve("", namespaced=None, cluster=None), now=NOW
    )
    assert status["phase"] in PHASES
    assert wake is None or wake >= 0
    assert len(status["conditions"]) == 6
    assert all(len(each["message"].encode()) <= 1024 and each["reason"] for each in status["conditions"])
    assert all(len(each["image"]) <= 256 for each in status["filters"])
    orjson.dumps(status)
    found = read_labels({str(key): value for key, value in some(chance).items()})
    image = Image(name="team/a", repository="team/a", tag="1", reference="r/team/a:1")
    templates = templates_of(image, found, source=source, config=None)
    assert not (found.unreadable and templates)
    assert all(len(dig(each, "metadata", "name")) <= 63 for each in templates)
    orjson.dumps(templates)
    complete_images([*templates, source_of(chance)])


@given(st.randoms(use_true_random=False))
def test_any_source_and_any_labels(chance: Random) -> None:
    check(chance)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_thousand_sources_and_labels(seed: int) -> None:
    for number in range(MANY // 4):
        check(Random(seed * MANY + number))
