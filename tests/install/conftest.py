"""The charts with their dependencies, as a release packages them, and the images, both built once for all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.install.helm import APPLICATIONS, CHARTS, Helm, Major
from tests.install.images import NAMES, PODMAN, REGISTRY, Images, unavailable
from tests.install.kept import NotKept, Release, is_shallow, release_before
from tools.images.build import BASE, builder

from airunway.resource import Resource
from airunway_testing.kubetools import KubeToolMissingError, helm_path

CASES = [(path.parents[1].name, path.name) for path in sorted(CHARTS.glob("*/ci/*-values.yaml"))]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of charts/ in which every chart has its dependencies."""
    folder = tmp_path_factory.mktemp("charts")
    shutil.copytree(CHARTS, folder, dirs_exist_ok=True)
    helm = helm_path(4)
    for chart in APPLICATIONS:
        if "dependencies" in yaml.load((folder / chart / "Chart.yaml").read_text(), Loader=yaml.CSafeLoader):
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


@pytest.fixture(scope="session")
def before(helms: dict[Major, Helm]) -> Release:
    """The release before this one."""
    try:
        return release_before(helms[4])
    except NotKept as reason:
        # A clone without history has nothing to upgrade from; with it there is no excuse.
        if os.environ.get("CI") and not is_shallow():
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    lacking = unavailable()
    if lacking:
        pytest.skip(f"images cannot be built and run here: {lacking}")
    folder = tmp_path_factory.mktemp("podman")
    configuration = folder / "containers.conf"
    configuration.write_text(PODMAN)
    with builder(registry=REGISTRY, debs=folder / "debs") as made:
        names, base = made.all(), made.tag(BASE)
        yield Images(builder=made, base=base, names=names, configuration=configuration)
        subprocess.run(["buildah", "rmi", "--force", *names.values(), base], check=False, capture_output=True)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
