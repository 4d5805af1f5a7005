"""Images that were built here, and how they are run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.images.build import Builder, missing, packages_by_image

__all__ = ["NAMES", "PODMAN", "REGISTRY", "Images", "identity", "mounted", "unavailable"]

REGISTRY = "localhost/airunway-test"
NAMES = list(packages_by_image())

# podman's defaults ask for more than virtual machines and nested containers may give.
PODMAN = """
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

    def values(self, process: str) -> dict[str, str]:
        """`image` of a process's chart, so that its pods name the image that was built here."""
        registry, _, rest = self.names["controller" if process == "core" else f"provider-{process}"].partition("/")
        repository, _, tag = rest.partition(":")
        return {"registry": registry, "repository": repository, "tag": tag}

    def run(self, name: str, *arguments: str, options: Sequence[str] = ()) -> str:
        """What the image's program says, run as a restricted pod would be: read-only, without any capability."""
        restricted = ["--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp"]
        return self.podman("run", *restricted, *options, self.names[name], *arguments).stdout


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


def unavailable() -> str:
    """Why images cannot be built and run here, or the empty string."""
    lacking = missing()
    if lacking:
        return lacking
    if os.geteuid() != 0:
        return "only root may mount images"
    absent = next((each for each in ("podman", "runc") if shutil.which(each) is None), "")
    if absent:
        return f"{absent} is not on PATH"
    try:
        container = _buildah("from", "scratch")
        _buildah("mount", container)
        _buildah("rm", container)
    except subprocess.CalledProcessError as error:  # in a container that may not
        return f"buildah cannot work: {error.stderr.strip()}"
    return ""
