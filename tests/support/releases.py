"""Upstream releases whose CRDs are kept beside the checkout (``../shared/upstream-crds``): which has which schemas.

An index in Markdown says for each release and kind which file has its CRD; many releases have the file of an earlier
one, and of some the file is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import yaml

from airunway.resource import Resource

_SECTION = re.compile(r"^## (\S+) / \S+$", re.MULTILINE)
_ROW = re.compile(r"^\| (\S+) \| \d{4}-\d\d-\d\d \|.*\| ([^|]+) \|$", re.MULTILINE)
_NAME = re.compile(r"^  name: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Releases of an upstream, in order, that have the same CRDs: `files` by name; None where a file is not kept."""

    upstream: str
    names: tuple[str, ...]
    files: Mapping[str, Path | None] = field(hash=False)

    @property
    def label(self) -> str:
        return self.names[0] if self.names[0] == self.names[-1] else f"{self.names[0]} to {self.names[-1]}"

    @property
    def is_kept(self) -> bool:
        return None not in self.files.values()


def stored_releases(folder: Path, definitions: Collection[str]) -> list[Release]:
    """The releases that have any of these CRDs (by ``metadata.name``), by upstream, oldest first.

    Raises OSError where there is no index.
    """
    index = (folder / "INDEX.md").read_text(encoding="utf-8")
    by_upstream: dict[str, dict[str, dict[str, Path | None]]] = {}
    for upstream, name, rows in _sections(folder, index):
        if name in definitions:
            releases = by_upstream.setdefault(upstream, {})
            for release, file in rows.items():
                releases.setdefault(release, {})[name] = file
    return [release for upstream, releases in by_upstream.items() for release in _alike(upstream, releases)]


def _sections(folder: Path, index: str) -> Iterator[tuple[str, str, dict[str, Path | None]]]:
    """Upstream, name of the CRD, and its file by release; the longest come first, since they have every release."""
    _, *parts = _SECTION.split(index)
    found = [(upstream, _rows(folder, text)) for upstream, text in zip(parts[::2], parts[1::2], strict=True)]
    for upstream, rows in sorted(found, key=lambda each: -len(each[1])):
        if file := next(filter(None, rows.values()), None):
            yield upstream, _NAME.findall(file.read_text(encoding="utf-8"))[0], rows


def _rows(folder: Path, text: str) -> dict[str, Path | None]:
    rows: dict[str, Path | None] = {}
    for release, where in _ROW.findall(text):
        if earlier := re.match(r"same as (\S+)", where):
            rows[release] = rows[earlier[1]]
        else:
            path = re.match(r"`([^`]+)`", where)
            rows[release] = folder / path[1] if path else None
    return rows


def _alike(upstream: str, releases: Mapping[str, Mapping[str, Path | None]]) -> Iterator[Release]:
    for files, group in groupby(releases.items(), key=lambda entry: entry[1]):
        yield Release(upstream=upstream, names=tuple(name for name, _ in group), files=files)


def definition(path: Path) -> Resource:
    """The CRD of a file, without conversion: nobody answers for it, and only one version is written at a time."""
    text = path.read_text(encoding="utf-8")
    found: Resource = next(document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document)
    found["spec"].pop("conversion", None)
    return found
