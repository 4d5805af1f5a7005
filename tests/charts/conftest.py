"""Both majors of helm, and the charts with their dependencies, as a release packages them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
import yaml

from airunway.resource import Resource
from airunway_testing.kubetools import KubeToolMissingError, helm_path

CHARTS = Path(__file__).resolve().parents[2] / "charts"
APPLICATIONS = sorted(path.parent.name for path in CHARTS.glob("*/values.yaml"))
CASES = [(path.parents[1].name, path.name) for path in sorted(CHARTS.glob("*/ci/*-values.yaml"))]
NAMESPACE = "airunway-system"
MONITORING = "monitoring.coreos.com/v1"

Major: TypeAlias = Literal[3, 4]


@dataclass(frozen=True, kw_only=True)
class Helm:
    """One helm; `folder` has the charts, `kubeconfig` is the administrator's, where there is a cluster."""

    program: Path
    folder: Path
    major: Major
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.program, *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, **({"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0 or not check, f"helm {arguments}: {done.stderr}{done.stdout}"
        return done

    def render(self, chart: str, *options: str | Path) -> list[Resource]:
        """The objects that a release called `runway` would have."""
        arguments = ["template", "runway", chart, "-n", NAMESPACE, "--api-versions", MONITORING, *options]
        return [obj for obj in yaml.safe_load_all(self(*arguments).stdout) if obj]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of charts/ in which every chart has its dependencies."""
    folder = tmp_path_factory.mktemp("charts")
    shutil.copytree(CHARTS, folder, dirs_exist_ok=True)
    helm = helm_path(4)
    for chart in APPLICATIONS:
        if "dependencies" in yaml.safe_load((folder / chart / "Chart.yaml").read_text()):
            subprocess.run([helm, "dependency", "build", chart], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def helms(built: Path) -> dict[Major, Helm]:
    try:
        return {major: Helm(program=helm_path(major), folder=built, major=major) for major in (3, 4)}
    except KubeToolMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(params=[3, 4], ids=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest, helms: dict[Major, Helm]) -> Helm:
    return helms[request.param]


@pytest.fixture(params=CASES, ids=["/".join(case).removesuffix("-values.yaml") for case in CASES])
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A chart, and the path of values to try it with."""
    chart, values = request.param
    return chart, f"{chart}/ci/{values}"


@pytest.fixture(scope="session")
def rendered(helms: dict[Major, Helm]) -> Callable[[Major, str, str], list[Resource]]:
    """What a major of helm makes of a chart with values, computed once."""
    known: dict[tuple[Major, str, str], list[Resource]] = {}

    def render(major: Major, chart: str, values: str) -> list[Resource]:
        key = (major, chart, values)
        if key not in known:
            known[key] = helms[major].render(chart, "-f", values)
        return known[key]

    return render
