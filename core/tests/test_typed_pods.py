"""Pods in the form of Kubernetes' Go types, against what those wrote (k8s.io/api v0.34.1, read and written as JSON)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airunway.quantity import canonical_quantity, parse_quantity, same_quantity
from airunway.typed_pods import typed_pods

ROWS: list[Any] = json.loads((Path(__file__).parent / "typed_pods.json").read_text(encoding="utf-8"))


def test_pods_have_the_form_in_which_go_writes_them() -> None:
    assert len(ROWS) == 6
    for row in ROWS:
        assert typed_pods(row["given"])["spec"] == row["written"]["spec"]
        assert typed_pods(row["written"]) == row["written"], "a second time changes nothing"


def test_pods_are_found_in_objects_of_any_kind_and_nothing_else_is_changed() -> None:
    obj = {"spec": {"a": [{"template": {"spec": {"containers": [{"name": "m"}]}}}], "limits": {}, "cpu": "0.5"}}
    found = typed_pods(obj)
    assert found["spec"].pop("a") == [{"template": {"spec": {"containers": [{"name": "m", "resources": {}}]}}}]
    assert found["spec"] == {"limits": {}, "cpu": "0.5"}
    assert obj["spec"]["a"] == [{"template": {"spec": {"containers": [{"name": "m"}]}}}], "the given one stays"


@given(st.from_regex(r"\A(0|[1-9][0-9]{0,12})(\.[0-9]{1,6})?(n|u|m|k|M|G|T|Ki|Mi|Gi|Ti)?\Z"))
def test_a_canonical_quantity_is_the_same_amount_in_one_form(text: str) -> None:
    found = canonical_quantity(text)
    assert canonical_quantity(found) == found
    if (Fraction(parse_quantity(text)) * 10**9).denominator == 1:
        assert same_quantity(found, text)
