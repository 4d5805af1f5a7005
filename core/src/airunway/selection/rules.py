"""Evaluating selection rules: each one is true, false, or wrong with a reason; never an exception (spec ruling 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from airunway.cel import CelError, CelProgram, DataSize, compile_expression, size_of
from airunway.resource import Resource

__all__ = ["MAX_WORK", "RuleResult", "evaluate_rules", "score_of", "size_of_spec"]


MAX_WORK = 1_000_000_000
"""Characters that the rules of one provider may touch for one deployment, all together: half a second at the most.

A bound on each rule alone would let a provider with many of them hold up the controller for as many times as long.
"""


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """What one rule said about one spec: `value` is None where it could not be evaluated, and `error` says why."""

    condition: str
    priority: int
    value: bool | None
    error: str = ""


@lru_cache(maxsize=4096)
def _compiled(condition: str) -> CelProgram | str:
    """The program of a rule, or the text of what is wrong with it. Cached: rules change rarely, selections are many."""
    try:
        return compile_expression(condition, variables=("spec",))
    except CelError as error:
        return str(error)


def size_of_spec(spec: Resource) -> DataSize | str:
    """The size of a spec as rules see it, or why no rule can be evaluated on it."""
    try:
        return size_of({"spec": spec})
    except CelError as error:
        return str(error)


def evaluate_rules(
    rules: Iterable[tuple[str, int]], spec: Resource, *, size: DataSize | str | None = None
) -> list[RuleResult]:
    """Each rule's verdict on a fully defaulted spec, in the order of the rules.

    `size` is `size_of_spec`, where it is known already: it is the same for the rules of all providers.
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
    """The verdict, and what it may have cost of the work that is `left`."""

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
    """The highest priority among the rules that are true; 0 if none is (priorities are not added up)."""
    return max((result.priority for result in results if result.value), default=0)
