"""`python -m tools.provider_reports` writes a report and a badge of each installed provider."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools import provider_reports

from airunway.plugins.registry import discover
from airunway_testing.conformance.report import Outcome, Report, Result


def test_each_provider_has_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = [found for found in discover(on_request=True) if found.name == "toy"]
    monkeypatch.setattr(provider_reports, "discover", lambda **_: toy)
    assert provider_reports.main(tmp_path) == 0
    assert sorted(file.name for file in (tmp_path / "toy").iterdir()) == [
        "badge.json",
        "junit.xml",
        "report.html",
        "report.json",
    ]
    shown = json.loads((tmp_path / "toy" / "badge.json").read_text())
    assert (shown["label"], shown["color"]) == ("AI Runway contract v1", "green")


def test_a_badge_counts_what_was_looked_at() -> None:
    outcomes = (Outcome.PASSED, Outcome.FAILED, Outcome.NOT_COMPARED, Outcome.SKIPPED)
    report = Report(provider="acme", results=[Result(rule="AR-C-001", outcome=outcome) for outcome in outcomes])
    assert provider_reports.badge(report)["message"] == "1 of 2 rules"
    assert provider_reports.badge(report)["color"] == "red"
