"""Everything of a release in one folder.

python -m tools.release VERSION [--registry HOST/PATH] [--output DIR] [--without-images]

    python/       wheels and sdists of all distributions; core and providers carry their charts
    charts/       packaged charts, whose images are in the registry that was given
    images/       one OCI archive for each image (skopeo copy oci-archive:FILE docker://…), and their digests
    sboms/        bills of materials of the images (CycloneDX)
    install.yaml  CRDs and core for kubectl apply --server-side; crds.yaml: the CRDs alone
    CHANGELOG.md  what changed; checksums.txt: sha256 of all the rest

The same commit makes the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import yaml
from tools.charts.package import UNRELEASED, package_charts, render
from tools.generated import ROOT
from tools.images import build
from tools.wheels import build_wheels, source_time

from airunway.install.parts import CORE, DEFINITIONS, NAMESPACE

__all__ = ["ReleaseError", "release"]


class ReleaseError(Exception):
    """There can be no release; one sentence says why, and what to do."""


def release(version: str, target: Path, *, registry: str, images: build.Builder | None) -> None:
    """Write a release into the folder `target`, which must not be there; without `images` there are none in it.

    Raises ReleaseError, CalledProcessError.
    """
    _check(version, target)
    time = source_time()
    target.mkdir(parents=True)
    build_wheels(target / "python", registry=registry, time=time, kinds=("wheel", "sdist"))
    _manifests(target, package_charts(target / "charts", registry=registry, time=time))
    if images is not None:
        _images(images, target, time=time)
    changes = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", version, "--date", _date(time)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (target / "CHANGELOG.md").write_text(changes, encoding="utf-8")
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(target)}\n"
        for path in sorted(target.rglob("*"))
        if path.is_file()
    ]
    (target / "checksums.txt").write_text("".join(sums), encoding="utf-8")


def _check(version: str, target: Path) -> None:
    if target.exists():
        raise ReleaseError(f"{target} is there already: remove it, or name another folder with --output")
    patterns = ("core", "testing", "providers/*", "providers/*/simulator")
    projects = sorted(path for pattern in patterns for path in ROOT.glob(f"{pattern}/pyproject.toml"))
    for path in projects:
        found = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"]
        if found != version:
            raise ReleaseError(
                f"{path.relative_to(ROOT)} has version {found}, not {version}: all distributions, charts and images of "
                "a release have one version; change it there, then `uv lock` and `make generate`"
            )


def _manifests(target: Path, charts: dict[str, Path]) -> None:
    """What those apply who have no helm: CRDs and core."""
    namespace = yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    crds, core = (render(charts[part], name=part, namespace=NAMESPACE) for part in (DEFINITIONS, CORE))
    (target / "crds.yaml").write_text(crds, encoding="utf-8")
    (target / "install.yaml").write_text(f"---\n{namespace}{crds}{core}", encoding="utf-8")


def _images(made: build.Builder, target: Path, *, time: int) -> None:
    """Archives, digests and bills; what was not built yet is."""
    folder, bills = target / "images", target / "sboms"
    folder.mkdir()
    bills.mkdir()
    digests = []
    for name, image in made.all().items():
        with tempfile.TemporaryDirectory() as temporary:
            layout = Path(temporary) / name
            subprocess.run(["buildah", "push", "--quiet", image, f"oci:{layout}:{name}"], check=True)
            digest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
            digests.append(f"airunway/{name} {digest}\n")
            _archive(layout, folder / f"{name}.oci.tar", time=time)
        shutil.copy(made.bill_of(name), bills)
    (folder / "digests.txt").write_text("".join(digests), encoding="utf-8")


def _archive(layout: Path, target: Path, *, time: int) -> None:
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(layout.rglob("*")):
            info = archive.gettarinfo(path, arcname=str(path.relative_to(layout)))
            info.mtime, info.uid, info.gid, info.uname, info.gname = time, 0, 0, "", ""
            if path.is_file():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)


def _date(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--registry", default=UNRELEASED, help="where the images will be, e.g. registry.internal/team")
    parser.add_argument("--output", type=Path, default=None, help="folder (default: dist/release-VERSION)")
    parser.add_argument("--without-images", action="store_true", help="where images cannot be built")
    arguments = parser.parse_args()
    target = arguments.output or ROOT / "dist" / f"release-{arguments.version}"
    lacking = "" if arguments.without_images else build.missing()
    if lacking:
        sys.stderr.write(f"images cannot be built here: {lacking}; --without-images leaves them out\n")
        return 1
    try:
        with nullcontext() if arguments.without_images else build.builder(registry=arguments.registry) as images:
            release(arguments.version, target, registry=arguments.registry, images=images)
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error}\n{error.stderr or ''}\n")
        return 1
    sys.stdout.write((target / "checksums.txt").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
