"""`make e2e` on an installation by the charts, webhook and guards on: it finds it there, and no right is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.install.installation import Installation, account

from airunway_testing.audit import AuditReader, Request

__all__ = ["every_step_passes"]

_PATIENCE = "150"


def every_step_passes(made: Installation, audit: AuditReader, folder: Path) -> None:
    """Run every step of every provider of the installation: all pass, and no account lacks a right.

    `audit` has what is asked from the start of its programs or from when it was last read. Raises AssertionError.
    """
    providers = [process for process in made.charts if process != "core"]
    command = [sys.executable, "-m", "airunway_testing.e2e", "--kubeconfig", str(made.plane.kubeconfig)]
    command += ["--providers", ",".join(providers), "--patience", _PATIENCE, "--reports", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr + page
    assert "| AI Runway | runs in the cluster |" in page
    suites = {str(suite.get("name")): suite for suite in ElementTree.parse(folder / "junit.xml").getroot()}
    assert sorted(suites) == sorted(providers)
    for suite in suites.values():
        steps = {str(case.get("name")).partition(": ")[2] for case in suite}
        assert steps >= {"edit", "scale", "lose pods", "break it", "route", "suspend", "delete"}
        skipped = [str(case.get("name")).partition(": ")[2] for case in suite if case.find("skipped") is not None]
        without = ["cache", "route"]  # there is neither a StorageClass nor a Gateway
        assert (suite.get("failures"), skipped) == ("0", without), page
    seen, accounts = audit.read(watches=True), {account(process) for process in made.charts}
    assert {request.user for request in seen} >= accounts
    # Who is not known (401) has no name in the log.
    refused = [
        request
        for request in seen
        if request.code == 401 or (request.code == 403 and request.user in accounts and not _is_late(request))
    ]
    found = [f"{r.code} {r.user} {r.verb} {r.resource} {r.namespace}/{r.name}" for r in refused]
    assert not found, found


def _is_late(request: Request) -> bool:
    """Whether an event came after the last deployment of its namespace went: the guard knows such a namespace no more.
    Repetitions of an event are told up to ten seconds later.
    """
    return request.resource == "events" and request.namespace.startswith("airunway-e2e-")
