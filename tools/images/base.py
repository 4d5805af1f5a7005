"""The root file system of our images: a tar archive that is the same for the same packages.

python -m tools.images.base ROOTFS.tar [--architecture arm64] [--mirror URL]
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from tools.generated import ROOT
from tools.images.architectures import ARCHITECTURES, Architecture, here

__all__ = ["DESCRIPTION", "Package", "apt_missing", "fetch", "packages_of", "rootfs", "sources", "write_rootfs"]

DESCRIPTION = ROOT / "images" / "base.yaml"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
_DEBIAN = "http://deb.debian.org/debian"

_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
_LINKS = {
    "bin": "usr/bin",
    "lib": "usr/lib",
    "sbin": "usr/sbin",
    "usr/bin/python3": "python3.13",
    "etc/os-release": "../usr/lib/os-release",
}
_FOLDERS = {"home/nonroot": (0o700, 65532), "tmp": (0o1777, 0), "usr/sbin": (0o755, 0)}


Rootfs: TypeAlias = dict[str, tuple[tarfile.TarInfo, bytes]]
"""The entries of the archive, with their contents, by path."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A Debian package as it is in the archive: `control` is its control file."""

    name: str
    version: str
    architecture: str
    control: str
    path: Path


def apt_missing() -> str:
    """What this machine lacks to fetch Debian's packages, or the empty string."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            return f"{program} is not on PATH"
    return "" if Path(_KEYS).exists() else f"{_KEYS} is missing (package debian-archive-keyring)"


def fetch(folder: Path, architecture: Architecture, *, mirror: str = "") -> list[Package]:
    """Fetch the packages that ``images/base.yaml`` names into `folder`, their signatures checked by apt.

    `mirror` is an archive of Debian; without one the machine's own are used. Raises CalledProcessError.
    """
    description = _description()
    lines = sources(description["suite"], mirror)
    with tempfile.TemporaryDirectory() as temporary:
        apt = Path(temporary)
        for part in ("lists/partial", "cache/archives/partial", "etc/preferences.d"):
            (apt / part).mkdir(parents=True)
        (apt / "sources.list").write_text("\n".join(lines) + "\n")
        (apt / "status").touch()
        options = {
            "Dir::Etc": apt / "etc",
            "Dir::Etc::sourcelist": apt / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": apt / "lists",
            "Dir::State::status": apt / "status",
            "Dir::Cache": apt / "cache",
            "APT::Sandbox::User": "root",
            "APT::Architecture": architecture.name,
            "APT::Architectures": architecture.name,
            "Acquire::Languages": "none",
        }
        command = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
        subprocess.run([*command, "update"], check=True)
        subprocess.run([*command, "download", *description["packages"]], check=True, cwd=folder)
    return packages_of(folder)


def sources(suite: str, mirror: str = "") -> list[str]:
    """Where apt looks: the suite and its security updates.

    Of snapshot.debian.org (``…/archive/debian/DATE``) the other archive has its date at the end of its address, and the
    lists of packages are older than they say they may be.
    """
    if not mirror:
        mirrors = _own_mirrors()
    elif match := re.fullmatch(r"(.*/archive)/debian/([^/]+)/?", mirror):
        mirrors = [f"{match[1]}/debian/{match[2]}", f"{match[1]}/debian-security/{match[2]}"]
    else:
        mirrors = [mirror.rstrip("/"), f"{mirror.rstrip('/')}-security"]
    options = f"signed-by={_KEYS}" + (" check-valid-until=no" if "/archive/" in mirror else "")
    return [
        f"deb [{options}] {url} {name} main" for url, name in zip(mirrors, [suite, f"{suite}-security"], strict=True)
    ]


def packages_of(folder: Path) -> list[Package]:
    """The packages that are in a folder, by name."""
    return sorted((_package(path) for path in folder.glob("*.deb")), key=lambda package: package.name)


def rootfs(packages: Sequence[Package], architecture: Architecture) -> Rootfs:
    """Every file of the root file system: root's, but for nonroot's home."""
    entries: Rootfs = {}
    certificates: list[bytes] = []
    for package in packages:
        for info, content in _kept(package, architecture):
            if info.name.startswith("usr/share/ca-certificates/"):
                certificates.append(content)
            else:
                entries[info.name] = (info, content)
        entries.update(_files({f"var/lib/dpkg/status.d/{package.name}": package.control}))
    entries.update(_files({**_FILES, "etc/ssl/certs/ca-certificates.crt": b"".join(certificates).decode()}))
    for name, where in (_LINKS | ({"lib64": "usr/lib64"} if architecture.lib64 else {})).items():
        link = tarfile.TarInfo(name)
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, where, 0o777
        entries[name] = (link, b"")
    for name in [*{parent for path in entries for parent in _parents(path)}, *_FOLDERS]:
        made = tarfile.TarInfo(name)
        made.type = tarfile.DIRTYPE
        made.mode, made.uid = _FOLDERS.get(name, (0o755, 0))
        made.gid = made.uid
        entries[name] = (made, b"")
    return entries


def write_rootfs(entries: Rootfs, target: Path, *, time: int, only: str = "", but: str = "") -> None:
    """Write the archive: names sorted, everything of one `time` (seconds).

    With `only` nothing but what is below that path is in it, and of `but` nothing.
    """
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, (info, content) in sorted(entries.items()):
            if (only and not name.startswith(f"{only}/")) or (but and name.startswith(f"{but}/")):
                continue
            info.mtime = time
            archive.addfile(info, io.BytesIO(content))


def _kept(package: Package, architecture: Architecture) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    description = _description()
    keep, drop = ([each.replace("{gnu}", architecture.gnu) for each in description[key]] for key in ("keep", "drop"))
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", package.path], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            licence = name == f"usr/share/doc/{package.name}/copyright"
            wanted = licence or any(fnmatchcase(name, pattern) for pattern in keep)
            if member.isdir() or not wanted or any(fnmatchcase(name, pattern) for pattern in drop):
                continue
            file = archive.extractfile(member) if member.isreg() else None
            kept = tarfile.TarInfo(name)
            kept.type, kept.linkname, kept.size = member.type, member.linkname, member.size if member.isreg() else 0
            kept.mode = member.mode & 0o755
            yield kept, file.read() if file is not None else b""


def _files(texts: dict[str, str]) -> Iterator[tuple[str, tuple[tarfile.TarInfo, bytes]]]:
    for name, text in texts.items():
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(text.encode()), 0o644
        yield name, (info, text.encode())


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _package(path: Path) -> Package:
    control = subprocess.run(["dpkg-deb", "--field", path], check=True, capture_output=True, text=True).stdout
    fields = dict(re.findall(r"^(Package|Version|Architecture): (.+)$", control, re.M))
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        architecture=fields["Architecture"],
        control=control,
        path=path,
    )


def _own_mirrors() -> list[str]:
    """The archive and its security updates as this machine's own apt has them."""
    text = _SOURCES.read_text(encoding="utf-8") if _SOURCES.exists() else ""
    found = re.findall(r"^URIs: (\S+)", text, re.M)
    return found[:2] if len(found) >= 2 else [_DEBIAN, f"{_DEBIAN}-security"]


def _description() -> dict[str, Any]:
    description: dict[str, Any] = yaml.safe_load(DESCRIPTION.read_text(encoding="utf-8"))
    return description


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--architecture", choices=sorted(ARCHITECTURES), default=here().name)
    parser.add_argument("--mirror", default="", help="archive of Debian, e.g. http://deb.debian.org/debian")
    arguments = parser.parse_args()
    missing = apt_missing()
    if missing:
        sys.stderr.write(f"the base image cannot be made here: {missing}\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        architecture = ARCHITECTURES[arguments.architecture]
        packages = fetch(Path(folder), architecture, mirror=arguments.mirror)
        time = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
        write_rootfs(rootfs(packages, architecture), arguments.target, time=time)
    return 0


if __name__ == "__main__":
    sys.exit(main())
