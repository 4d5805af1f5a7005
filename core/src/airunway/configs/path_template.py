"""The URL path of a deployment, from a template (docs/routing.md).

``/ml/{.metadata.namespace}/{.metadata.labels['project']}`` gives ``/ml/ml-team/conversational-ai``. What an HTTPRoute
would not take, such as ``/a/../b``, is refused here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from airunway.json_path import shortened
from airunway.resource import Resource

MAX_RENDERED = 200
"""Characters of a path, measured after encoding."""

_OTHER_NAMES = {
    "aimImageName": ".spec.image",
    "routing": ".spec.gateway",
}
"""Fields below ``spec`` that only AIM Engine has, and what has their meaning here."""

_MAX_DIGITS = 300
_UNSUPPORTED = {
    "?": "filters are not supported",
    "(": "filters and scripts are not supported",
    "|": "pipes are not supported",
    ":": "slices are not supported",
    ",": "unions are not supported",
    "@": "'@' is not supported",
    "*": "'*' is supported only as '[*]'",
    "{": "the brace of an expression is not closed before the next one opens",
}


class PathTemplateError(ValueError):
    """A path template that cannot be rendered. Its text is one sentence for the user."""

    def __init__(self, reason: str, *, expression: str = "", position: int = 0) -> None:
        self.expression = shortened(expression)
        """The expression in braces, else the whole template."""
        self.reason = reason
        """What is wrong, and what to do."""
        self.position = position
        """Index of the character in the template, from 0."""
        super().__init__(f"the path template cannot be used: {self.expression!r} at character {position + 1}: {reason}")


@dataclass(frozen=True, kw_only=True)
class _Expression:
    """One expression in braces."""

    text: str
    """As written, with the braces."""
    position: int
    """Where it begins in the template."""
    steps: tuple[str | int | None, ...]
    """Keys and indexes; None for ``[*]``."""


def parse_template(text: str) -> tuple[str | _Expression, ...]:
    """Returns the literal texts and expressions, in order. Raises PathTemplateError if no deployment could use it."""
    if not isinstance(text, str):
        raise PathTemplateError("a path template must be text")
    return _parsed(text)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[str | _Expression, ...]:
    if not text.strip():
        raise PathTemplateError("it is blank: remove the field, or write a path such as /{.metadata.name}")
    pieces: list[str | _Expression] = []
    at = 0
    while at < len(text):
        if text[at] == "{":
            expression = _expression(text, at)
            pieces.append(expression)
            at += len(expression.text)
            continue
        end = text.find("{", at)
        literal = text[at:] if end < 0 else text[at:end]
        if "}" in literal:
            position = at + literal.index("}")
            raise PathTemplateError("a '}' has no '{' before it", expression=text, position=position)
        pieces.append(literal)
        at += len(literal)
    return tuple(pieces)


_CHANGING = ("managedFields", "resourceVersion")
"""Fields of the metadata that our own writes change: a path with one would bring the next."""


def _expression(text: str, start: int) -> _Expression:
    """Parses the expression whose brace opens at `start`."""

    def refused(reason: str, at: int) -> PathTemplateError:
        end = text.find("}", start)
        whole = text[start:] if end < 0 else text[start : end + 1]
        return PathTemplateError(reason, expression=whole, position=min(at, len(text)))

    at = _after_blanks(text, start + 1)
    if text[at : at + 1] == "$":
        at += 1
    steps: list[str | int | None] = []
    while True:
        character = text[at : at + 1]
        if not character:
            raise refused("the brace is not closed: a '}' is missing", start)
        if character == "}" or character.isspace():
            break
        begun = at
        if character == ".":
            if text[at + 1 : at + 2] == ".":
                raise refused("'..' is not supported: write the whole path of the field", at)
            name, at = _name(text, at + 1)
            if not name and text[at : at + 1] not in ("", "}", "["):
                raise refused(_UNSUPPORTED.get(text[at], "a field name is missing after the '.'"), at)
            if name:
                steps.append(name)
            elif text[at : at + 1] != "[" and steps:
                raise refused("a field name is missing after the '.'", at)
        elif character == "[":
            step, at = _bracket(text, at, refused)
            steps.append(step)
        else:
            expected = "a field must begin with '.' or '[', as in {.metadata.name}"
            raise refused(_UNSUPPORTED.get(character, expected), at)
        if steps[:1] == ["status"]:
            raise refused("the status cannot be used in a path: it changes while the model runs", begun)
        if len(steps) == 2 and steps[0] == "metadata" and steps[1] in _CHANGING:
            raise refused(f"metadata.{steps[1]} cannot be used in a path: it changes while the model runs", begun)
    at = _after_blanks(text, at)
    if text[at : at + 1] != "}":
        if at >= len(text):
            raise refused("the brace is not closed: a '}' is missing", start)
        raise refused("an expression is one path: nothing may follow it", at)
    if not steps:
        raise refused("it names no field: write one, as in {.metadata.name}", start)
    return _Expression(text=text[start : at + 1], position=start, steps=tuple(steps))


def _after_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _name(text: str, at: int) -> tuple[str, int]:
    """Returns the field name that begins at a place, its backslashes removed, and the place after it."""
    name = []
    while at < len(text):
        character = text[at]
        if character == "\\" and at + 1 < len(text):
            name.append(text[at + 1])
            at += 2
            continue
        if not (character.isalnum() or character in "-_/$"):
            break
        name.append(character)
        at += 1
    return "".join(name), at


def _bracket(text: str, start: int, refused: Callable[[str, int], PathTemplateError]) -> tuple[str | int | None, int]:
    """Returns the step of ``['key']``, ``[n]`` or ``[*]`` and the place after it. Raises what `refused` makes."""
    at = start + 1
    first = text[at : at + 1]
    step: str | int | None
    if first in ("'", '"'):
        key = []
        at += 1
        while at < len(text) and text[at] != first:
            if text[at] == "\\" and at + 1 < len(text):
                at += 1
            key.append(text[at])
            at += 1
        step = "".join(key)
        at += 1
    elif first == "*":
        step = None
        at += 1
    else:
        end = at
        while text[end : end + 1] in tuple("0123456789") and end - at < 9:
            end += 1
        if end == at:
            reason = "a bracket has a key in quotes or a number, as in ['name'] or [0]"
            raise refused(_UNSUPPORTED.get(first, reason), at)
        step, at = int(text[at:end]), end
    if text[at : at + 1] != "]":
        raise refused(_UNSUPPORTED.get(text[at : at + 1], "a bracket is not closed: a ']' is missing"), at)
    return step, at + 1


# ------------------------------------------------------------------------------------------------------------ rendering


def render_path(text: str, deployment: Resource) -> str:
    """Returns the path of a deployment by the template `text`: encoded, in lower case, at most 200 characters.

    Raises PathTemplateError, and nothing else, if the template or what it gives cannot be a path.
    """
    raw = "".join(piece if isinstance(piece, str) else _value(piece, deployment) for piece in parse_template(text))
    segments = [segment for segment in raw.lower().split("/") if segment]
    if not segments:
        raise PathTemplateError("the path is '/', which would take all traffic of the gateway", expression=text)
    for segment in segments:
        if segment in (".", ".."):
            raise PathTemplateError(f"the path {shortened(raw)!r} has the segment {segment!r}", expression=text)
    try:
        path = "/" + "/".join(quote(segment, safe="") for segment in segments)
    except UnicodeEncodeError:
        raise PathTemplateError("the path has characters that are no Unicode text", expression=text) from None
    if len(path) > MAX_RENDERED:
        raise PathTemplateError(
            f"the path has {len(path)} characters after encoding, more than {MAX_RENDERED}: {shortened(path)}",
            expression=text,
        )
    return path


def _value(expression: _Expression, deployment: Resource) -> str:
    def refused(reason: str) -> PathTemplateError:
        return PathTemplateError(reason, expression=expression.text, position=expression.position)

    found: list[Any] = [deployment]
    for number, step in enumerate(expression.steps):
        # The root's own ``[*]`` must not see the status either.
        hidden = number == 0
        found = [each for node in found for each in _step(node, step, hidden=hidden)]
        if len(found) > 1 and step is None:
            raise refused(f"it has {len(found)} results instead of one: write an index, as in [0]")
    if not found:
        other = (
            _OTHER_NAMES.get(str(expression.steps[1]))
            if expression.steps[:1] == ("spec",) and len(expression.steps) > 1
            else None
        )
        if other is not None:
            raise refused(f"AI Runway has no such field: write {other}")
        raise refused("the deployment has no such field: set it, or change the template")
    value = found[0]
    text = _scalar(value)
    if text is None:
        kind = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "no usable value"
        raise refused(f"it is {kind} instead of one text, number or boolean")
    if not text.strip():
        raise refused("the field is empty: set it, or change the template")
    return text


def _step(node: object, step: str | int | None, *, hidden: bool) -> list[Any]:
    if step is None:
        if isinstance(node, dict):
            return [value for key, value in node.items() if not (hidden and key == "status")]
        return list(node) if isinstance(node, list) else []
    if isinstance(step, int):
        return [node[step]] if isinstance(node, list) and step < len(node) else []
    return [node[step]] if isinstance(node, dict) and node.get(step) is not None else []


def _scalar(value: object) -> str | None:
    """Returns a text, number or boolean as text; None for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value) if abs(value) < 10**_MAX_DIGITS else None
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return None
