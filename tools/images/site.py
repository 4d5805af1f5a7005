"""What goes into one image: our wheels and those of uv.lock, for the image's Python, pruned."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any

import yaml
from tools.generated import ROOT
from tools.images.architectures import Architecture

__all__ = ["PYTHON", "Site", "install", "pruned", "stale_entries", "uv"]

PYTHON = "3.13"
_PRUNED = ROOT / "images" / "pruned.yaml"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A folder with installed distributions, as `sys.path` has it."""

    folder: Path

    def distributions(self) -> list[Distribution]:
        """What is installed, by name."""
        found = [PathDistribution(path) for path in self.folder.glob("*.dist-info")]
        return sorted(found, key=lambda each: str(each.metadata["Name"]).lower())


def uv(*arguments: str | Path, cwd: Path = ROOT) -> str:
    """What uv says. Raises CalledProcessError."""
    program = shutil.which("uv") or ROOT / ".venv" / "bin" / "uv"
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    done = subprocess.run(
        [program, *arguments],
        cwd=cwd,
        env={**environment, "UV_PYTHON_DOWNLOADS": "never"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def install(
    packages: Sequence[str],
    wheels: Path,
    folder: Path,
    *,
    architecture: Architecture,
    below: str = "",
    prune: bool = True,
) -> Site:
    """Install these of our distributions, with what they need at the versions and hashes of uv.lock, into `folder`.

    `wheels` has ours. The distribution `below` (and what it needs) is there already. What nothing in an image uses
    (``images/pruned.yaml``) and symbols of extensions are left out, unless `prune` is off.
    Raises CalledProcessError, for a wheel with another hash too.
    """
    chosen = [argument for package in packages for argument in ("--package", package)]
    chosen += ["--prune", below] if below else []
    locked = uv("export", "--frozen", "--no-dev", "--no-emit-workspace", "--format=requirements.txt", "-q", *chosen)
    own = [_pinned(name, wheels) for name in _workspace(packages) if name != below]
    folder.mkdir(parents=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as requirements:
        requirements.write("\n".join([locked, *own]) + "\n")
        requirements.flush()
        uv(
            *("pip", "install", "--quiet", "--target", folder, "--python-version", PYTHON),
            *("--python-platform", architecture.wheels, "--only-binary", ":all:", "--no-deps", "--require-hashes"),
            *("--link-mode", "copy", "--find-links", wheels, "-r", requirements.name),
        )
    if not prune:
        return Site(folder=folder)
    for path in pruned(Site(folder=folder)):
        path.unlink()
    for path in (folder / ".lock", *folder.rglob("direct_url.json"), *folder.rglob("uv_cache.json")):
        path.unlink(missing_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for library in sorted(path for path in folder.rglob("*.so*") if path.is_file()):
        subprocess.run([architecture.strip, "--strip-unneeded", library], check=True)
    return Site(folder=folder)


def pruned(site: Site) -> Iterator[Path]:
    """The files of a site that images go without."""
    for paths in _matches(site).values():
        yield from paths


def stale_entries(site: Site) -> list[str]:
    """Entries of ``images/pruned.yaml`` that match nothing although their wheel is there."""
    return [entry for entry, paths in _matches(site).items() if not paths]


def _matches(site: Site) -> dict[str, list[Path]]:
    rules: dict[str, list[dict[str, str]]] = yaml.safe_load(_PRUNED.read_text(encoding="utf-8"))
    installed = {_normal(str(found.metadata["Name"])) for found in site.distributions()}
    files = [path for path in sorted(site.folder.rglob("*")) if path.is_file()]
    taken: set[Path] = set()
    result: dict[str, list[Path]] = {}
    for wheel, entries in rules.items():
        if wheel != "*" and wheel not in installed:
            continue
        for entry in entries:
            found = [
                path
                for path in files
                if path not in taken and fnmatchcase(str(path.relative_to(site.folder)), entry["path"])
            ]
            taken.update(found)
            result[f"{wheel}: {entry['path']}"] = found
    return result


def _workspace(packages: Sequence[str]) -> list[str]:
    """The distributions of this repository that these need, they themselves included."""
    chosen = [argument for package in packages for argument in ("--package", package)]
    exported = uv("export", "--frozen", "--no-dev", "--no-hashes", "--no-annotate", "--no-header", "-q", *chosen)
    editable = [line.partition("-e ")[2].split(";")[0].strip() for line in exported.splitlines() if line[:3] == "-e "]
    return [_project(ROOT / path) for path in editable]


def _project(folder: Path) -> str:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["name"])


def _pinned(name: str, wheels: Path) -> str:
    (wheel,) = wheels.glob(f"{name.replace('-', '_')}-*.whl")
    version = wheel.name.split("-")[1]
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
