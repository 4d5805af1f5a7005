"""Random expressions: what compiles on both evaluators has the same outcome on both, down to the type of the value.

The differences that are documented in `airunway.cel` are not generated: quantities, which cel-cpp does not know,
hexadecimal and odd numbers in texts, the order of a map's keys, and types that only cel-cpp sees inside of literals
(there it does not compile).
"""

from __future__ import annotations

import math

from hypothesis import event, given, settings
from hypothesis import strategies as st

from airunway.cel import CelCompileError, CelEvaluationError, CelProgram, Evaluator, compile_expression

SPEC = {
    "text": "Hello Wörld",
    "empty": "",
    "emoji": "🎉x",
    "int": 3,
    "zero": 0,
    "negative": -7,
    "big": 2**53 + 1,
    "largest": 2**63 - 1,
    "double": 1.5,
    "whole": float(2**53),
    "huge": 1e20,
    "true": True,
    "false": False,
    "nothing": None,
    "numbers": [1, 2, 3],
    "words": ["a", "b", "a"],
    "mixed": [1, "a", None, 1.0, True],
    "map": {"a": 1},
    "quantity": "32Gi",
    "digits": "12",
    "deep": {"x": {"y": [{"z": 1}, {"z": "2"}]}},
}
ATOMS = [f"spec['{name}']" for name in SPEC]
ATOMS += [
    "spec.absent",
    "1",
    "0",
    "-1",
    "2.5",
    "0.0",
    "-0.0",
    "1e10",
    "true",
    "null",
    "''",
    "'a'",
    "'ö'",
    "'12'",
    "'1Gi'",
]
ATOMS += ["[]", "{}", "['a', 'b']", "{'a': 1}", "9223372036854775807", "'^a+$'", "'.'", "'(?i)HELLO'"]
OPERATORS = ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||"]
FUNCTIONS = ["size", "string", "int", "double", "dyn"]
METHODS = ["contains", "startsWith", "endsWith", "matches", "indexOf", "lastIndexOf", "charAt", "substring", "split"]
METHODS += ["join"]
BARE_METHODS = ["size", "lowerAscii", "upperAscii", "trim", "join"]
MACROS = ["all", "exists", "exists_one", "filter", "map"]


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("{}({})".format, st.sampled_from(FUNCTIONS), inner),
        st.builds("({}).{}({})".format, inner, st.sampled_from(METHODS), inner),
        st.builds("({}).{}()".format, inner, st.sampled_from(BARE_METHODS)),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["!", "-", "!!", "--"]), inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("has(({}).{})".format, inner, st.sampled_from(["a", "x", "absent"])),
        st.builds("({}).{}(v, {})".format, inner, st.sampled_from(MACROS), st.one_of(inner, st.just("v == 1"))),
        st.builds("cel.bind(w, {}, {})".format, inner, st.one_of(inner, st.just("w == 'a' || true"))),
    )


EXPRESSIONS = st.recursive(st.sampled_from(ATOMS), larger, max_leaves=6)


def program(expression: str, evaluator: Evaluator) -> CelProgram | None:
    try:
        return compile_expression(expression, evaluator=evaluator)
    except CelCompileError:
        return None


def outcome(compiled: CelProgram) -> object:
    try:
        return shape(compiled.evaluate({"spec": SPEC}))
    except CelEvaluationError:
        return "error"


def shape(value: object) -> object:
    """The value with its types, so that 1, 1.0 and true differ, and -0.0 from 0.0, and NaN is itself."""
    if isinstance(value, list):
        return ["list", *map(shape, value)]
    if isinstance(value, dict):
        return {str(key): shape(inner) for key, inner in value.items()}
    if isinstance(value, float):
        return ("float", "NaN" if math.isnan(value) else repr(value))
    return (type(value).__name__, value)


def some(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(template.format, *parts)


ARITHMETIC, COMPARISON = st.sampled_from("+-*"), st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
TYPED: dict[str, st.SearchStrategy[str]] = {
    "number": st.sampled_from(["1", "0", "-1", "7", "spec.int", "spec.zero", "spec.negative", "size(spec.words)"]),
    "double": st.sampled_from(["2.5", "0.0", "-0.0", "1e10", "spec.double", "spec.whole", "double(spec.int)"]),
    "text": st.sampled_from(["'a'", "'ö'", "''", "spec.text", "spec.emoji", "string(spec.int)", "spec.words[0]"]),
    "list": st.sampled_from(["spec.numbers", "[1, 2, 3]", "spec.numbers.filter(v, v > 1)"]),
    "truth": st.sampled_from(["true", "spec['true']", "has(spec.absent)", "('a' in spec.words)"]),
}
"""Expressions that have a value, by what it is; `nested` makes larger ones of what fits together."""


def nested(typed: dict[str, st.SearchStrategy[str]]) -> dict[str, st.SearchStrategy[str]]:
    number, double, text, numbers, truth = typed.values()
    return {
        "number": number
        | some("({} {} {})", number, ARITHMETIC, number)
        | some("({}).{}({})", text, st.sampled_from(["indexOf", "lastIndexOf"]), text)
        | some("size({})", text | numbers)
        | some("({} ? {} : {})", truth, number, number),
        "double": double | some("({} {} {})", double, st.sampled_from("+-*/"), double),
        "text": text
        | some("({} + {})", text, text)
        | some("({}).{}()", text, st.sampled_from(["lowerAscii", "upperAscii", "trim"])),
        "list": numbers
        | some("({} + {})", numbers, numbers)
        | some("({}).map(v, v {} {})", numbers, ARITHMETIC, number),
        "truth": some("({} {} {})", number, COMPARISON, number)
        | some("({} {} {})", double, COMPARISON, double)
        | some("({} {} {})", text, COMPARISON, text)
        | some("({} in {})", number, numbers)
        | some("({}).{}({})", text, st.sampled_from(["contains", "startsWith", "endsWith"]), text)
        | some("({} {} {})", truth, st.sampled_from(["&&", "||", "=="]), truth)
        | some("({}).{}(v, v > {})", numbers, st.sampled_from(["all", "exists", "exists_one"]), number),
    }


@settings(max_examples=300)
@given(expression=st.one_of(*nested(nested(TYPED)).values()))
def test_both_evaluators_find_the_same_value(expression: str) -> None:
    """What fits together has a value: most of these compare two, and not an error with an error."""
    cpp, python = (program(expression, evaluator) for evaluator in Evaluator)
    assert cpp is not None
    assert python is not None
    found = outcome(cpp)
    assert found == outcome(python)
    event("a value" if found != "error" else "an error")


@settings(max_examples=400)
@given(expression=EXPRESSIONS)
def test_both_evaluators_agree(expression: str) -> None:
    """Anything at all: most of it does not compile, or has no value."""
    compiled = [program(expression, evaluator) for evaluator in Evaluator]
    if None not in compiled:
        cpp, python = (outcome(each) for each in compiled if each is not None)
        assert cpp == python
