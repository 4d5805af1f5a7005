"""Which versions of Debian's packages the images were last made of: images/base.lock.yaml.

python -m tools.images.lock [--mirror URL] writes it anew. Debian keeps no older versions in its archive, so that a
build from a commit of last month meets newer ones: it says which. A release is not made of packages that the lock does
not name; snapshot.debian.org has those of every day (``--mirror http://snapshot.debian.org/archive/debian/DATE``).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from tools.generated import ROOT
from tools.images.architectures import ARCHITECTURES
from tools.images.base import DESCRIPTION, Package, apt_missing, fetch

__all__ = ["LOCK", "locked_text", "moved"]

LOCK = ROOT / "images" / "base.lock.yaml"
_HEAD = (
    "# Debian's packages in the images, by architecture. Generated: `make images-lock`.\n"
    "# `snapshot` is a date for http://snapshot.debian.org/archive/debian/DATE, which has these versions.\n"
)


def moved(packages: Sequence[Package], architecture: str, lock: Path = LOCK) -> list[str]:
    """Where these are not the packages of the lock, one sentence each."""
    known: dict[str, dict[str, str]] = yaml.safe_load(lock.read_text(encoding="utf-8"))["packages"][architecture]
    found = {package.name: _entry(package) for package in packages}
    lines = [f"{name} ({architecture}): is in {lock.name} and not in the image" for name in known if name not in found]
    for name, entry in found.items():
        if name not in known:
            lines.append(f"{name} ({architecture}): is not in {lock.name}")
        elif entry["version"] != known[name]["version"]:
            lines.append(
                f"{name} ({architecture}): Debian has {entry['version']}, {lock.name} {known[name]['version']}"
            )
        elif entry["sha256"] != known[name]["sha256"]:
            lines.append(
                f"{name} ({architecture}): the file of {entry['version']} is another one than in {lock.name}: its "
                f"sha256 is {entry['sha256']}"
            )
    return lines


def locked_text(packages: dict[str, Sequence[Package]], *, snapshot: str) -> str:
    """The lock of these packages, by architecture."""
    suite = yaml.safe_load(DESCRIPTION.read_text(encoding="utf-8"))["suite"]
    content: dict[str, Any] = {
        "suite": suite,
        "snapshot": snapshot,
        "packages": {
            architecture: {package.name: _entry(package) for package in found}
            for architecture, found in packages.items()
        },
    }
    return _HEAD + yaml.safe_dump(content, sort_keys=False, width=2**16)


def _entry(package: Package) -> dict[str, str]:
    return {"version": package.version, "sha256": hashlib.sha256(package.path.read_bytes()).hexdigest()}


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", default="", help="archive of Debian (default: this machine's)")
    arguments = parser.parse_args()
    lacking = apt_missing()
    if lacking:
        sys.stderr.write(f"Debian's packages cannot be asked for here: {lacking}\n")
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        found = {}
        for name, architecture in ARCHITECTURES.items():
            folder = Path(temporary) / name
            folder.mkdir()
            found[name] = fetch(folder, architecture, mirror=arguments.mirror)
        text = locked_text({**found}, snapshot=datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))
    LOCK.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
