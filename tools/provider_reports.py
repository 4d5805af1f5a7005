"""The reports of all installed providers, as `airunway provider check --report` writes them: for a release.

``python -m tools.provider_reports DIR`` makes DIR/<provider>/report.html and its like, and a badge of each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from airunway.plugins.registry import discover
from airunway_testing.conformance.checks import examined
from airunway_testing.conformance.report import Outcome, Report, written


def badge(report: Report) -> dict[str, object]:
    """What a badge shows, in the form that shields.io reads from an endpoint."""
    counts = report.counts()
    looked_at = counts[Outcome.PASSED] + counts[Outcome.FAILED]
    return {
        "schemaVersion": 1,
        "label": f"AI Runway contract {report.facts.contract}",
        "message": f"{counts[Outcome.PASSED]} of {looked_at} rules",
        "color": "green" if report.ok else "red",
    }


def main(folder: Path) -> int:
    """Write the reports; the number of providers that break a rule."""
    broken = 0
    for found in discover(on_request=True):
        report = examined(found.name)
        written(report, folder / found.name)
        (folder / found.name / "badge.json").write_text(json.dumps(badge(report)) + "\n", encoding="utf-8")
        sys.stdout.write(f"{found.name}: {'passed' if report.ok else 'FAILED'}\n")
        broken += not report.ok
    return broken


if __name__ == "__main__":
    sys.exit(min(1, main(Path(sys.argv[1]))))
