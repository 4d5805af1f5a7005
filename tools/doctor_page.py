"""Write docs/reference/doctor.md: every code of `airunway doctor`, and the faults that tests have it find.

python -m tools.doctor_page [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from tools.generated import ROOT, write

from airunway.doctor import CHECKS
from airunway.doctor.findings import AREAS, PAGE

TABLE = Path("tests/doctor/misconfigurations.yaml")


def generated() -> dict[str, str]:
    """The page's text by its path from the root."""
    return {PAGE: "\n".join(_lines()) + "\n"}


def _lines() -> Iterator[str]:
    yield "<!-- Generated: python -m tools.doctor_page -->"
    yield "# airunway doctor"
    yield ""
    yield (
        "`airunway doctor` checks an installation once and reports what is wrong. It changes nothing. Checks for which "
        "you lack rights are listed and skipped. Of Secrets it reads only the metadata of those in which Helm keeps "
        "the releases of the namespace. To check that the API server reaches the webhooks, it creates a "
        "ModelDeployment in a server-side dry run."
    )
    yield ""
    yield "| exit code | |"
    yield "|---|---|"
    yield "| 0 | nothing at or above `--failure-threshold` (default: `error`) |"
    yield "| 1 | the cluster cannot be read |"
    yield "| 2 | the command line is wrong |"
    yield "| 3 | there are findings at or above `--failure-threshold` |"
    yield ""
    yield (
        "A code never changes its meaning and is never reused. `--ignore CODE` skips a check. Use `-o json` in "
        "programs; its fields are stable, and new ones may be added."
    )
    for prefix, area in AREAS.items():
        yield ""
        yield f"## {area}"
        for code, check in sorted(CHECKS.items()):
            if code[3:5] == prefix:
                yield ""
                yield f"### {code}"
                yield ""
                yield f"**{check.title}** ({check.severity.value}). {_escaped(check.why)}"
                yield ""
                yield f"**What to do:** {_escaped(check.do)}"
    yield ""
    yield "## Tested faults"
    yield ""
    yield (
        f"`{TABLE.parent}/test_doctor.py` creates each of these faults in a healthy installation on a real API server. "
        "Doctor reports these codes and no others. It reports nothing for the healthy installation."
    )
    yield ""
    yield "| fault | found |"
    yield "|---|---|"
    for case in yaml.safe_load((ROOT / TABLE).read_text(encoding="utf-8")):
        found = ", ".join(f"[{code}](#{code.lower()})" for code in case["finds"])
        yield f"| {case['fault']} | {found} |"
    yield from _silences()


_SILENT = {
    "The webhook's caBundle is wrong, or its TLS Secret was deleted": "the core's leader repairs it within seconds",
    "A provider's registration was edited": "the provider rewrites it at its start, and its status every minute",
    "A quota of a team is too small, or the Secret with a model's token is missing": "the status of the "
    "deployment names it, and its owner can read that without rights on the installation",
}
"""Faults that doctor does not report, and why."""


def _silences() -> Iterator[str]:
    yield ""
    yield "## Faults that it does not report"
    yield ""
    yield "| fault | reason |"
    yield "|---|---|"
    for fault, why in _SILENT.items():
        yield f"| {fault} | {why} |"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(write(generated()))
