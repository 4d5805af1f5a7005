"""Command-line arguments as keyword arguments: for upstreams that run an engine from Python (Ray Serve LLM)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

__all__ = ["KeywordArguments", "keyword_arguments"]

_DEEPEST = 32
"""Brackets in a value; one with more is a text."""

_LONGEST = 128
"""Characters of a name: YAML has no keys of more than 1,024, and no engine has flags as long as that."""


@dataclass(frozen=True, kw_only=True)
class KeywordArguments:
    """The arguments by their names in Python. `problems` are sentences about words that are none."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def keyword_arguments(words: Sequence[str], *, short: Mapping[str, str] | None = None) -> KeywordArguments:
    """What a command line would set: ``--max-model-len=8192`` is ``max_model_len: 8192``.

    A flag without a value is True, one that begins with ``--no-`` is False. Values are numbers, truth values and JSON
    where they read as such, else texts; a number in quotes (``"123"``) is a text. `short` are the names of short flags.
    Of two words for one argument the last counts.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    rest = list(reversed(words))
    while rest:
        flag, given, text = rest.pop().partition("=")
        name = flag.lstrip("-").replace("-", "_")
        name = (short or {}).get(name, name)
        if not flag.startswith("-") or len(name) > _LONGEST or not name.isidentifier():
            problems.append(f"{flag[:64]!r} cannot be set by name: write it as one flag with one value")
        elif given or (rest and not _is_flag(rest[-1])):
            values[name] = _value(text if given else rest.pop())
        elif name.startswith("no_"):
            values[name[3:]] = False
        else:
            values[name] = True
    return KeywordArguments(values=values, problems=tuple(problems))


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word.lstrip("-")[:1].isdigit()


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    if text.count("[") + text.count("{") > _DEEPEST:
        return text
    try:
        return json.loads(text, parse_constant=str, parse_float=_finite)
    except ValueError:
        return text


def _finite(digits: str) -> float | str:
    """JSON has no word for a number that is too large."""
    value = float(digits)
    return value if isfinite(value) else digits
