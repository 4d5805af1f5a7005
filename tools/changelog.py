"""What changed in a version: python -m tools.changelog VERSION [--date 2026-01-31]

A section of CHANGELOG.md that is written by hand stands as it is; else it is made of the fragments of changelog.d.

towncrier takes several fragments of one issue and kind only if numbers tell them apart (12.added.10.md), and refuses a
second one that has a word there (18.fixed.guards.md). So it is given a copy in which they are numbered.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from tools.generated import ROOT

__all__ = ["ChangelogError", "changelog"]

FRAGMENTS = ROOT / "changelog.d"
WRITTEN = ROOT / "CHANGELOG.md"


class ChangelogError(Exception):
    """A fragment has a name that says nothing; one sentence says which."""


def changelog(version: str, date: str, *, fragments: Path = FRAGMENTS) -> str:
    """The section of a version. Raises ChangelogError, CalledProcessError."""
    if by_hand := _written(version):
        return f"## {version} ({date})\n{by_hand}"
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    kinds = [each["directory"] for each in tools["towncrier"]["type"]]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / FRAGMENTS.name).mkdir()
        for number, path in enumerate(sorted(fragments.glob("*.md")), start=1):
            issue, kind = path.name.split(".")[:2]
            if kind not in kinds:
                raise ChangelogError(f"{path.name} is of no kind that changes have: ISSUE.{'|'.join(kinds)}.NAME.md")
            shutil.copy(path, folder / FRAGMENTS.name / f"{issue}.{kind}.{number}.md")
        command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", version, "--date", date]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        return done.stdout


def _written(version: str) -> str:
    """The section of a version in CHANGELOG.md, without its heading; empty if it has none."""
    _, found, rest = f"\n{WRITTEN.read_text(encoding='utf-8')}".partition(f"\n## {version}\n")
    return f"{rest.partition(chr(10) + '## ')[0].rstrip()}\n" if found else ""


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat())
    arguments = parser.parse_args()
    try:
        sys.stdout.write(changelog(arguments.version, arguments.date))
    except ChangelogError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
