"""Which tags of an image count: constraints on versions. Pure.

Of the tags ``v1.1``, ``1.2``, ``1.3.0-rc1`` and ``latest`` the constraints ``>=1.2`` and ``<1.3`` accept the second and
the third: a pre-release comes before its release, and a tag that is no version never satisfies a constraint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "Constraint",
    "InvalidConstraint",
    "Version",
    "parse_constraint",
    "parse_constraints",
    "parse_version",
    "satisfies",
]

_VERSION = re.compile(
    r"v?(?P<numbers>[0-9]{1,18}(?:\.[0-9]{1,18}){0,2})"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
"""At most 18 digits: ``20261125`` and ``1764028800`` are versions, too; a longer number is a digest or an id."""

_CONSTRAINT = re.compile(r"(?P<operator>!=|>=|<=|=|>|<)\s*(?P<version>\S+)")

_MAX_TEXT = 128
"""Characters; the registry's limit for a tag."""

_OPERATORS: dict[str, Callable[[Version, Version], bool]] = {
    "=": lambda found, wanted: found == wanted,
    "!=": lambda found, wanted: found != wanted,
    ">": lambda found, wanted: found > wanted,
    ">=": lambda found, wanted: found >= wanted,
    "<": lambda found, wanted: found < wanted,
    "<=": lambda found, wanted: found <= wanted,
}


class InvalidConstraint(ValueError):
    """A constraint that cannot be read."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"{text!r} {problem}")
        self.text = text
        """The constraint as it was written."""


@dataclass(frozen=True, order=True)
class Version:
    """A version; versions are ordered as Semantic Versioning orders them."""

    numbers: tuple[int, int, int]
    """Major, minor and patch; what is not written is 0."""
    rank: tuple[tuple[int, int, str], ...]
    """Sorts the pre-release: a release comes after all its pre-releases, numbers come before words."""


_RELEASE: tuple[tuple[int, int, str], ...] = ((2, 0, ""),)


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """One constraint, such as ``>=1.2``."""

    operator: str
    """``=``, ``!=``, ``>``, ``>=``, ``<`` or ``<=``."""
    version: Version
    """What a version is compared with."""

    def accepts(self, version: Version) -> bool:
        """Whether the version satisfies the constraint."""
        return _OPERATORS[self.operator](version, self.version)


def parse_version(text: str) -> Version | None:
    """Returns the version that a tag is; None if it is none. Never raises."""
    found = _VERSION.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if found is None:
        return None
    major, minor, patch = (*map(int, found["numbers"].split(".")), 0, 0)[:3]
    return Version((major, minor, patch), _rank(found["pre"]))


def _rank(pre: str | None) -> tuple[tuple[int, int, str], ...]:
    if pre is None:
        return _RELEASE
    parts = pre.split(".")
    # A longer pre-release comes after a shorter one with the same beginning: tuples are compared so.
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def parse_constraint(text: str) -> Constraint:
    """Returns the constraint that a text is. Raises InvalidConstraint."""
    text = text.strip()
    if not text:
        raise InvalidConstraint(text, "is empty: write an operator and a version, such as >=1.2")
    found = _CONSTRAINT.fullmatch(text)
    if found is None:
        if parse_version(text) is not None:
            raise InvalidConstraint(text, f"has no operator: write ={text} for exactly this version")
        if "," in text or " " in text:
            raise InvalidConstraint(text, "is not one constraint: write each as an entry of its own in versions")
        raise InvalidConstraint(
            text, "cannot be read: write =, !=, >, >=, < or <= and a version of one to three numbers, such as >=1.2"
        )
    version = parse_version(found["version"])
    if version is None:
        raise InvalidConstraint(
            text,
            f"cannot be read: {found['version']!r} is no version; write one to three numbers, such as 1.2 or 1.2.3-rc1",
        )
    return Constraint(operator=found["operator"], version=version)


def parse_constraints(texts: Iterable[str]) -> tuple[Constraint, ...]:
    """Returns all constraints. Raises InvalidConstraint for the first that cannot be read: none is left out."""
    return tuple(parse_constraint(text) for text in texts)


def satisfies(tag: str, constraints: Sequence[Constraint]) -> bool:
    """Whether a tag satisfies all constraints; without constraints every tag does."""
    if not constraints:
        return True
    version = parse_version(tag)
    return version is not None and all(constraint.accepts(version) for constraint in constraints)
