"""docs/install does what it says: every command in its order, on a cluster, with the pods run for real."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from tests.console import Shell, steps
from tests.install.helm import CHARTS, NAMESPACE, Helm, Major
from tests.install.images import Images
from tests.install.installation import CHARTS_OF, RESTRICTED, Installation
from tests.install.node import Node, Start, containers, processes

from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.kubetools import kubectl_path

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


def test_every_page_is_followed() -> None:
    assert {path.name for path in PAGES.glob("*.md")} == {*ORDER, "gitops.md"}


@contextmanager
def newcomer(helm: Helm, folder: Path, images: Images | None) -> Iterator[tuple[Installation, dict[str, str]]]:
    """A cluster with nothing, and what its administrator has: kubectl, helm, the charts."""
    programs = folder / "bin"
    programs.mkdir()
    with reserved_ports(3 * len(CHARTS_OF)) as ports, ControlPlane("cluster") as plane:
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
    """Type what the pages say, in their order."""
    commands = 0
    with newcomer(helm, folder, images) as (made, environment), Node(made, folder, start) as node:
        with Shell(folder, environment) as shell:
            for name in ORDER:
                for block in BLOCK.finditer((PAGES / name).read_text(encoding="utf-8")):
                    if block["file"]:
                        (folder / block["file"]).write_text(block["text"])
                    elif block["kind"] == "console":
                        for command, shown in steps(block["text"]):
                            shell.show(command, shown)
                            commands += 1
        for part in node.started:
            assert "Traceback" not in node.log(part).read_text()
    assert commands >= 30


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_commands_with_processes(helms: dict[Major, Helm], tmp_path: Path) -> None:
    follow(helms[3], tmp_path, processes)


@pytest.mark.cluster
@pytest.mark.image
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_with_the_images(helms: dict[Major, Helm], images: Images, tmp_path: Path) -> None:
    """What the pods run are our images, as their specs say: read-only, no capability, their own account."""
    follow(helms[4], tmp_path, containers(images.configuration), images)


@pytest.mark.chart
def test_the_manifests_of_gitops_name_charts_and_values_that_exist(helms: dict[Major, Helm]) -> None:
    page = (PAGES / "gitops.md").read_text(encoding="utf-8")
    objects = [obj for block in BLOCK.finditer(page) for obj in yaml.safe_load_all(block["text"])]
    found: dict[str, list[tuple[str, object]]] = {"Application": [], "HelmRelease": []}
    for obj in objects:
        if obj["kind"] == "Application":
            source = obj["spec"]["source"]
            found["Application"].append((source["chart"], source["helm"]["valuesObject"]))
            assert obj["spec"]["destination"]["namespace"] == NAMESPACE
            assert "ServerSideApply=true" in obj["spec"]["syncPolicy"]["syncOptions"]
        elif obj["kind"] == "HelmRelease":
            found["HelmRelease"].append((obj["spec"]["chart"]["spec"]["chart"], obj["spec"].get("values", {})))
            assert obj["spec"]["targetNamespace"] == NAMESPACE
    for tool, charts in found.items():
        assert [chart for chart, _ in charts] == ["airunway-crds", "airunway", "airunway-provider-vllm"], tool
        for chart, values in charts:
            path = helms[4].folder / "gitops-values.yaml"
            path.write_text(yaml.safe_dump(values))
            assert helms[4].render(chart, "-f", str(path))
