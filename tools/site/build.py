"""The documentation as a web site.

python -m tools.site [VERSION] [--output DIR]

Every page of docs/, and the README files that these link to, as pages of DIR/VERSION (default: dist/site/main), with a
search that needs no server and nothing of another host. DIR/versions.js lists the versions that are there, which every
page of every version offers; DIR/index.html leads to the newest. Any warning is an error: a link to a page or heading
that is not there, and a page that no list of contents names.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.generated import ROOT
from tools.home import home

__all__ = ["SiteError", "build_site", "main", "sources"]

_HERE = Path(__file__).parent
_PAGES = (
    "*.md",
    "docs/**/*.md",
    "charts/**/README.md",
    "providers/**/README.md",
    "catalogue/README.md",
    "downloader/README.md",
    "images/README.md",
    "benchmarks/README.md",
)
_FILES = ("LICENSE", "docs/**/*.py", "docs/**/*.yaml", "docs/**/*.svg", "docs/images/*.png", "dashboards/*.json")
_MAIN = "main"

# The sections of the sidebar. What a pattern has found already is not in a later one.
_CONTENTS = {
    "Install": ("docs/install/README", "docs/install/*", "docs/upgrades", "docs/releases/README", "docs/releases/*"),
    "Use": ("docs/status", "docs/catalogue", "docs/selection", "docs/admission", "docs/e2e", "providers/*/README"),
    "Providers": (
        "docs/providers/tutorial",
        "docs/providers/contract",
        "docs/providers/sdk",
        "docs/providers/*",
        "docs/providers/*/*",
    ),
    "Reference": ("docs/reference/README", "docs/reference/*", "charts/README", "charts/*/README"),
    "How it is built": ("docs/architecture", "docs/decisions/README", "docs/decisions/*", "docs/*"),
    "Project": (
        "*",
        "catalogue/README",
        "downloader/README",
        "images/README",
        "benchmarks/README",
        "providers/*/*/README",
    ),
}


class SiteError(Exception):
    """The site cannot be built: what Sphinx says."""


def sources() -> list[Path]:
    """Every page of the site, as paths from the root."""
    found = {path for pattern in _PAGES for path in ROOT.glob(pattern)}
    return sorted(path.relative_to(ROOT) for path in found)


def build_site(target: Path, *, version: str = _MAIN) -> Path:
    """Write the pages into the folder `version` of `target`, anew; returns that folder. Raises SiteError."""
    place = target / version
    with tempfile.TemporaryDirectory() as temporary:
        staged, made = Path(temporary) / "pages", Path(temporary) / "made"
        for path in [*sources(), *_files()]:
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, staged / path)
        first = staged / "README.md"
        text = first.read_text(encoding="utf-8")
        # What draws such a diagram is a large program from another host.
        text = text.replace("```mermaid", "```text")
        first.write_text(text + _contents(), encoding="utf-8")
        options = {"release": version, "version": version, "html_context.home": home()}
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", str(_HERE)]
        command += [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
        done = subprocess.run([*command, str(staged), str(made)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SiteError(done.stderr.replace(f"{staged}/", ""))
        for rest in (".doctrees", ".buildinfo"):
            path = made / rest
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        target.mkdir(parents=True, exist_ok=True)
        if place.exists():
            shutil.rmtree(place)
        shutil.copytree(made, place)
    (place / "index.html").write_text(_redirect("README.html"), encoding="utf-8")
    versions = _versions(target)
    text = f"window.AIRUNWAY_VERSIONS = {json.dumps(versions)};\n"
    (target / "versions.js").write_text(text, encoding="utf-8")
    (target / "index.html").write_text(_redirect(f"{versions[0]}/README.html"), encoding="utf-8")
    return place


def _files() -> Iterator[Path]:
    """What pages link to besides pages."""
    for pattern in _FILES:
        yield from (path.relative_to(ROOT) for path in ROOT.glob(pattern))


def _contents() -> str:
    """The lists of contents, which the first page has."""
    left = [path.with_suffix("") for path in sources() if path != Path("README.md")]
    parts = []
    for title, patterns in _CONTENTS.items():
        entries = []
        for pattern in patterns:
            found = [page for page in left if page.match(pattern) and len(page.parts) == pattern.count("/") + 1]
            entries += found
            left = [page for page in left if page not in found]
        lines = "\n".join(map(str, entries))
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n")
    return "".join(parts)


def _versions(target: Path) -> list[str]:
    """The versions that are there, the newest release first and what is not released yet last."""
    names = [path.parent.name for path in target.glob("*/searchindex.js")]
    numbers = {name: [int(part) for part in re.findall(r"\d+", name)] for name in names}
    return sorted(names, key=lambda name: (name != _MAIN, numbers[name]), reverse=True)


def _redirect(address: str) -> str:
    return f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">\n'


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", default=_MAIN)
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "site")
    arguments = parser.parse_args()
    try:
        place = build_site(arguments.output.absolute(), version=arguments.version)
    except SiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{place / 'index.html'}\n")
    return 0
