"""The only interface to CEL evaluators: Kubernetes CEL over plain Python values, with bounded cost.

`compile_expression` returns a `CelProgram`. There are two evaluators. ``cel-cpp`` (from cel-expr-python) is preferred.
``cel-python`` is for platforms for which cel-cpp has no wheel, and for all expressions with quantities: cel-cpp's
binding never frees the arguments of functions written in Python (`airunway.cel._cel_cpp`). Only
benchmarks ask which one is in use (`evaluator_name`). A corpus of expressions runs on both and on a real API server;
every expression that compiles gives the same answer on all three, with these exceptions:

=============================================  ======================  ===========================  ====================
expression                                     cel-cpp                 cel-python                   Kubernetes
=============================================  ======================  ===========================  ====================
optional syntax (``spec.?a``), ``format``,     yes                     does not compile             yes
times, bytes, unsigned numbers, ``type``
quantities                                     do not compile          yes                          yes
``math.*``, ``quote``, ``reverse``             yes                     does not compile             no
``cel.bind``                                   yes                     yes                          no
lists (``sum``, ``min``, ``isSorted``, …),     do not compile          do not compile               yes
``find``, ``url``, ``ip``, ``cidr``, sets,
``semver``, two-variable macros
``has(spec.text.x)`` on what is not a map      error                   error                        false
``int(true)``                                  1                       1                            error
``{'a': 1, 'a': 2}``                           error                   error                        the last one counts
static type errors inside a list or map        does not compile        a value or an error          does not compile
(``1 in ['a']``, ``[1] == [1.0]``)
numbers in texts: with spaces (``int(' 1')``)  yes                     yes                          error
``double('0x1f')``, ``double('nan(1)')``       yes                     error                        error
``double('1_0')``                              error                   error                        10.0
``string()`` of an infinity; of a NaN          inf; nan                inf; error                   +Inf; NaN
``''.split('')``                               ``['']``                ``['']``                     ``[]``
``'ab'.indexOf('', 3)``                        error                   error                        3
``null``, a list or a map ``in`` a map         error                   error                        false
a raw text that ends with a backslash          does not compile        does not compile             yes
quantities beyond 10^1000, calculated with     error                   error                        yes
the order in which a loop sees a map's keys    any                     any                          any
=============================================  ======================  ===========================  ====================

Limits (`CelCompileError`, or `CelEvaluationError` if it depends on the data): 2048 characters, 32 levels of nesting, 8
loops, 10,000 loop steps in all, and an estimate of the work that includes the size of the data (`airunway.cel._cost`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from airunway.cel._cost import (
    CelCompileError,
    CelError,
    CelEvaluationError,
    CostModel,
    DataSize,
    cost_model,
    size_of,
    uses_quantities,
)

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


class CompiledExpression(Protocol):
    """One compiled expression of one library."""

    def evaluate(self, bindings: Mapping[str, object]) -> object:
        """Returns the value as plain Python. Raises CelEvaluationError."""


@dataclass(frozen=True, kw_only=True)
class CelProgram:
    """A compiled expression. It can be kept, shared between threads and evaluated any number of times."""

    evaluator: Evaluator
    cost: CostModel | None
    """None for a trusted expression, whose cost is not checked."""
    backend: CompiledExpression

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
    # Imported here: each library is large, and only one of them is needed (and perhaps installed).
    compile_program: Callable[[str, tuple[str, ...]], CompiledExpression]
    if chosen is Evaluator.CEL_CPP:
        from airunway.cel._cel_cpp import compile_program
    else:
        from airunway.cel._cel_python import compile_program
    try:
        backend = compile_program(expression, tuple(variables))
    except CelCompileError as error:
        if not quantities:
            raise
        raise CelCompileError(f"{error}{_NOT_WITH_QUANTITIES}") from error
    return CelProgram(
        evaluator=chosen,
        cost=None if trusted else cost_model(expression),
        backend=backend,
    )


def _preferred() -> Evaluator:
    installed = available_evaluators()
    if not installed:
        raise CelError("no CEL evaluator is installed: install cel-expr-python or cel-python")
    return installed[0]
