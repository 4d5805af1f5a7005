"""Which labels of a deployment its objects and pods get (spec/paths.md, section 4).

A pattern is for a whole label key: ``org.example/*`` matches ``org.example/team``, but not ``org.example.com/team``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from airunway.api import names

_NEVER_PROPAGATED = names.NEVER_PROPAGATED | {"app.kubernetes.io/managed-by"}
"""Keys that are never copied: our code sets them (paths.md, section 4), or they say who manages the deployment."""


class PatternError(ValueError):
    """A pattern that cannot be used."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at character {position + 1}")


@dataclass(frozen=True, kw_only=True)
class _Class:
    """A class of characters such as ``[a-c]``."""

    ranges: tuple[tuple[str, str], ...]
    """First and last character of each range."""
    negated: bool
    """Whether all other characters are meant."""

    def accepts(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) is not self.negated


@dataclass(frozen=True, kw_only=True)
class _Pattern:
    """A pattern as an automaton: bit n of a number stands for "the first n elements have matched"."""

    literals: Mapping[str, int]
    """For a character the elements that it matches as a literal."""
    anything: int
    """The elements that are ``?``."""
    classes: tuple[tuple[int, _Class], ...]
    """Element and class."""
    stars: int
    """States in which any number of characters may follow (``*``)."""
    length: int
    """Number of elements other than ``*``."""

    def matches(self, key: str) -> bool:
        """One step for each character of `key`, whatever the pattern is."""
        states = 1
        for character in key:
            accepting = self.literals.get(character, 0)
            if character == "/":
                states = (states & accepting) << 1
            else:
                accepting |= self.anything
                for element, characters in self.classes:
                    if states & element and characters.accepts(character):
                        accepting |= element
                states = ((states & accepting) << 1) | (states & self.stars)
            if not states:
                return False
        return bool(states >> self.length & 1)


def matches(pattern: str, key: str) -> bool:
    """Whether the whole label key matches. A malformed pattern matches nothing. Never raises."""
    try:
        return _compiled(pattern).matches(key)
    except (PatternError, TypeError, AttributeError):
        return False


def pattern_problem(pattern: str) -> str | None:
    """Returns what is wrong with a pattern, and where, as a sentence; None if it can be used."""
    if not isinstance(pattern, str):
        return str(PatternError("a pattern must be text", 0))
    try:
        _compiled(pattern)
    except PatternError as error:
        return str(error)
    return None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> _Pattern:
    if not pattern:
        raise PatternError("a pattern must not be empty", 0)
    literals: dict[str, int] = {}
    classes: list[tuple[int, _Class]] = []
    anything = stars = length = 0
    at = 0
    while at < len(pattern):
        character = pattern[at]
        element = 1 << length
        if character == "*":
            stars |= element
            at += 1
            continue
        if character == "?":
            anything |= element
            at += 1
        elif character == "[":
            found, at = _class(pattern, at)
            classes.append((element, found))
        else:
            literal, at = _character(pattern, at)
            literals[literal] = literals.get(literal, 0) | element
        length += 1
    return _Pattern(literals=literals, anything=anything, classes=tuple(classes), stars=stars, length=length)


def _character(pattern: str, at: int) -> tuple[str, int]:
    """Returns the character at a place, a backslash removed, and the place after it."""
    if pattern[at] != "\\":
        return pattern[at], at + 1
    if at + 1 == len(pattern):
        raise PatternError("a backslash needs a character behind it", at)
    return pattern[at + 1], at + 2


def _class(pattern: str, start: int) -> tuple[_Class, int]:
    """Returns the class that begins at `start`, and the place after it."""
    at = start + 1
    # Go's patterns negate with "^", shells with "!"; no label key has either.
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    ranges: list[tuple[str, str]] = []
    while at < len(pattern) and pattern[at] != "]":
        first = at
        low, at = _character(pattern, at)
        high = low
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            high, at = _character(pattern, at + 1)
        if high < low:
            raise PatternError(f"a range must go upwards, not from {low!r} to {high!r},", first)
        ranges.append((low, high))
    if at >= len(pattern):
        raise PatternError("a class needs a closing bracket (a bracket itself is \\[)", start)
    if not ranges:
        raise PatternError("a class must not be empty", start)
    return _Class(ranges=tuple(ranges), negated=negated), at + 1


# ---------------------------------------------------------------------------------------------------------- propagation


def selected(labels: Mapping[str, str], patterns: Sequence[str], *, reserved: Iterable[str] = ()) -> dict[str, str]:
    """Returns the labels to propagate: those with our prefix, and those that a pattern matches.

    Never a key that our code sets, nor a `reserved` one (see `propagated`).
    """
    texts = (
        (key, value)
        for key, value in (labels.items() if isinstance(labels, Mapping) else ())
        if isinstance(key, str) and isinstance(value, str)
    )
    kept, never = tuple(reserved), _NEVER_PROPAGATED
    return {
        key: value
        for key, value in texts
        if key not in never
        and not is_reserved(key, kept)
        and (key.startswith(f"{names.GROUP}/") or any(matches(pattern, key) for pattern in patterns))
    }


def is_reserved(key: str, reserved: Iterable[str]) -> bool:
    """Whether a label key is one of the `reserved` ones: an entry that ends with ``/``, ``-`` or ``.`` is the beginning
    of a key; any other is a whole key, or all of it before the slash.
    """
    return any(
        key.startswith(entry) if entry.endswith(("/", "-", ".")) else key == entry or key.startswith(f"{entry}/")
        for entry in reserved
    )
