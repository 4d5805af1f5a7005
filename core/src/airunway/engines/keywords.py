"""Converts command-line arguments to keyword arguments, for upstreams that start engines in Python (Ray Serve LLM)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

__all__ = ["KeywordArguments", "keyword_arguments"]

_DEEPEST = 32
"""Maximum number of opening brackets in a value; a value with more stays a text."""

_LONGEST = 128
"""Maximum length of a name in characters: YAML keys have at most 1,024, and no engine has flags that long."""


@dataclass(frozen=True, kw_only=True)
class KeywordArguments:
    """Arguments by their Python names."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Sentences about words that are not valid arguments."""


def keyword_arguments(words: Sequence[str], *, short: Mapping[str, str] | None = None) -> KeywordArguments:
    """The keyword arguments of a command line: ``--max-model-len=8192`` becomes ``max_model_len: 8192``.

    A flag without a value is True, one with the prefix ``--no-`` is False. Values that parse as JSON numbers, booleans
    or other JSON are converted; others are texts, as are quoted numbers (``"123"``). `short` maps short flags to names.
    The last of several words for one argument wins.
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
    """A float that JSON can express; the digits as text if it is too large."""
    value = float(digits)
    return value if isfinite(value) else digits
