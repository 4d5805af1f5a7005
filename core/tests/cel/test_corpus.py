"""One corpus of Kubernetes CEL, on every evaluator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from airunway.cel import CelCompileError, CelEvaluationError, Evaluator, available_evaluators, compile_expression
from airunway.cel._cost import uses_quantities

CORPUS = yaml.load((Path(__file__).parent / "corpus.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
CASES: list[dict[str, Any]] = CORPUS["cases"]

REFUSED, ERROR = "does not compile", "error"


def expected(case: dict[str, Any]) -> object:
    if case.get("refused"):
        return REFUSED
    return ERROR if case.get("error") else case["value"]


def outcome(case: dict[str, Any], evaluator: Evaluator | None) -> object:
    try:
        program = compile_expression(case["expression"], evaluator=evaluator)
    except CelCompileError:
        return REFUSED
    try:
        return program.evaluate({"spec": case.get("spec", CORPUS["spec"])})
    except CelEvaluationError:
        return ERROR


def test_both_evaluators_are_installed_for_development() -> None:
    assert available_evaluators() == (Evaluator.CEL_CPP, Evaluator.CEL_PYTHON)


def differing(evaluator: Evaluator | None, wanted: Callable[[dict[str, Any]], object]) -> list[str]:
    """The expressions whose outcome is not the wanted one, with both."""
    answers = [(case["expression"], outcome(case, evaluator), wanted(case)) for case in CASES]
    return [f"{expression}: {got!r}, not {right!r}" for expression, got, right in answers if not same(got, right)]


def test_the_chosen_evaluator_gives_the_recorded_answers() -> None:
    assert differing(None, expected) == []


def test_cel_cpp_gives_the_same_answers_and_refuses_quantities() -> None:
    def wanted(case: dict[str, Any]) -> object:
        return REFUSED if uses_quantities(case["expression"]) else expected(case)

    assert differing(Evaluator.CEL_CPP, wanted) == []


def test_cel_python_gives_the_same_answers_or_refuses() -> None:
    def wanted(case: dict[str, Any]) -> object:
        if case.get("python", "refused") == "refused":
            return REFUSED if case.get("python") == "refused" else expected(case)
        # A static type error that this evaluator sees only at run time (documented in the case).
        return False if case["python"] == "answers false" else ERROR

    assert differing(Evaluator.CEL_PYTHON, wanted) == []


def same(got: object, wanted: object) -> bool:
    """Equal in type too: 1, 1.0 and true are three results."""
    return type(got) is type(wanted) and got == wanted
