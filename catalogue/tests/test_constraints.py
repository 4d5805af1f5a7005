"""Constraints on versions: each statement of the documentation as a row."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway_catalogue.scan import (
    InvalidConstraint,
    parse_constraint,
    parse_constraints,
    parse_version,
    satisfies,
)


@pytest.mark.parametrize(
    ("constraint", "yes", "no"),
    [
        ("=1.2", ["1.2", "v1.2", "1.2.0"], ["1.2.1", "1.3", "1", "1.2.0-rc1"]),
        ("!=1.2.3", ["1.2.4", "1.2.3-rc1"], ["1.2.3", "v1.2.3"]),
        (">1.2", ["1.2.1", "2", "1.10"], ["1.2", "1.2.0", "1.1.9", "1.2.0-rc1"]),
        (">=1.2", ["1.2", "1.2.0", "1.3.0-rc1", "v10.0.0"], ["1.2.0-rc1", "1.1.9", "0.9"]),
        ("<2", ["1.99.99", "2.0.0-rc1", "0"], ["2", "2.0", "v2.0.0", "2.0.1"]),
        ("<=2.0", ["2", "2.0.0", "1.9"], ["2.0.1", "2.1"]),
        (">= 0.9", ["0.9.0"], ["0.8.9"]),
        (">=v0.9", ["0.9.0"], ["0.8.9"]),
        (">=1.0.0-rc2", ["1.0.0-rc2", "1.0.0-rc3", "1.0.0"], ["1.0.0-rc1", "1.0.0-beta"]),
        (">=1.0.0-rc.2", ["1.0.0-rc.10", "1.0.0-rc.2.1"], ["1.0.0-rc.1", "1.0.0-beta.9", "1.0.0-rc"]),
        (">=20251001", ["20261125", "20251001"], ["20250101", "1.0"]),
    ],
)
def test_operators_compare_versions(constraint: str, yes: list[str], no: list[str]) -> None:
    wanted = parse_constraints([constraint])
    assert [tag for tag in yes if not satisfies(tag, wanted)] == []
    assert [tag for tag in no if satisfies(tag, wanted)] == []


def test_all_constraints_must_hold() -> None:
    wanted = parse_constraints([">=1.2", "<2", "!=1.5.0"])
    found = ["1.1", "1.2", "1.4.9", "1.5.0", "1.5.1", "2.0"]
    assert [tag for tag in found if satisfies(tag, wanted)] == ["1.2", "1.4.9", "1.5.1"]


@pytest.mark.parametrize(
    "text",
    [
        "~1.2",
        "^1",
        "1.x",
        "1.2.*",
        ">=1.x",
        "latest",
        ">=latest",
        "==1.2",
        "=>1.2",
        "~>1.2",
        "1.2 - 1.4",
        ">=1.2 <2",
        ">=1.2,<2",
        ">=1.2 || <1",
        "",
        "  ",
        ">=",
        ">=1.2.3.4",
        ">=1..2",
        ">=1.2-",
        ">=-1",
        ">=1.2+build",
        ">=١.٢",
        ">=" + "9" * 19,
        "in (1, 2)",
    ],
)
def test_what_cannot_be_read_is_refused_and_named(text: str) -> None:
    with pytest.raises(InvalidConstraint) as refused:
        parse_constraints([">=1", text])
    assert repr(text.strip()) in str(refused.value)


def test_a_version_without_operator_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidConstraint, match=r"write =1\.2 for exactly this version"):
        parse_constraint("1.2")


@pytest.mark.parametrize("tag", ["latest", "main", "nightly-2026", "1.2.3.4", "abc1.2", "", "1.2_rc", "sha256-ab", "v"])
def test_a_tag_that_is_no_version_matches_no_constraint_and_counts_without_one(tag: str) -> None:
    assert parse_version(tag) is None
    assert not satisfies(tag, parse_constraints(["!=0.0.1"]))
    assert not satisfies(tag, parse_constraints([">=0"]))
    assert satisfies(tag, ())


def test_versions_are_ordered_as_semantic_versioning_orders_them() -> None:
    ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
    ordered += ["1.0.0-rc.1", "1.0.0"]
    found = [version for text in ordered if (version := parse_version(text)) is not None]
    assert len(found) == len(ordered)
    assert all(before < after for before, after in itertools.pairwise(found))


@given(st.text(max_size=200))
def test_no_text_is_read_as_a_constraint_that_accepts_what_it_does_not_say(text: str) -> None:
    try:
        constraint = parse_constraint(text)
    except InvalidConstraint:
        return
    assert text.strip().startswith(constraint.operator)
    assert not satisfies("latest", [constraint])
