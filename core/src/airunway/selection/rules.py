"""Evaluates selection rules: each one is true, false, or an error text, never an exception (spec ruling 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from airunway.cel import CelError, CelProgram, DataSize, compile_expression, size_of
from airunway.resource import Resource

__all__ = ["MAX_WORK", "RuleResult", "evaluate_rules", "score_of", "size_of_spec"]


MAX_WORK = 1_000_000_000
"""Characters that all rules of one provider together may touch for one deployment: at most half a second.

A bound on each rule alone would let a provider with many rules block the controller many times as long.
"""


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """The result of one rule for one spec."""

    condition: str
    priority: int
    value: bool | None
    """None if the rule could not be evaluated."""
    error: str = ""
    """Why it could not be evaluated."""


@lru_cache(maxsize=4096)
def _compiled(condition: str) -> CelProgram | str:
    """Returns the program of a rule, or its error text. Cached: rules change rarely, selections are frequent."""
    try:
        return compile_expression(condition, variables=("spec",))
    except CelError as error:
        return str(error)


def size_of_spec(spec: Resource) -> DataSize | str:
    """Returns the size of a spec for rules, or why no rule can be evaluated on it."""
    try:
        return size_of({"spec": spec})
    except CelError as error:
        return str(error)


def evaluate_rules(
    rules: Iterable[tuple[str, int]], spec: Resource, *, size: DataSize | str | None = None
) -> list[RuleResult]:
    """Returns each rule's result for a fully defaulted spec, in the order of the rules.

    `size` is `size_of_spec(spec)`; pass it if it is known, because it is the same for the rules of all providers.
    """
    size = size_of_spec(spec) if size is None else size
    left = MAX_WORK
    results = []
    for condition, priority in rules:
        result, work = _evaluate(condition, priority, spec, size, left)
        results.append(result)
        left -= work
    return results


def _evaluate(condition: str, priority: int, spec: Resource, size: DataSize | str, left: int) -> tuple[RuleResult, int]:
    """Returns the result, and how much of the work that is `left` it may have cost."""

    def failed(error: str, work: int = 0) -> tuple[RuleResult, int]:
        return RuleResult(condition=condition, priority=priority, value=None, error=error), work

    program = _compiled(condition)
    if isinstance(program, str):
        return failed(program)
    if isinstance(size, str):
        return failed(size)
    work = 0
    try:
        work = program.work(size)
        if work > left:
            return failed("too expensive after the provider's rules before it: together they could run for long")
        value = program.evaluate({"spec": spec}, size=size)
    except CelError as error:
        return failed(str(error), work)
    if not isinstance(value, bool):
        return failed(f"gives {type(value).__name__}, not bool", work)
    return RuleResult(condition=condition, priority=priority, value=value), work


def score_of(results: Iterable[RuleResult]) -> int:
    """Returns the highest priority of the rules that are true; 0 if none is (priorities are not added up)."""
    return max((result.priority for result in results if result.value), default=0)
