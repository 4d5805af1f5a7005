"""What every provider must hold; no Kubernetes needed. `airunway provider check acme` says the same in one line."""

import json
from pathlib import Path

import pytest
from airunway.plugins.registry import load
from airunway.plugins.settings import settings_schema
from airunway_testing.conformance.chart import provider_files
from airunway_testing.conformance.checks import problems
from airunway_testing.conformance.digests import Record
from airunway_testing.conformance.digests import problems as changes
from airunway_testing.conformance.fields import Answer, outcomes


def test_it_holds_the_contract() -> None:
    """Load checks, the schema of the CRD, determinism within and between processes, statuses of any shape."""
    assert list(problems("acme")) == []


def test_every_field_is_honoured_refused_or_named() -> None:
    assert [found for found in outcomes(load("acme")) if found.answer is Answer.IGNORED] == []


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("spec.scaling.replicas", Answer.HONOURED),
        ("spec.resources.gpu.count", Answer.REFUSED),
        ("spec.tolerations", Answer.HONOURED),
        ("spec.serving.mode", Answer.REFUSED),
        ("spec.scaling.prefill.replicas", Answer.WARNED),
    ],
)
def test_what_becomes_of_a_field(field: str, wanted: Answer) -> None:
    assert {found.answer for found in outcomes(load("acme")) if found.field == field} == {wanted}


def test_the_chart_grants_what_the_kinds_need() -> None:
    """Stale: `python -m airunway_testing.conformance.chart acme chart`."""
    chart = Path(__file__).parents[1] / "chart"
    for path, text in provider_files(load("acme").manifest).items():
        assert (chart / path).read_text() == text


def test_the_settings_are_values_of_the_chart() -> None:
    chart = Path(__file__).parents[1] / "chart"
    schema = json.loads((chart / "values.schema.json").read_text())["properties"]["settings"]
    assert list(schema["properties"]) == list(settings_schema(load("acme").manifest.settings)["properties"])


def test_released_transformers_write_what_they_wrote() -> None:
    """A change before the first release: `python -m airunway_testing.conformance.digests acme tests/digests.json
    --write --unreleased v1`. After a release, what is written otherwise is a new transformer's.
    """
    assert changes(load("acme"), Record.read(Path(__file__).with_name("digests.json"))) == []
