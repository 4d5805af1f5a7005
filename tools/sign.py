"""Signs a release that was made without a key: SIGNING_KEY='…' python -m tools.sign FOLDER

The key (PEM, ECDSA P-256) is the text in SIGNING_KEY, or the file that --signing-key names; SIGNING_PASSWORD opens it.
Nothing is built here, and of packages only `cryptography` is imported (tools/supply/requirements.txt): what a build
installs and runs never has the key. The result is the same as that of `make release` with the key.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tools.archives import unpack
from tools.supply.oci import Layout, archive
from tools.supply.provenance import Build, bill_statement, statement
from tools.supply.signing import KeyFileError, Signer, envelope, key_of, load_key, sign_layout

if TYPE_CHECKING:
    from airunway.resource import Resource

__all__ = ["main", "seal", "sign"]

_COMMAND = re.compile(r"make release VERSION=(\S+) REGISTRY=(\S+)")
IMAGES, CHARTS = "images", "charts-oci"
"""Folders with archives, and with their digests."""


def sign(target: Path, signer: Signer) -> None:
    """Sign the archives of the release in this folder, its provenance and its checksums. Raises KeyFileError for what
    is no release.
    """
    made, digests = _build(target), dict[str, str]()
    for folder in (target / IMAGES, target / CHARTS):
        if not folder.exists():
            continue
        found = dict(line.split() for line in (folder / "digests.txt").read_text(encoding="utf-8").splitlines())
        for repository in found:
            name = repository.rpartition("/")[2]
            bills = sorted((target / "sboms").glob(f"airunway-{name}-*.cdx.json")) if folder.name == IMAGES else []
            _sign_archive(folder / f"{name}.oci.tar", repository, made, signer, bills)
        digests |= found
    seal(target, made, digests, signer=signer)


def seal(target: Path, made: Build, digests: Mapping[str, str], *, signer: Signer | None = None) -> None:
    """Write provenance and checksums of everything in the folder, and signatures of both. `digests` are those of images
    and charts by repository.
    """
    for name in ("provenance.json", "checksums.txt"):
        (target / name).unlink(missing_ok=True)
    subjects = _sums(target)
    for repository, digest in digests.items():
        subjects[f"{made.registry}/{repository}"] = digest.removeprefix("sha256:")
    provenance = json.dumps(statement(subjects, made), indent=1, sort_keys=True).encode()
    (target / "provenance.json").write_bytes(provenance + b"\n")
    if signer is not None:
        (target / "provenance.intoto.jsonl").write_bytes(envelope(provenance, signer) + b"\n")
    sums = "".join(f"{digest}  {name}\n" for name, digest in _sums(target).items())
    (target / "checksums.txt").write_text(sums, encoding="utf-8")
    if signer is not None:
        (target / "checksums.txt.sig").write_text(signer.sign(sums.encode()), encoding="utf-8")
        (target / "signing-key.pub").write_bytes(signer.public())


def _sums(target: Path) -> dict[str, str]:
    """SHA-256 of every file by its path."""
    found = {}
    for path in sorted(path for path in target.rglob("*") if path.is_file()):
        with path.open("rb") as content:
            found[str(path.relative_to(target))] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def _build(target: Path) -> Build:
    """Who built the release, as its provenance says."""
    try:
        predicate: Resource = json.loads((target / "provenance.json").read_text(encoding="utf-8"))["predicate"]
        asked = predicate["buildDefinition"]["externalParameters"]
        command = _COMMAND.fullmatch(asked["command"])
        ran = predicate["runDetails"]
        commit, builder = asked["source"]["digest"]["gitCommit"], ran["builder"]["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KeyFileError(f"{target} is no release: its provenance.json cannot be read ({error})") from None
    if command is None:
        raise KeyFileError(f"{target} is no release: its provenance.json does not say which command made it")
    run = ran.get("metadata", {}).get("invocationId", "")
    return Build(version=command[1], registry=command[2], commit=commit, builder=builder, run=run)


def _sign_archive(path: Path, repository: str, made: Build, signer: Signer, bills: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(path) as packed:
            time = int(packed.getmembers()[0].mtime)
            unpack(packed, temporary)
        layout = Layout(folder=Path(temporary))
        name, digest = f"{made.registry}/{repository}", str(layout.tags()[made.version]["digest"])
        subjects = {name: digest.removeprefix("sha256:")}
        statements = [statement(subjects, made)]
        statements += [bill_statement(subjects, json.loads(each.read_text(encoding="utf-8"))) for each in bills]
        sign_layout(layout, made.version, name=name, statements=statements, signer=signer)
        archive(layout.folder, path, time=time)


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the release, as make release left it")
    parser.add_argument("--signing-key", type=Path, help="file of the key")
    given = parser.parse_args()
    text, password = os.environ.pop("SIGNING_KEY", ""), os.environ.pop("SIGNING_PASSWORD", "")
    if given.signing_key is None and not text:
        sys.stderr.write("there is no key: give --signing-key FILE, or set SIGNING_KEY\n")
        return 1
    try:
        if given.signing_key is not None:
            signer = load_key(given.signing_key, password=password)
        else:
            signer = key_of(text.encode(), password=password, name="SIGNING_KEY")
        sign(given.folder, signer)
    except KeyFileError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
