"""Bring the images and charts of a release to a registry, with their signatures, unchanged to the digest.

python -m tools.publish RELEASE-FOLDER --registry HOST/PATH [--option=--dest-tls-verify=false]

Needs skopeo, which has to be logged in (skopeo login). PyPI is not its business: .github/workflows/release.yaml.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.archives import unpack
from tools.supply.oci import Layout

__all__ = ["PublishError", "published", "uploads"]

FOLDERS = ("images", "charts-oci")


class PublishError(Exception):
    """A release is not what its lists say; one sentence says where."""


def uploads(release: Path, unpacked: Path, *, folders: Sequence[str] = FOLDERS) -> Iterator[tuple[Layout, str, str]]:
    """What is to be brought where: a layout (unpacked into a folder of its own), its tag, the repository.

    Raises PublishError for an archive that does not have the digest which the release lists.
    """
    for folder in folders:
        for line in (release / folder / "digests.txt").read_text(encoding="utf-8").splitlines():
            repository, digest = line.split()
            name = repository.rpartition("/")[2]
            layout = Layout(folder=unpacked / folder / name)
            with tarfile.open(release / folder / f"{name}.oci.tar") as archive:
                unpack(archive, layout.folder)
            blob = layout.folder / "blobs" / digest.replace(":", "/")
            tags = layout.tags()
            if digest not in [found["digest"] for found in tags.values()] or not blob.exists():
                raise PublishError(f"{folder}/{name}.oci.tar does not have {digest}, which digests.txt lists")
            if f"sha256:{hashlib.sha256(blob.read_bytes()).hexdigest()}" != digest:
                raise PublishError(f"{folder}/{name}.oci.tar: {digest} has another content")
            for tag in tags:
                yield layout, tag, repository


def published(release: Path, *, registry: str, options: Sequence[str] = ()) -> Iterator[str]:
    """Copy everything; yields each name when it is there. Raises PublishError, CalledProcessError."""
    with tempfile.TemporaryDirectory() as temporary:
        for layout, tag, repository in uploads(release, Path(temporary)):
            name = f"{registry}/{repository}:{tag}"
            command = ["skopeo", "copy", "--quiet", "--all", "--preserve-digests", *options]
            subprocess.run([*command, f"oci:{layout.folder}:{tag}", f"docker://{name}"], check=True)
            yield name


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", type=Path)
    parser.add_argument("--registry", required=True, help="e.g. registry.internal/team")
    parser.add_argument("--option", action="append", default=[], help="one for skopeo copy, more than once")
    arguments = parser.parse_args()
    try:
        for name in published(arguments.release, registry=arguments.registry, options=arguments.option):
            sys.stdout.write(f"{name}\n")
    except (PublishError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
