"""Writing the skeleton: names, then all files or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template

from airunway import __version__

__all__ = ["Names", "ScaffoldError", "names_of", "write_skeleton"]

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 30
"""Letters of a name: what is built of it (plural, label, Service) stays within 63."""

_SUFFIX = ".template"


class ScaffoldError(Exception):
    """There can be no skeleton; one sentence says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What is filled in: `module` for Python, `title` for people, the rest for Kubernetes.

    `since` and `below` bound the releases of AI Runway that the skeleton is for.
    """

    name: str
    module: str
    kind: str
    singular: str
    plural: str
    group: str
    title: str
    since: str
    below: str


def names_of(name: str) -> Names:
    """The names that follow from a provider's. Raises ScaffoldError for one that no provider can have."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ScaffoldError(
            f"{name!r} cannot be the name of a provider: write small letters and digits, beginning with a letter, with "
            f"single '-' between words, at most {_LONGEST} characters in all"
        )
    module = f"airunway_{name.replace('-', '_')}"
    if find_spec(module) is not None:
        raise ScaffoldError(f"{module} is installed here already: choose another name, or uninstall it first")
    words = [word.capitalize() for word in name.split("-")]
    kind = f"{''.join(words)}Server"
    major, minor = __version__.split(".")[:2]
    return Names(
        name=name,
        module=module,
        kind=kind,
        singular=kind.lower(),
        plural=f"{kind.lower()}s",
        group=f"{name}.example.com",
        title=" ".join(words),
        since=f"{major}.{minor}",
        below=f"{major}.{int(minor) + 1}",
    )


def write_skeleton(name: str, folder: Path) -> list[Path]:
    """Write the skeleton of provider `name` into `folder`; returns the files. Raises ScaffoldError, OSError.

    The folder is made; one that has something in it is left alone.
    """
    names = names_of(name)
    if folder.exists() and not folder.is_dir():
        raise ScaffoldError(f"{folder} is a file: name a folder with --directory")
    if folder.is_dir() and any(folder.iterdir()):
        raise ScaffoldError(f"{folder} is not empty: name another folder with --directory, or empty this one")
    texts = {folder / path: text for path, text in _files(names)}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _files(names: Names) -> Iterator[tuple[str, str]]:
    """Relative path and text of every file."""
    values = asdict(names)
    for path, file in _templates(resources.files("airunway_testing.scaffold") / "template"):
        # A path says MODULE and NAME: a file name with `$` in it would be a nuisance.
        where = path.removesuffix(_SUFFIX).replace("MODULE", names.module).replace("NAME", names.name)
        yield where, Template(file.read_text(encoding="utf-8")).substitute(values)


def _templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield f"{prefix}{entry.name}", entry
