"""H5: rules with quantities run as functions in process, and say of any node what the CEL in the CRD says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.api.rules import MODEL_DEPLOYMENT_RULES, ValidationRule
from airunway.cel import CelError, Evaluator, compile_expression

SIZES = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "-0", "512", "512000m", "513", "4Ti", "4096Gi", "4398046511105", "1e3", "1E", "5.", ".5"]
    ),
    st.sampled_from(
        ["nonsense", "1 ", "1e1000", "1e1001", "-1e2000", "1e-1001", "1e99999999999999999999", "1e-99", "+4Ti"]
    ),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 1030),
    st.builds(
        "{}{}".format, st.integers(-2, 6000), st.sampled_from(["", "m", "k", "Ki", "Mi", "Gi", "Ti", "Pi", "e2"])
    ),
)
TEXTS = st.sampled_from(["", "a", "/model-cache", "/compilation-cache", "ReadWriteMany", "ReadWriteOnce"])
NODES = st.fixed_dictionaries(
    {},
    optional={
        "cpu": SIZES,
        "memory": SIZES,
        "size": SIZES,
        "mountPath": TEXTS,
        "accessMode": TEXTS,
        "storageClassName": TEXTS,
        "purpose": st.sampled_from(["", "custom", "modelCache", "compilationCache"]),
    },
).map(lambda node: {**node, "purpose": node.get("purpose") or "custom"})
CHECKED = [rule for rule in MODEL_DEPLOYMENT_RULES if rule.check is not None]


def by_expression(rule: ValidationRule, node: Any, old: Any) -> bool:
    variables = ("self", "oldSelf") if rule.is_transition else ("self",)
    program = compile_expression(rule.expression, variables=variables, evaluator=Evaluator.CEL_PYTHON, trusted=True)
    try:
        return program.evaluate({"self": node, "oldSelf": old} if rule.is_transition else {"self": node}) is True
    except CelError:
        return False


@pytest.mark.parametrize("rule", CHECKED, ids=lambda rule: f"{rule.path}{rule.field}: {rule.message}"[:60])
@settings(max_examples=150)
@given(node=NODES, old=NODES)
def test_h5_the_check_of_a_rule_says_what_its_expression_says(rule: ValidationRule, node: Any, old: Any) -> None:
    assert rule.check is not None
    assert rule.check(node, old) == by_expression(rule, node, old)


def test_h5_every_rule_with_quantities_has_a_check() -> None:
    assert [
        rule.expression for rule in MODEL_DEPLOYMENT_RULES if "uantity(" in rule.expression and not rule.check
    ] == []
    assert len(CHECKED) == 24
