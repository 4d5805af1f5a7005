"""No expression can run long or fill the memory: too costly ones are refused, not started."""

from __future__ import annotations

import pytest

from airunway.cel import (
    CelCompileError,
    CelError,
    CelEvaluationError,
    Evaluator,
    compile_expression,
    evaluator_name,
)

BIG = {"s": "a" * 100_000, "l": list(range(300)), "t": "x" * 3_000}
SMALL = {"s": "a" * 1_000, "l": list(range(20)), "t": "x" * 300}
REGULAR = {"env": [{"name": f"N{i}", "value": "v" * 50} for i in range(200)], "args": {f"k{i}": "v" for i in range(40)}}

EXPENSIVE = [
    "spec.l.map(a, spec.s+spec.s+spec.s).map(b, b+b+b+b+b+b).map(c, c+c+c+c+c+c).size()",
    "spec.l.all(a, spec.l.all(b, spec.l.all(c, a+b+c >= 0)))",
    "cel.bind(v, spec.s + spec.s, " + "cel.bind(v, v + v, " * 9 + "v.size()" + ")" * 10,
    "cel.bind(v, [spec.s, spec.s], " + "cel.bind(v, [v, v], " * 9 + "v == v" + ")" * 10,
    "spec.s.replace('', spec.s).replace('', spec.s).size()",
    "spec.t.split('').map(x, spec.t.split('').map(y, spec.t)).size()",
]

evaluators = pytest.mark.parametrize("evaluator", list(Evaluator))


@evaluators
@pytest.mark.parametrize("expression", EXPENSIVE)
def test_what_would_be_expensive_is_refused_before_it_runs(expression: str, evaluator: Evaluator) -> None:
    program = compile_expression(expression, evaluator=evaluator)
    with pytest.raises(CelEvaluationError, match="too expensive"):
        program.evaluate({"spec": BIG})


@evaluators
def test_loop_steps_are_limited_where_the_estimate_cannot_see_them(evaluator: Evaluator) -> None:
    expression = "spec.t.split('').all(a, spec.t.split('').all(b, a == b))"  # the lists are made by the expression
    with pytest.raises(CelEvaluationError):
        compile_expression(expression, evaluator=evaluator).evaluate({"spec": SMALL})


@evaluators
def test_a_used_up_budget_is_no_error_that_logic_absorbs(evaluator: Evaluator) -> None:
    expression = "spec.t.split('').all(a, spec.t.split('').all(b, a == b)) || true"
    with pytest.raises(CelEvaluationError):
        compile_expression(expression, evaluator=evaluator).evaluate({"spec": SMALL})


@evaluators
@pytest.mark.parametrize(
    "expression",
    [
        "(" * 500 + "1" + ")" * 500,
        "[" * 500 + "]" * 500,
        "spec" + ".a" * 900,
        "1" + "+1" * 900,
        "spec.a == 1 || " * 200,
        "",
        "  ",
        "spec.l" + ".map(x, x)" * 9 + ".size() > 0",
        "cel.bind(x, 1, " * 17 + "x" + ")" * 17 + " == 1",
        "'%.999999999f'.format([1.0])",
        "spec.s" + ".replace(spec.s, spec.s)" * 5 + " == ''",
    ],
    ids=lambda text: text[:30],
)
def test_deep_long_and_hopeless_expressions_do_not_compile(expression: str, evaluator: Evaluator) -> None:
    with pytest.raises(CelCompileError):
        compile_expression(expression, evaluator=evaluator)


@evaluators
def test_an_expression_has_2048_characters_at_most(evaluator: Evaluator) -> None:
    """Written out, for `MAX_EXPRESSION_LENGTH` is the limit of the CRD's field too."""
    longest = "'" + "x" * 2039 + "' != ''"
    assert len(longest) == 2047
    assert compile_expression(longest + " ", evaluator=evaluator).evaluate({}) is True
    with pytest.raises(CelCompileError, match="has 2049 characters, the limit is 2048"):
        compile_expression(longest + "  ", evaluator=evaluator)


@evaluators
@pytest.mark.parametrize(
    "expression",
    [
        "spec.env.exists(e, e.name == 'N199' && e.value.startsWith('v'))",
        "spec.env.all(e, e.name in ['A', 'B'] || e.name.startsWith('N'))",
        "spec.args.all(k, !spec.env.exists(e, e.name == k))",
        "spec.args.all(k, !spec.env.exists(e, e.name == k || e.name in ['A', 'B', 'C']))",
    ],
)
def test_ordinary_rules_pass_on_large_specs(expression: str, evaluator: Evaluator) -> None:
    assert compile_expression(expression, evaluator=evaluator).evaluate({"spec": REGULAR}) is True


