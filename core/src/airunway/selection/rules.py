"""Evaluating selection rules: each one is true, false, or wrong with a reason; never an exception (spec ruling 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from airunway.cel import CelError, Program, compile_expression
from airunway.resource import Resource

__all__ = ["RuleResult", "evaluate_rules", "score_of"]


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """What one rule said about one spec: `value` is None where it could not be evaluated, and `error` says why."""

    condition: str
    priority: int
    value: bool | None
    error: str = ""


@lru_cache(maxsize=4096)
def _compiled(condition: str) -> Program | str:
    """The program of a rule, or the text of what is wrong with it. Cached: rules change rarely, selections are many."""
    try:
        return compile_expression(condition, variables=("spec",))
    except CelError as error:
        return str(error)


def evaluate_rules(rules: Iterable[tuple[str, int]], spec: Resource) -> list[RuleResult]:
    """Each rule's verdict on a fully defaulted spec, in the order of the rules."""
    return [_evaluate(condition, priority, spec) for condition, priority in rules]


def _evaluate(condition: str, priority: int, spec: Resource) -> RuleResult:
    program = _compiled(condition)
    if isinstance(program, str):
        return RuleResult(condition=condition, priority=priority, value=None, error=program)
    try:
        value = program.evaluate({"spec": spec})
    except CelError as error:
        return RuleResult(condition=condition, priority=priority, value=None, error=str(error))
    if not isinstance(value, bool):
        text = f"gives {type(value).__name__}, not bool"
        return RuleResult(condition=condition, priority=priority, value=None, error=text)
    return RuleResult(condition=condition, priority=priority, value=value)


def score_of(results: Iterable[RuleResult]) -> int:
    """The highest priority among the rules that are true; 0 if none is (priorities are not added up)."""
    return max((result.priority for result in results if result.value), default=0)
