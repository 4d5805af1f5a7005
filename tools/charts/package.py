"""The charts as a release packages them, and what the packages render to."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from tools.generated import ROOT

from airunway_testing.kubetools import helm_path

__all__ = ["DIGEST", "DOWNLOADER_DIGEST", "UNRELEASED", "package_charts", "render"]

DIGEST = "airunway.ai/image-digest"
"""The annotation of a chart with the digest of its image, which the chart's pods then name."""

DOWNLOADER_DIGEST = "airunway.ai/downloader-digest"
"""The annotation of the core's chart with the digest of the image of its download Jobs."""

UNRELEASED = "registry.example"
"""The registry of a checkout's charts."""


def package_charts(
    target: Path, *, registry: str, time: int, digests: Mapping[str, str] | None = None
) -> dict[str, Path]:
    """Write every chart's package into the folder `target`, the library for others' charts among them; returns them by
    the names of the charts.

    Images are in `registry` and have `digests`, by repository; `time` is that of the files. Raises CalledProcessError.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(ROOT / "charts", folder, dirs_exist_ok=True)
        for path in folder.glob("*/values.yaml"):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(f"registry: {UNRELEASED}", f"registry: {registry}"), encoding="utf-8")
        charts = sorted(path.parent.name for path in folder.glob("*/Chart.yaml"))
        for chart in charts:
            _name_digest(folder / chart, digests or {})
        for chart in charts:
            _bring_dependencies(folder, chart)
        for path in folder.rglob("*"):
            os.utime(path, (time, time))
        found = {chart: Path(_helm("package", folder / chart, "-d", target).split()[-1]) for chart in charts}
    for package in found.values():
        _sorted(package)
    return found


def render(package: Path, *, name: str, namespace: str, values: Sequence[str] = ()) -> str:
    """What a chart renders to with these values (``key=text``) and no others. Raises CalledProcessError."""
    return _helm("template", name, package, "--namespace", namespace, *(f"--set-string={value}" for value in values))


def _name_digest(chart: Path, digests: Mapping[str, str]) -> None:
    path = chart / "values.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    images = {DIGEST: values.get("image", {}), DOWNLOADER_DIGEST: values.get("modelCache", {}).get("image", {})}
    found = {name: digests.get(image.get("repository", "")) for name, image in images.items()}
    if known := {name: digest for name, digest in found.items() if digest}:
        path = chart / "Chart.yaml"
        metadata = yaml.safe_load(path.read_text(encoding="utf-8"))
        metadata["annotations"] |= known
        path.write_text(yaml.safe_dump(metadata, sort_keys=False, width=2**16), encoding="utf-8")


def _bring_dependencies(folder: Path, chart: str) -> None:
    """Put the charts beside this one that it depends on into it; `helm dependency build` notes the time of day."""
    metadata = yaml.safe_load((folder / chart / "Chart.yaml").read_text(encoding="utf-8"))
    for dependency in metadata.get("dependencies", []):
        inside = folder / chart / "charts" / dependency["name"]
        if not inside.exists():
            _bring_dependencies(folder, dependency["name"])
            shutil.copytree(folder / dependency["name"], inside)


def _sorted(package: Path) -> None:
    """Write a package of helm anew with its files by name: helm puts several dependencies into any order."""
    with tarfile.open(package) as archive:
        entries = [(member, archive.extractfile(member)) for member in archive if member.isfile()]
        contents = sorted(((member, file.read()) for member, file in entries if file), key=lambda each: each[0].name)
    with gzip.GzipFile(package, "wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for member, content in contents:
            archive.addfile(member, io.BytesIO(content))


def _helm(*arguments: str | Path) -> str:
    return subprocess.run([helm_path(4), *arguments], check=True, capture_output=True, text=True).stdout
