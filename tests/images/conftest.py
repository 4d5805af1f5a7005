"""The images, built once for all tests of the run; where that cannot be done the tests skip and say why."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.images.build import Builder, builder, missing, packages_by_image

PREFIX = "localhost/airunway-test"
NAMES = list(packages_by_image())

# podman's defaults ask for more than virtual machines and nested containers may give.
_PODMAN = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@dataclass(frozen=True, kw_only=True)
class Images:
    """The built images by name, and how each is run."""

    builder: Builder
    base: str
    names: dict[str, str]
    configuration: Path

    def podman(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """podman with a configuration that works in virtual machines too."""
        done = subprocess.run(
            ["podman", *map(str, arguments)],
            env={**os.environ, "CONTAINERS_CONF": str(self.configuration)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0 or not check, f"podman {arguments}: {done.stderr}{done.stdout}"
        return done

    def run(self, name: str, *arguments: str, options: Sequence[str] = ()) -> str:
        """What the image's program says, run as a restricted pod would be: read-only, without any capability."""
        restricted = ["--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp"]
        return self.podman("run", *restricted, *options, self.names[name], *arguments).stdout


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    lacking = missing() or _cannot_run()
    if lacking:
        pytest.skip(f"images cannot be built and run here: {lacking}")
    folder = tmp_path_factory.mktemp("podman")
    configuration = folder / "containers.conf"
    configuration.write_text(_PODMAN)
    with builder(prefix=PREFIX, debs=folder / "debs") as made:
        base = made.base()
        names = {name: made.image(name, base) for name in NAMES}
        yield Images(builder=made, base=base, names=names, configuration=configuration)
        subprocess.run(["buildah", "rmi", "--force", *names.values(), base], check=False, capture_output=True)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def mounted(image: str) -> Iterator[Path]:
    """The files of an image."""
    container = _buildah("from", "--pull-never", image)
    try:
        yield Path(_buildah("mount", container))
    finally:
        _buildah("rm", container)


def identity(image: str) -> str:
    """The id of an image, which follows from its contents and configuration."""
    return _buildah("images", "--no-trunc", "--format", "{{.ID}}", image)


def _buildah(*arguments: str) -> str:
    return subprocess.run(["buildah", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def _cannot_run() -> str:
    if os.geteuid() != 0:
        return "only root may mount images"
    return next((f"{each} is not on PATH" for each in ("podman", "runc") if shutil.which(each) is None), "")
