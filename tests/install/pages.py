"""Following docs/install: every command in its order, on a cluster, with the pods run for real."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.console import Shell, steps
from tests.install.helm import CHARTS, Helm
from tests.install.images import Images
from tests.install.installation import CHARTS_OF, RESTRICTED, Installation, account, simulated
from tests.install.node import Node, Start
from tests.support.audit import AuditReader

from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.kubetools import kubectl_path

__all__ = ["BLOCK", "ORDER", "PAGES", "follow"]

PAGES = CHARTS.parent / "docs" / "install"
ORDER = ["README.md", "air-gapped.md", "openshift.md", "upgrade.md", "high-availability.md", "uninstall.md"]

BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>console|yaml)\n(?P<text>.*?)```", re.DOTALL)

# The sandbox has no Services and no network of its own for pods.
WRAPPER = """#!/bin/bash
case "$1" in
  install|upgrade) exec {helm} "$@" -f {values}/"$2".yaml ;;
  *) exec {helm} "$@" ;;
esac
"""


@contextmanager
def newcomer(helm: Helm, folder: Path, images: Images | None) -> Iterator[tuple[Installation, dict[str, str]]]:
    """A cluster with an upstream and nothing of ours, and what its administrator has: kubectl, helm, the charts."""
    programs = folder / "bin"
    programs.mkdir()
    with reserved_ports(3 * len(CHARTS_OF)) as ports, ControlPlane("cluster", audit="Metadata", roomy=True) as plane:
        made = Installation(plane=plane, helm=helm, ports=ports)
        made.kubectl("apply", "-f", "-", stdin=RESTRICTED)
        for process, chart in CHARTS_OF.items():
            given = made.sandbox(process) | ({"image": images.values(process)} if images else {})
            (folder / f"{chart}.yaml").write_text(yaml.safe_dump(given))
        (folder / "airunway-crds.yaml").write_text("{}\n")
        (programs / "helm").write_text(WRAPPER.format(helm=helm.program, values=folder))
        (programs / "helm").chmod(stat.S_IRWXU)
        (programs / "kubectl").symlink_to(kubectl_path())
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        yield made, {**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig), "CHARTS": str(helm.folder)}


def follow(helm: Helm, folder: Path, start: Start, images: Images | None = None) -> None:
    """Type what the pages say, in their order. Until the last, which uninstalls, no account lacks a right."""
    commands = 0
    with newcomer(helm, folder, images) as (made, environment), Node(made, folder, start) as node:
        audit = AuditReader(made.plane.audit_log or Path())
        with simulated(made, folder, "kaito"), Shell(folder, environment) as shell:
            for name in ORDER:
                if name == ORDER[-1]:
                    assert _refused(audit) == []
                for block in BLOCK.finditer((PAGES / name).read_text(encoding="utf-8")):
                    if block["file"]:
                        (folder / block["file"]).write_text(block["text"])
                    elif block["kind"] == "console":
                        for command, shown in steps(block["text"]):
                            shell.show(command, shown)
                            commands += 1
        assert made.left() == []
        for part, seconds in node.took.items():
            print(f"{part}: ready {seconds:.1f} s after its start")  # noqa: T201
            assert "Traceback" not in node.log(part).read_text()
    assert commands >= 30


def _refused(audit: AuditReader) -> list[str]:
    """Requests of the accounts of the installation that RBAC or a guard refused."""
    accounts, seen = {account(process) for process in CHARTS_OF}, audit.read(watches=True)
    assert {request.user for request in seen} >= accounts
    refused = [request for request in seen if request.user in accounts and request.code == 403]
    return [f"{r.user} {r.verb} {r.resource} {r.namespace}/{r.name}" for r in refused]
