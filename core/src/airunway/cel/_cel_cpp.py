"""cel-cpp through cel-expr-python: type-checked, fast, with all string and optional functions, without quantities.

Its binding (0.1.3) never frees the arguments of functions that are written in Python: 1.4 KiB for each comparison of
quantities, and users can vary the values. So expressions with quantities run on cel-python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

from airunway.cel._cost import CelCompileError, CelEvaluationError

_LOCATED = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_LONGEST_MESSAGE = 300  # the library quotes whole values
_STATUS = re.compile(r"^[A-Z_]+: ")


class CppExpression:
    """An expression of cel-cpp."""

    def __init__(self, expression: cel.Expression) -> None:
        self._expression = expression

    def evaluate(self, bindings: Mapping[str, object]) -> object:
        try:
            value = self._expression.eval(data=dict(bindings))
            kind = value.type()
            if kind != cel.Type.ERROR and kind != cel.Type.UNKNOWN:
                plain: object = value.plain_value()
                return bytes(plain) if isinstance(plain, bytearray) else plain
            problem = str(value.value())
        # The binding raises RuntimeError for an exceeded budget and TypeError for a value without a Python form.
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise CelEvaluationError(_first_line(str(error))) from error
        raise CelEvaluationError(_first_line(problem))


def compile_program(expression: str, variables: tuple[str, ...]) -> CppExpression:
    """Compiles and type-checks. Raises CelCompileError."""
    try:
        return CppExpression(_environment(variables).compile(expression))
    except RuntimeError as error:
        located = _LOCATED.search(str(error))
        text = f"line {located[1]}, column {int(located[2])}: {located[3]}" if located else _first_line(str(error))
        raise CelCompileError(text.replace(" (in container '')", "")) from error


@lru_cache(maxsize=8)
def _environment(variables: tuple[str, ...]) -> cel.Env:
    return cel.NewEnv(
        variables=dict.fromkeys(variables, cel.Type.DYN),
        extensions=[
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
        ],
    )


def _first_line(message: str) -> str:
    lines = message.splitlines()
    text = _STATUS.sub("", re.sub(r" \[[A-Z_]+\]$", "", lines[0])) if lines else "no value"
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
