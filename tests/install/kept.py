"""The release before this one: its charts, and an environment with its distributions, built out of the history once.

A commit is built into the cache and kept there; what its lock names comes from the package index, as for this one.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.install.helm import CHARTS, Helm
from tools.archives import unpack
from tools.images.site import uv

from airunway_testing.controlplane.cache import cache_root, is_program, locked
from airunway_testing.sandbox.samples import Sample

__all__ = ["COMMIT", "TAG", "NotKept", "Release", "archived", "release_before"]

COMMIT = "49da52f4699dcd5b2f95ee350362ea7c90e2e206"
"""The newest commit whose transformers are released. A release moves this on to its own."""

TAG = "kept"
"""The tag of images by which a `Node` knows pods of the release before."""


class NotKept(Exception):
    """The release before cannot be had here; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """`python` has the distributions; `charts` is a folder of packages, `sources` the commit's files."""

    python: Path
    charts: Path
    sources: Path

    def chart(self, name: str) -> str:
        """The package of a chart."""
        (package,) = self.charts.glob(f"{name}-[0-9]*.tgz")
        return str(package)

    def samples(self, provider: str) -> list[Sample]:
        """Those of a provider's samples that run."""
        folder = self.sources / f"providers/{provider}/src/airunway_{provider}/samples"
        entries = tomllib.loads((folder / "index.toml").read_text(encoding="utf-8"))["sample"]
        found = [Sample(path=folder / entry.pop("file"), **entry) for entry in entries]
        return [sample for sample in found if sample.phase == "Running" and not sample.refused]


def release_before(helm: Helm) -> Release:
    """The release before, built if it is not in the cache. Raises NotKept, CalledProcessError."""
    folder = cache_root(os.environ) / "releases" / f"{COMMIT[:12]}-{sys.implementation.cache_tag}"
    made = Release(python=folder / "sources/.venv/bin/python", charts=folder / "charts", sources=folder / "sources")
    if _is_whole(made):
        return made
    sources = archived(CHARTS.parent)
    with locked(folder, report=lambda _: None):
        if not _is_whole(made):
            shutil.rmtree(made.charts, ignore_errors=True)
            shutil.rmtree(made.sources, ignore_errors=True)
            with tarfile.open(fileobj=io.BytesIO(sources)) as archive:
                unpack(archive, made.sources)
            uv(
                *("sync", "--quiet", "--frozen", "--no-dev", "--all-packages", "--no-editable"),
                *("--python", sys.executable),
                cwd=made.sources,
            )
            _package(helm, made.sources / "charts", made.charts)
    return made


def _is_whole(made: Release) -> bool:
    return is_program(made.python) and made.charts.is_dir()


def is_shallow() -> bool:
    """Whether this checkout was cloned without its history."""
    command = ["git", "rev-parse", "--is-shallow-repository"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() == "true"


def archived(checkout: Path) -> bytes:
    """The commit's files as a tar archive. Raises NotKept."""
    done = subprocess.run(["git", "archive", COMMIT], cwd=checkout, capture_output=True, check=False)
    if done.returncode:
        raise NotKept(
            f"the release before is not in the history of this checkout (git fetch --unshallow): {done.stderr.decode()}"
        )
    return done.stdout


def _package(helm: Helm, sources: Path, target: Path) -> None:
    """Every chart but the umbrella as a package; `target` appears once all of them are there."""
    partial = target.with_name("packaging")
    shutil.rmtree(partial, ignore_errors=True)
    for chart in sorted(path.parent for path in sources.glob("*/values.yaml")):
        if chart.name != "airunway-stack":
            if "dependencies" in yaml.load((chart / "Chart.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
                helm("dependency", "build", chart)
            helm("package", chart, "-d", partial)
    partial.rename(target)
