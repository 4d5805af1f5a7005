"""One corpus of Kubernetes CEL, on every evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.cel import CelCompileError, CelEvaluationError, Evaluator, available_evaluators, compile_expression
from airunway.cel._cost import uses_quantities

CORPUS = yaml.safe_load((Path(__file__).parent / "corpus.yaml").read_text(encoding="utf-8"))
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expression"])
def test_whatever_evaluator_is_chosen(case: dict[str, Any]) -> None:
    assert same(outcome(case, None), expected(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expression"])
def test_cel_cpp_answers_the_same_and_knows_no_quantities(case: dict[str, Any]) -> None:
    wanted = REFUSED if uses_quantities(case["expression"]) else expected(case)
    assert same(outcome(case, Evaluator.CEL_CPP), wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expression"])
def test_cel_python_answers_the_same_or_refuses(case: dict[str, Any]) -> None:
    wanted = REFUSED if case.get("python") == "refused" else expected(case)
    answered = outcome(case, Evaluator.CEL_PYTHON)
    if case.get("python", "refused") == "refused":
        assert same(answered, wanted)
    else:  # a static type error that this evaluator sees only at run time (documented in the case)
        assert answered == (False if case["python"] == "answers false" else ERROR)


def same(got: object, wanted: object) -> bool:
    """Equal in type too: 1, 1.0 and true are three results."""
    return type(got) is type(wanted) and got == wanted
