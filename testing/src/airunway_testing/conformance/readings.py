"""Texts as an upstream reads them: a line of a shell, a template of Go. What would be executed is told from data.

Decoded, a text is JSON: words and values as texts, and what is executed as ``{"executed": …}``. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from airunway.sdk import Reading

Steps: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value of an object."""

Declared: TypeAlias = Sequence[tuple[tuple[str, ...], Reading]]
"""Places of a kind and how they are read, the outermost first."""

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_ITEMS = "[*]"


def declared(readings: Mapping[str, str]) -> Declared:
    """The places of `UpstreamKind.readings`, ready to be looked up."""
    places = ((_pattern(place), Reading(reading)) for place, reading in readings.items())
    return sorted(places, key=lambda entry: len(entry[0]))


def _pattern(place: str) -> tuple[str, ...]:
    return tuple(_ITEMS if step[0] == _ITEMS else step[1] or step[2] for step in _STEP.finditer(place))


def readings_at(steps: Steps, places: Declared) -> tuple[Reading, ...]:
    """How the value that these steps lead to is read, the first reading first; nothing where it is taken as it is."""
    found: list[Reading] = []
    for pattern, reading in places:
        if len(pattern) <= len(steps) and all(map(_fits, pattern, steps)):
            found = [] if reading is Reading.PLAIN else [*found, reading]
    return tuple(found)


def _fits(pattern: str, step: str | int) -> bool:
    return pattern == _ITEMS if isinstance(step, int) else pattern in ("*", step)


@lru_cache(maxsize=1024)
def decoded(text: str, readings: tuple[Reading, ...]) -> Any:
    """What comes of a text that is read so, one reading after the other."""
    executed: list[str] = []
    for reading in readings:
        if reading is Reading.GO_TEMPLATE:
            text, actions = _template(text)
            executed += actions
        elif reading is Reading.SHELL:
            return [{"executed": executed}, *_line(text)] if executed else _line(text)
    return [{"executed": executed}, text] if executed else text


# ------------------------------------------------------------------------------------------------- Go's text/template

_ACTION = re.compile(
    r"\{\{(?P<left>- )?(?P<code>(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`|(?!\}\})[^\"`])*?)(?P<right> -)?\}\}", re.S
)
_CONSTANT = re.compile(r"\s*(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)\"|`(?P<raw>[^`]*)`)\s*", re.S)
_COMMENT = re.compile(r"/\*.*\*/", re.S)


def _template(text: str) -> tuple[str, list[str]]:
    """The text that a template gives, its actions left out, and these actions; constants in actions are text."""
    result, actions, at, trim = "", [], 0, False
    while (start := text.find("{{", at)) >= 0:
        before = text[at:start]
        found = _ACTION.match(text, start)
        result += before.lstrip() if trim else before
        if found is None:
            actions.append(text[start:])
            return result, actions
        if found["left"]:
            result = result.rstrip()
        constant = _CONSTANT.fullmatch(found["code"])
        if constant is not None:
            result += constant["raw"] if constant["raw"] is not None else _unescaped(constant["quoted"])
        elif not _COMMENT.fullmatch(found["code"].strip()):
            actions.append(found["code"].strip())
        trim, at = bool(found["right"]), found.end()
    rest = text[at:]
    return result + (rest.lstrip() if trim else rest), actions


def _unescaped(quoted: str) -> str:
    """The value of an interpreted string of Go, as far as its escapes are those of JSON; as it is otherwise."""
    try:
        return str(json.loads(f'"{quoted}"', strict=False))
    except ValueError:
        return quoted


# ------------------------------------------------------------------------------------------------------- POSIX shell

_OPERATORS = frozenset(";&|<>()\n")
_EXPANDED = frozenset("$`*?[]~{}!#")
"""What a shell may take for more than itself outside of quotes; ``~`` and ``#`` only where a word begins."""
_IN_DOUBLE = frozenset("$`")


def _line(text: str) -> list[Any]:
    """The words of a line: a text each, or a list of texts and of what is executed; operators by themselves."""
    words: list[Any] = []
    word: list[Any] | None = None
    at = 0

    def add(part: Any) -> None:
        nonlocal word
        word = word if word is not None else []
        if isinstance(part, str) and word and isinstance(word[-1], str):
            word[-1] += part
        else:
            word.append(part)

    def end() -> None:
        nonlocal word
        if word is not None:
            words.append(word[0] if len(word) == 1 and isinstance(word[0], str) else word)
        word = None

    while at < len(text):
        char = text[at]
        if char == "'":
            closing = text.find("'", at + 1)
            if closing < 0:
                add({"executed": text[at:]})
                break
            add(text[at + 1 : closing])
            at = closing + 1
        elif char == '"':
            at = _double(text, at + 1, add)
        elif char == "\\" and at + 1 < len(text):
            add(text[at + 1])
            at += 2
        elif char in " \t":
            end()
            at += 1
        elif char in _OPERATORS:
            end()
            words.append({"executed": char})
            at += 1
        else:
            add({"executed": char} if _is_expanded(char, starts=word is None) or char == "\\" else char)
            at += 1
    end()
    return words


def _is_expanded(char: str, *, starts: bool) -> bool:
    return char in _EXPANDED and (starts or char not in "~#")


def _double(text: str, at: int, add: Any) -> int:
    """Reads what stands between double quotes; the place after them."""
    add("")
    while at < len(text) and text[at] != '"':
        char = text[at]
        if char == "\\" and text[at + 1 : at + 2] in ("$", "`", '"', "\\"):
            add(text[at + 1])
            at += 2
            continue
        add({"executed": char} if char in _IN_DOUBLE else char)
        at += 1
    if at >= len(text):
        add({"executed": '"'})
    return at + 1