@pytest.mark.parametrize("text", ["9E999999", "1e999999999", "-1e-999999", "1e99999999999999999999"])
@pytest.mark.parametrize(
    "call", ["asInteger() == 1", "isInteger()", "add(1) == quantity('1')", "sub(quantity('1')) == quantity('1')"]
)
def test_quantities_without_measure_are_errors(text: str, call: str) -> None:
    """Written out, such a number takes a megabyte, and seconds to become an integer."""
    with pytest.raises(CelEvaluationError):
        compile_expression(f"quantity('{text}').{call}").evaluate({"spec": {}})
    smuggled = compile_expression(f"spec.{call}")
    with pytest.raises(CelEvaluationError):
        smuggled.evaluate({"spec": {"quantity.amount": text}})


@evaluators
@pytest.mark.parametrize("depth", [300, 10_000, 100_000])
def test_data_that_is_nested_too_deep_is_refused(depth: int, evaluator: Evaluator) -> None:
    """cel-cpp itself would end the process."""
    deep: object = 2**70
    for _ in range(depth):
        deep = {"a": [deep]}
    with pytest.raises(CelEvaluationError, match="nested more than 250 deep"):
        compile_expression("spec.b == 1", evaluator=evaluator).evaluate({"spec": {"b": 1, "deep": deep}})


@evaluators
def test_data_may_be_fairly_deep(evaluator: Evaluator) -> None:
    deep: object = "bottom"
    for _ in range(100):
        deep = {"a": [deep]}
    program = compile_expression("spec.b == 1 && size(spec.deep) == 1", evaluator=evaluator)
    assert program.evaluate({"spec": {"b": 1, "deep": deep}}) is True


@evaluators
def test_trusted_expressions_are_not_estimated(evaluator: Evaluator) -> None:
    expression = "spec.l.map(a, spec.s + spec.s + spec.s + spec.s + spec.s).size()"
    untrusted = compile_expression(expression, evaluator=evaluator)
    trusted = compile_expression(expression, evaluator=evaluator, trusted=True)
    spec = {"s": "a" * 1_000_000, "l": list(range(20))}
    with pytest.raises(CelEvaluationError, match="too expensive"):
        untrusted.evaluate({"spec": spec})
    assert trusted.evaluate({"spec": spec}) == 20


@evaluators
@pytest.mark.parametrize("expression", ["spec.a", "spec.a == 1", "size(spec.l)", "string(spec.a)"])
def test_a_missing_variable_and_strange_values_are_evaluation_errors(expression: str, evaluator: Evaluator) -> None:
    program = compile_expression(expression, evaluator=evaluator)
    for bindings in ({}, {"spec": None}, {"spec": {"a": 2**70, "l": 2**70}}, {"spec": {"a": object(), "l": object()}}):
        with pytest.raises(CelError):
            program.evaluate(bindings)


def test_cel_cpp_is_preferred() -> None:
    assert evaluator_name() == "cel-cpp"
    assert compile_expression("1 == 1").evaluator is Evaluator.CEL_CPP
    for other in ("math.sign(1) == 1", "'quantity(' == ''", "spec.quantity == 1"):
        assert compile_expression(other).evaluator is Evaluator.CEL_CPP


@pytest.mark.parametrize("expression", ["isQuantity(spec.a)", "spec.a . isLessThan (spec.b)", "sign(spec.a) == 1"])
def test_h5_quantities_are_never_compared_by_cel_cpp(expression: str) -> None:
    assert compile_expression(expression).evaluator is Evaluator.CEL_PYTHON


def test_h5_quantities_with_what_cel_python_lacks_are_refused_with_the_reason() -> None:
    with pytest.raises(CelCompileError, match="an expression with quantities cannot have optional syntax"):
        compile_expression("spec.?memory.hasValue() && quantity(spec.memory).isGreaterThan(quantity('1Gi'))")


def test_compile_errors_say_where() -> None:
    with pytest.raises(CelCompileError, match=r"line 1, column 11: undeclared reference to 'nope'"):
        compile_expression("1 == 1 || nope")
    with pytest.raises(CelCompileError, match=r"line 1, column \d+: undeclared reference to 'nope'"):
        compile_expression("1 == 1 || nope", evaluator=Evaluator.CEL_PYTHON)
