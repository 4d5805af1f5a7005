"""Chooses an evaluator, compiles expressions, and evaluates them within limits."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from airunway.cel._cost import CostModel, DataSize, cost_model, size_of, uses_quantities
from airunway.cel._errors import CelCompileError, CelError, CelEvaluationError

__all__ = [
    "MAX_EXPRESSION_LENGTH",
    "CelCompileError",
    "CelError",
    "CelEvaluationError",
    "CelProgram",
    "DataSize",
    "Evaluator",
    "available_evaluators",
    "compile_expression",
    "evaluator_name",
    "size_of",
]

MAX_EXPRESSION_LENGTH = 2048
"""Characters of one expression. Longer ones are refused: no rule needs them, and parsing cost grows with length."""

_NOT_WITH_QUANTITIES = " (an expression with quantities cannot have optional syntax, format, times, bytes or math)"


class Evaluator(StrEnum):
    """The supported CEL libraries, the preferred one first."""

    CEL_CPP = "cel-cpp"
    CEL_PYTHON = "cel-python"


_MODULES = {Evaluator.CEL_CPP: "cel_expr_python", Evaluator.CEL_PYTHON: "celpy"}


class Backend(Protocol):
    """One compiled expression of one library."""

    @property
    def result_type(self) -> str:
        """The static type of the result in lower case (``bool``, ``string``, …); ``dyn`` if it is not known."""

    def evaluate(self, bindings: Mapping[str, object]) -> object:
        """Returns the value as plain Python. Raises CelEvaluationError."""


@dataclass(frozen=True, kw_only=True)
class CelProgram:
    """A compiled expression. It can be kept, shared between threads and evaluated any number of times."""

    expression: str
    variables: tuple[str, ...]
    evaluator: Evaluator
    cost: CostModel | None
    """None for a trusted expression, whose cost is not checked."""
    backend: Backend

    @property
    def result_type(self) -> str:
        """The static type of the result (``bool``, ``string``, …); ``dyn`` if only evaluation can show it."""
        return self.backend.result_type

    def work(self, size: DataSize) -> int:
        """Returns about how many characters `evaluate` may touch with bindings of this size; 0 if it is trusted.

        Use it to bound the sum of many expressions of third parties. Raises CelEvaluationError if `evaluate` would
        raise it because of the cost.
        """
        return self.cost.check(size) if self.cost is not None else 0

    def evaluate(self, bindings: Mapping[str, object], *, size: DataSize | None = None) -> object:
        """Returns the value for these bindings (JSON-like values by variable name), as plain Python.

        `size` is that of the bindings, if it is known already. An expression that could run long on values of this size
        is not run. Raises CelEvaluationError if there is no value.
        """
        if self.cost is not None:
            self.cost.check(size or size_of(bindings))
        return self.backend.evaluate(bindings)


def available_evaluators() -> tuple[Evaluator, ...]:
    """Returns the evaluators whose library is installed, the preferred one first."""
    return tuple(e for e, module in _MODULES.items() if importlib.util.find_spec(module) is not None)


def evaluator_name() -> str:
    """Returns the evaluator that `compile_expression` uses without quantities: ``cel-cpp`` or ``cel-python``."""
    return _preferred().value


def compile_expression(
    expression: str,
    *,
    variables: Sequence[str] = ("spec",),
    evaluator: Evaluator | None = None,
    trusted: bool = False,
) -> CelProgram:
    """Compiles Kubernetes CEL over dynamically typed `variables`.

    `evaluator` selects one library (for tests that compare them). The default is the preferred installed one, and
    cel-python for expressions with quantities (see `airunway.cel._cel_cpp`). `trusted` is for our own expressions, on
    values of known shape: their cost is not checked. Raises CelCompileError, with line and column if the library has
    them.
    """
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise CelCompileError(f"the expression has {len(expression)} characters, the limit is {MAX_EXPRESSION_LENGTH}")
    if not expression.strip():
        raise CelCompileError("the expression is empty")
    quantities = evaluator is None and uses_quantities(expression)
    chosen = Evaluator.CEL_PYTHON if quantities else evaluator or _preferred()
    names = tuple(variables)
    try:
        backend = _compile(chosen, expression, names)
    except CelCompileError as error:
        if not quantities:
            raise
        raise CelCompileError(f"{error}{_NOT_WITH_QUANTITIES}") from error
    return CelProgram(
        expression=expression,
        variables=names,
        evaluator=chosen,
        cost=None if trusted else cost_model(expression),
        backend=backend,
    )


def _preferred() -> Evaluator:
    installed = available_evaluators()
    if not installed:
        raise CelError("no CEL evaluator is installed: install cel-expr-python or cel-python")
    return installed[0]


def _compile(evaluator: Evaluator, expression: str, variables: tuple[str, ...]) -> Backend:
    # Imported here: each library is large, and only one of them is needed (and perhaps installed).
    if evaluator is Evaluator.CEL_CPP:
        from airunway.cel import _cel_cpp

        return _cel_cpp.compile_program(expression, variables)
    from airunway.cel import _cel_python

    return _cel_python.compile_program(expression, variables)
