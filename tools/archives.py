"""Unpacks archives so that nothing lands outside of the folder, with every Python from 3.11 on."""

from __future__ import annotations

import tarfile
from collections.abc import Collection
from itertools import takewhile
from pathlib import Path, PurePosixPath


def unpack(archive: tarfile.TarFile, folder: str | Path) -> None:
    """Unpack an archive into a folder. Raises tarfile.TarError for a member that belongs elsewhere.

    Python has the filter since 3.11.4 (https://docs.python.org/3/library/tarfile.html#extraction-filters), and some
    distributions have older ones: there an archive may have files, folders and links between them only.
    """
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
        return
    links = {PurePosixPath(member.name) for member in archive if member.issym()}
    for member in archive:
        if not _stays_inside(member, links):
            raise tarfile.ExtractError(f"{member.name} is not a file, folder or link below the folder of the archive")
    archive.extractall(folder)


def _stays_inside(member: tarfile.TarInfo, links: Collection[PurePosixPath]) -> bool:
    """Whether a member, and what it leads to, is below the folder; none is unpacked through a link."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not {*path.parents}.isdisjoint(links):
        return False
    if not member.issym():
        return member.isfile() or member.isdir()
    target = PurePosixPath(member.linkname)
    upwards = len(list(takewhile("..".__eq__, target.parts)))
    below = ".." not in target.parts[upwards:]  # after a name it may lead above what another link leads to
    return below and not target.is_absolute() and upwards < len(path.parts)
