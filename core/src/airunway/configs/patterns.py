"""Which labels of a deployment its objects and pods get (docs/runtime-configs.md).

A pattern is for a whole label key: ``org.example/*`` matches ``org.example/team``, but not ``org.example.com/team``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from airunway.api import names

_NEVER_PROPAGATED = names.NEVER_PROPAGATED | {"app.kubernetes.io/managed-by"}
"""Keys that are never copied: our code sets them (docs/runtime-configs.md), or they say who manages the deployment."""


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
class _Patterns:
    """Patterns as one automaton: a bit of a number stands for "this pattern has matched so far", one for each element
    of each pattern and one for its end.

    A step costs the same whatever the patterns are: a config with many of them, or with many classes, blocks nothing.
    """

    start: int
    """The first bit of each pattern."""
    ends: int
    """The last bit of each pattern: it has matched."""
    stars: int
    """Bits at which any number of characters may follow (``*``)."""
    literals: Mapping[str, int]
    """For a character the elements that it matches as a literal."""
    anything: int
    """The elements that are ``?``."""
    classes: tuple[tuple[int, _Class], ...]
    """Element and class."""
    accepting: dict[str, int] = field(default_factory=dict)
    """For a character that has come, all elements that it matches."""
    verdicts: dict[str, bool] = field(default_factory=dict)
    """For a key that has come, whether a pattern matches it."""

    def selects(self, key: str) -> bool:
        """As `matches`; the verdict is remembered."""
        found = self.verdicts.get(key)
        if found is None:
            found = self.matches(key)
            if len(self.verdicts) < _MOST_KEYS:
                self.verdicts[key] = found
        return found

    def matches(self, key: str) -> bool:
        """Whether a pattern matches all of `key`: one step for each character."""
        states, known = self.start, self.accepting
        for character in key:
            accepting = known.get(character)
            if accepting is None:
                accepting = self._accepting(character)
            states = (states & accepting) << 1 | (states & self.stars if character != "/" else 0)
            if not states:
                return False
        return bool(states & self.ends)

    def _accepting(self, character: str) -> int:
        found = self.literals.get(character, 0)
        if character != "/":
            found |= self.anything
            for element, characters in self.classes:
                if characters.accepts(character):
                    found |= element
        if len(self.accepting) < _MOST_CHARACTERS:
            self.accepting[character] = found
        return found


_MOST_CHARACTERS = 128
"""Characters whose elements are remembered: more than a label key can have."""

_MOST_KEYS = 1024
"""Keys whose verdict is remembered: the deployments of a config seldom have so many."""


def matches(pattern: str, key: str) -> bool:
    """Whether the whole label key matches. A malformed pattern matches nothing. Never raises."""
    return isinstance(key, str) and isinstance(pattern, str) and _compiled((pattern,)).matches(key)


def pattern_problem(pattern: str) -> str | None:
    """Returns what is wrong with a pattern, and where, as a sentence; None if it can be used."""
    if not isinstance(pattern, str):
        return str(PatternError("a pattern must be text", 0))
    try:
        _elements(pattern)
    except PatternError as error:
        return str(error)
    return None


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> _Patterns:
    """The automaton of all patterns that can be used."""
    literals: dict[str, int] = {}
    classes: list[tuple[int, _Class]] = []
    start = ends = anything = stars = 0
    bit = 1
    for pattern in patterns:
        try:
            elements = _elements(pattern)
        except PatternError:
            continue  # it matches nothing; `pattern_problem` says why
        start |= bit
        for element in elements:
            if element == _STAR:
                stars |= bit
                continue
            if element == _ANY:
                anything |= bit
            elif isinstance(element, _Class):
                classes.append((bit, element))
            else:
                literals[element] = literals.get(element, 0) | bit
            bit <<= 1
        ends |= bit
        bit <<= 1
    return _Patterns(start=start, ends=ends, stars=stars, literals=literals, anything=anything, classes=tuple(classes))


_STAR, _ANY = "**", "??"
"""Elements that are no character; a literal element is one character."""


def _elements(pattern: str) -> list[str | _Class]:
    """The elements of a pattern: literal characters, classes, ``?`` and ``*``. Raises PatternError."""
    if not pattern:
        raise PatternError("a pattern must not be empty", 0)
    found: list[str | _Class] = []
    at = 0
    while at < len(pattern):
        if pattern[at] in "*?":
            found.append(_STAR if pattern[at] == "*" else _ANY)
            at += 1
        elif pattern[at] == "[":
            characters, at = _class(pattern, at)
            found.append(characters)
        else:
            literal, at = _character(pattern, at)
            found.append(literal)
    return found


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
    compiled = _compiled(tuple(pattern for pattern in patterns if isinstance(pattern, str)))
    return {
        key: value
        for key, value in texts
        if key not in never
        and not is_reserved(key, kept)
        and (key.startswith(f"{names.GROUP}/") or compiled.selects(key))
    }


def is_reserved(key: str, reserved: Iterable[str]) -> bool:
    """Whether a label key is one of the `reserved` ones: an entry that ends with ``/``, ``-`` or ``.`` is the beginning
    of a key; any other is a whole key, or all of it before the slash.
    """
    return any(
        key.startswith(entry) if entry.endswith(("/", "-", ".")) else key == entry or key.startswith(f"{entry}/")
        for entry in reserved
    )
