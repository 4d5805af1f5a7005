"""The errors of the package, and a bound on the cost of an evaluation, known before it runs.

Both evaluators limit the number of loop steps, but not the size of the texts that a loop builds: three chained `map`
calls with a few ``+`` can fill the memory. Selection rules come from third parties. So an upper bound is estimated from
the tokens of the expression and the size of the data, and an evaluation with a too high estimate is not started. The
estimate uses only tokens, so it is the same for every evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson


class CelError(ValueError):
    """Base of all errors that this package raises."""


class CelCompileError(CelError):
    """The expression is not valid CEL, uses an unknown name, or exceeds a limit."""


class CelEvaluationError(CelError):
    """The expression has no value for these bindings: absent field, type error, overflow, or too expensive."""


_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>[rRbB]{0,2}(?:'{3}(?:\\.|[^\\])*?'{3}|"{3}(?:\\.|[^\\])*?"{3}
                             |'(?:\\.|[^\\'\n])*'|"(?:\\.|[^\\"\n])*"))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[0-9][0-9A-Za-z_.]*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_LOOPS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter", "transformList", "transformMap"})
_MULTIPLIERS = frozenset({"replace", "join"})
_QUANTITY_FUNCTIONS = frozenset({"quantity", "isQuantity", "sign"})
_QUANTITY_METHODS = frozenset(
    {"compareTo", "isLessThan", "isGreaterThan", "isInteger", "asInteger", "asApproximateFloat", "add", "sub"}
)
_PRECISION = re.compile(r"%\.(\d{3,})")

_MAX_LOOPS = 8
_MAX_LEVELS = 16
"""Number of loops and binds together."""
_MAX_PRODUCTS = 4
MAX_STEPS = 10_000
"""Loop steps of one evaluation; both evaluators have the same limit."""
_MAX_WORK = 250_000_000
"""Characters that one evaluation may touch: about a tenth of a second."""
_MAX_BUILT = 50_000_000
"""Characters that one evaluation may build: roughly the memory that it takes."""
_MAX_DATA_DEPTH = 250
"""Nesting of the data. cel-cpp converts values recursively and crashes at a depth of some thousands."""
_REGEX_WEIGHT = 10
"""Matching a pattern takes about this many times as long per character as comparing."""


@dataclass(frozen=True, kw_only=True)
class DataSize:
    """The size of the data."""

    characters: int
    """About the number of characters as JSON."""
    widest: int
    """Length of the longest list or map."""


def size_of(bindings: Mapping[str, object]) -> DataSize:
    """Measures bindings, for any number of evaluations. Raises CelEvaluationError if they cannot be evaluated."""
    return DataSize(characters=_characters(bindings), widest=_widest(bindings))


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """The parts of an expression that determine its cost."""

    loops: int
    binds: int
    copies: int
    """How often it can copy a value."""
    products: int
    """Number of calls that multiply one text by another."""
    weight: int
    """How expensive it is per character (a regular expression: 10)."""

    def check(self, size: DataSize) -> int:
        """Returns the most characters that an evaluation with bindings of this size may touch, approximately.

        Raises CelEvaluationError if it might cost too much.
        """
        characters = size.characters
        if not self.loops and not self.binds and not self.products:
            return self.weight * characters
        levels = self.loops + self.binds
        steps = min(size.widest**self.loops, MAX_STEPS) if self.loops else 1
        work = self.weight * steps * characters
        if work > _MAX_WORK:
            raise _too_expensive("touch", work, _MAX_WORK)
        if self.copies or self.products:
            growth = (1 + self.copies / levels) ** levels if levels else 1
            built = steps * growth * characters ** (1 + self.products)
            if built > _MAX_BUILT:
                raise _too_expensive("build", built, _MAX_BUILT)
        return work


def _too_expensive(what: str, amount: float, limit: int) -> CelEvaluationError:
    return CelEvaluationError(
        f"too expensive for an object of this size: it could {what} {amount:.0e} characters, the limit is {limit:.0e}"
    )


def uses_quantities(expression: str) -> bool:
    """Whether the expression calls a function of the Kubernetes quantity library."""
    texts = [text for _, text in _tokens_of(expression)]
    return any(
        name in (_QUANTITY_METHODS if before == "." else _QUANTITY_FUNCTIONS) and after == "("
        for before, name, after in zip(["", *texts], texts, texts[1:], strict=False)
    )


def cost_model(expression: str) -> CostModel:
    """Returns the cost model of a compiled expression. Raises CelCompileError if it can never be cheap enough."""
    tokens = _tokens_of(expression)
    texts = [text for _, text in tokens]
    calls = [
        text for (kind, text), after in zip(tokens, [*texts[1:], ""], strict=True) if kind == "name" and after == "("
    ]
    loops = sum(call in _LOOPS for call in calls)
    if loops > _MAX_LOOPS:
        raise CelCompileError(f"{loops} loops (all, exists, map, filter) in one expression, the limit is {_MAX_LOOPS}")
    for kind, text in tokens:
        if kind == "string" and (match := _PRECISION.search(text)):
            raise CelCompileError(f"format precision {match[1]} is too large, the limit is 99")
    binds = calls.count("bind")
    if loops + binds > _MAX_LEVELS:
        raise CelCompileError(f"{loops + binds} loops and binds in one expression, the limit is {_MAX_LEVELS}")
    products = sum(_multiplies(tokens, i) for i in range(len(tokens)))
    if products > _MAX_PRODUCTS:
        raise CelCompileError(f"{products} calls of replace and join with computed texts, the limit is {_MAX_PRODUCTS}")
    weight = _REGEX_WEIGHT if "matches" in calls else 1
    return CostModel(loops=loops, binds=binds, copies=_copies(tokens), products=products, weight=weight)


def _tokens_of(expression: str) -> list[tuple[str, str]]:
    return [(m.lastgroup or "", m.group()) for m in _TOKEN.finditer(expression) if m.lastgroup != "space"]


def _copies(tokens: list[tuple[str, str]]) -> int:
    """Counts what can put one value into another twice.

    These are each ``+``, and the commas in list and map literals that contain more than constants.
    """
    copies, before = 0, ""
    literals: list[list[int]] = []  # for each open bracket: whether it is a literal, its commas, its names
    for kind, text in tokens:
        if text in ("(", "[", "{"):
            is_index = text == "[" and (before[-1:].isalnum() or before[-1:] in ("_", ")", "]"))
            literals.append([text != "(" and not is_index, 0, 0])
        elif text in (")", "]", "}") and literals:
            is_literal, commas, names = literals.pop()
            copies += commas if is_literal and names else 0
            if literals:
                literals[-1][2] += names
        elif text == "+":
            copies += 1
        elif literals and text == ",":
            literals[-1][1] += 1
        elif literals and kind == "name":
            literals[-1][2] += 1
        before = text
    return copies


def _multiplies(tokens: list[tuple[str, str]], index: int) -> bool:
    """Whether the token calls `replace` or `join` with anything but short literals, which could square a string."""
    kind, text = tokens[index]
    if kind != "name" or text not in _MULTIPLIERS or index + 1 >= len(tokens) or tokens[index + 1][1] != "(":
        return False
    for kind, text in tokens[index + 2 :]:
        if text == ")":
            return False
        if text != "," and not (kind == "string" and len(text) <= 8) and kind != "number":
            return True
    return True


def _characters(bindings: Mapping[str, object]) -> int:
    """Returns about the number of characters as JSON. Raises CelEvaluationError for values that are nested too deep."""
    try:
        return len(orjson.dumps(bindings))  # refuses more than 254 levels, in a tenth of the time
    except TypeError:
        return _characters_of_anything(bindings)


def _characters_of_anything(value: object) -> int:
    """The same for values that are too deep for JSON or not JSON at all."""
    characters = 0
    stack = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > _MAX_DATA_DEPTH:
            raise CelEvaluationError(f"the object is nested more than {_MAX_DATA_DEPTH} deep")
        characters += len(item) if isinstance(item, str) else 1
        if isinstance(item, Mapping):
            stack.extend((part, depth + 1) for pair in item.items() for part in pair)
        elif isinstance(item, list | tuple):
            stack.extend((part, depth + 1) for part in item)
    return characters


def _widest(value: object) -> int:
    """Returns the length of the longest list or map.

    Lists that an expression itself creates (literals, `split`) are not counted: loops over them are bounded only by the
    evaluators' own limit on loop steps.
    """
    widest = 1
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            widest = max(widest, len(item))
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            widest = max(widest, len(item))
            stack.extend(item)
    return widest
