"""`make e2e` on an installation by the charts, webhook and guards on: it finds it there, and no right is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

from tests.install.helm import NAMESPACE, Helm
from tests.install.images import Images
from tests.install.installation import account, component, installation, simulated
from tests.install.node import Node, Start
from tests.support.audit import AuditReader, Request

from airunway_testing.controlplane.ports import reserved_ports

__all__ = ["live_through"]

_PATIENCE = "150"


def live_through(
    helm: Helm, folder: Path, start: Start, charts: Mapping[str, str], images: Images | None = None
) -> None:
    """Install `charts`, whose pods are started by `start`, and run every step of every provider among them."""
    providers = [process for process in charts if process != "core"]
    values = {process: ["--set=replicas=1"] for process in charts}
    if images:
        for process, given in values.items():
            given += [f"--set=image.{key}={value}" for key, value in images.values(process).items()]
    with ExitStack() as stack:
        ports = stack.enter_context(reserved_ports(3 * len(charts)))
        made = stack.enter_context(installation(helm, ports, values, namespaces=[], charts=charts))
        audit = AuditReader(made.plane.audit_log or Path())
        stack.enter_context(simulated(made, folder, *(name for name in providers if name != "vllm")))
        node = stack.enter_context(Node(made, folder, start))
        made.kubectl("rollout", "status", "deployment", "-n", NAMESPACE, "--timeout=180s")
        for process in charts:
            made.until_ready(process)
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
        seen, accounts = audit.read(watches=True), {account(process) for process in charts}
        assert {request.user for request in seen} >= accounts
        # Who is not known (401) has no name in the log.
        refused = [
            request
            for request in seen
            if request.code == 401 or (request.code == 403 and request.user in accounts and not _is_late(request))
        ]
        told = [f"{r.code} {r.user} {r.verb} {r.resource} {r.namespace}/{r.name}" for r in refused]
        assert not told, told
        for process in charts:
            assert "Traceback" not in node.log(component(process)).read_text(), process


def _is_late(request: Request) -> bool:
    """Whether an event came after the last deployment of its namespace went: the guard knows such a namespace no more.
    Repetitions of an event are told up to ten seconds later.
    """
    return request.resource == "events" and request.namespace.startswith("airunway-e2e-")
