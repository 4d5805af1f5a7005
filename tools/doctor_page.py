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
        "`airunway doctor` looks at an installation once, reading only, and says what is wrong with it. It works with "
        "whatever rights you have: what you may not look at is named and left out. Of Secrets it lists the metadata of "
        "those in which Helm keeps the releases of the namespace, and reads the content of none. To see whether the "
        "API server reaches the webhooks it rehearses the creation of a ModelDeployment (a dry run)."
    )
    yield ""
    yield "| exit code | |"
    yield "|---|---|"
    yield "| 0 | nothing at or above `--failure-threshold` (`error`, unless told otherwise) |"
    yield "| 1 | the cluster cannot be looked at |"
    yield "| 2 | the command line is wrong |"
    yield "| 3 | there are findings at or above `--failure-threshold` |"
    yield ""
    yield (
        "A code never changes its meaning and is never used again. `--ignore CODE` leaves a check out; `-o json` is "
        "for programs, and its fields are only ever added to."
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
    yield "## What it was seen to find"
    yield ""
    yield (
        f"`{TABLE.parent}/test_doctor.py` puts each of these faults into a healthy installation on a real API server; "
        "the codes are found, and no others. On the healthy one nothing is found."
    )
    yield ""
    yield "| fault | found |"
    yield "|---|---|"
    for case in yaml.safe_load((ROOT / TABLE).read_text(encoding="utf-8")):
        found = ", ".join(f"[{code}](#{code.lower()})" for code in case["finds"])
        yield f"| {case['fault']} | {found} |"
    yield from _silences()


_SILENT = {
    "The webhook's caBundle is wrong, or its TLS Secret was deleted": "nothing, once the core's leader has put it "
    "right, which it does by itself within seconds",
    "A provider's registration was edited": "nothing: the provider writes it anew when it starts, and what it says of "
    "itself each minute",
    "A quota of a team, or the Secret with a model's token, is not enough or not there": "nothing: the status of the "
    "deployment names it, which its owner can read without rights on the installation",
}
"""Faults about which doctor is silent, and why."""


def _silences() -> Iterator[str]:
    yield ""
    yield "## What it is silent about"
    yield ""
    yield "| fault | what it says, and why |"
    yield "|---|---|"
    for fault, why in _SILENT.items():
        yield f"| {fault} | {why} |"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(write(generated()))
