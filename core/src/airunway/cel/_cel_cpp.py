"""cel-cpp through cel-expr-python: type-checked, fast, all string and optional functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

from airunway.cel import _quantity as q
from airunway.cel._errors import CelCompileError, CelEvaluationError

__all__ = ["compile_program"]

_LOCATED = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_LONGEST_MESSAGE = 300  # the library quotes whole values
_STATUS = re.compile(r"^[A-Z_]+: ")


class CompiledExpression:
    """An expression of cel-cpp."""

    def __init__(self, expression: cel.Expression) -> None:
        self._expression = expression
        self._result_type = str(expression.return_type().name()).lower()

    @property
    def result_type(self) -> str:
        return self._result_type

    def evaluate(self, bindings: Mapping[str, object]) -> object:
        try:
            value = self._expression.eval(data=dict(bindings))
            kind = value.type()
            if kind != cel.Type.ERROR and kind != cel.Type.UNKNOWN:
                return _plain(value.plain_value())
            problem = str(value.value())
        # The binding raises RuntimeError for exhausted budgets and TypeError for values without a Python form.
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise CelEvaluationError(_first_line(str(error))) from error
        raise CelEvaluationError(_first_line(problem))


def compile_program(expression: str, variables: tuple[str, ...]) -> CompiledExpression:
    """Compile and type-check. Raises CelCompileError."""
    try:
        return CompiledExpression(_environment(variables).compile(expression))
    except RuntimeError as error:
        located = _LOCATED.search(str(error))
        text = f"line {located[1]}, column {int(located[2])}: {located[3]}" if located else _first_line(str(error))
        raise CelCompileError(text.replace(" (in container '')", "")) from error


@lru_cache(maxsize=8)
def _environment(variables: tuple[str, ...]) -> cel.Env:
    t = cel.Type
    amount = t.Map(t.STRING, t.STRING)

    def function(name: str, *overloads: cel.Overload) -> cel.FunctionDecl:
        return cel.FunctionDecl(name, list(overloads))

    def overload(
        id_: str, result: cel.Type, parameters: list[cel.Type], impl: object, member: bool = True
    ) -> cel.Overload:
        return cel.Overload(id=id_, return_type=result, parameters=parameters, is_member=member, impl=impl)

    functions = [
        function("quantity", overload("quantity_from_string", amount, [t.STRING], q.quantity, False)),
        function("isQuantity", overload("is_quantity_string", t.BOOL, [t.STRING], q.is_quantity, False)),
        function("compareTo", overload("quantity_compare", t.INT, [amount, amount], q.compare)),
        function("isLessThan", overload("quantity_less", t.BOOL, [amount, amount], lambda a, b: q.compare(a, b) < 0)),
        function(
            "isGreaterThan", overload("quantity_greater", t.BOOL, [amount, amount], lambda a, b: q.compare(a, b) > 0)
        ),
        function("sign", overload("quantity_sign", t.INT, [amount], q.sign, False)),
        function("isInteger", overload("quantity_is_integer", t.BOOL, [amount], q.is_integer)),
        function("asInteger", overload("quantity_as_integer", t.INT, [amount], q.as_integer)),
        function("asApproximateFloat", overload("quantity_as_float", t.DOUBLE, [amount], q.as_approximate_float)),
        function(
            "add",
            overload("quantity_add", amount, [amount, amount], q.add),
            overload("quantity_add_int", amount, [amount, t.INT], q.add),
        ),
        function(
            "sub",
            overload("quantity_sub", amount, [amount, amount], q.subtract),
            overload("quantity_sub_int", amount, [amount, t.INT], q.subtract),
        ),
    ]
    return cel.NewEnv(
        variables=dict.fromkeys(variables, t.DYN),
        extensions=[
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
        ],
        functions=functions,
    )


def _first_line(message: str) -> str:
    lines = message.splitlines()
    text = _STATUS.sub("", re.sub(r" \[[A-Z_]+\]$", "", lines[0])) if lines else "no value"
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value
