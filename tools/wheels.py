"""Build the wheels as a release has them: python -m tools.wheels [--registry HOST/PATH] [--output DIR]

Core and providers bundle their charts (`airunway.install.bundled_charts`), with the images in the given registry, and
the manifests that these render to. Both are put into a copy of the sources, not into the repository.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.charts.package import UNRELEASED, package_charts, render
from tools.charts.scaffold import SCAFFOLD
from tools.generated import ROOT
from tools.images.site import uv

from airunway.api.names import DEFAULT_NAMESPACE
from airunway.install.bundled_charts import CATALOGUE, CORE, DEFINITIONS, provider_part

__all__ = ["build_wheels", "source_time"]

_MEMBERS = ("core", "catalogue", "downloader", "testing", "ui", "providers")
_CORE = Path("core/src/airunway")


def build_wheels(
    target: Path,
    *,
    registry: str,
    time: int,
    kinds: Sequence[str] = ("wheel",),
    digests: Mapping[str, str] | None = None,
) -> None:
    """The distributions as `kinds` (wheel, sdist) in the folder `target`; the same files for the same sources.

    `time` is that of what is in them, `digests` are those of the images, by repository. The wheels inside images are
    built without: an image cannot contain its own digest. Raises CalledProcessError.
    """
    os.environ["SOURCE_DATE_EPOCH"] = str(time)
    with tempfile.TemporaryDirectory() as temporary:
        sources, packages = Path(temporary) / "sources", Path(temporary) / "charts"
        unwanted = shutil.ignore_patterns("__pycache__", ".venv", "dist", "*.egg-info")
        for member in _MEMBERS:
            shutil.copytree(ROOT / member, sources / member, ignore=unwanted)
        shutil.copy(ROOT / "pyproject.toml", sources)
        charts = package_charts(packages, registry=registry, time=time, digests=digests)
        for part, package in _packages(sources):
            folder = sources / package / "charts"
            folder.mkdir(exist_ok=True)
            shutil.copy(charts[part], folder / f"{part}.tgz")
            rendered = render(charts[part], name=part, namespace=DEFAULT_NAMESPACE)
            (folder / f"{part}.yaml").write_text(rendered, encoding="utf-8")
        skeleton = sources / SCAFFOLD / "Chart.yaml.template"
        text = skeleton.read_text(encoding="utf-8").replace(f"//{UNRELEASED}/", f"//{registry}/")
        skeleton.write_text(text, encoding="utf-8")
        (sources / _CORE / "charts" / "registry").write_text(f"{registry}\n", encoding="utf-8")
        uv("build", "--quiet", "--all-packages", *(f"--{kind}" for kind in kinds), "--out-dir", target, cwd=sources)
    (target / ".gitignore").unlink(missing_ok=True)


def source_time() -> int:
    """The time of everything in a wheel or an image: SOURCE_DATE_EPOCH, else that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout or 0)


def _packages(sources: Path) -> Iterator[tuple[str, Path]]:
    """The package that carries each part, which is where its entry point leads."""
    yield DEFINITIONS, _CORE
    yield CORE, _CORE
    yield CATALOGUE, Path("catalogue/src/airunway_catalogue")
    for path in sorted(sources.glob("providers/*/pyproject.toml")):
        points = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["entry-points"]["airunway.providers"]
        for provider, point in points.items():
            package = point.partition(":")[0].partition(".")[0]
            yield provider_part(provider), path.parent.relative_to(sources) / "src" / package


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--registry", default=UNRELEASED, help="where the images will be, e.g. registry.internal/team")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder (default: dist)")
    arguments = parser.parse_args()
    build_wheels(arguments.output.absolute(), registry=arguments.registry, time=source_time())
    return 0


if __name__ == "__main__":
    sys.exit(main())
