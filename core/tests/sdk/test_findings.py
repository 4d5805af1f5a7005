"""What several providers say of a deployment."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.sdk import (
    ModelDeployment,
    doubtful_split,
    gpus_of,
    like_a_flag,
    parse_deployment,
    role_fields,
    without_gpus,
)


def model(**spec: Any) -> ModelDeployment:
    return parse_deployment({"metadata": {"name": "llama"}, "spec": {"model": {"id": "o/m"}, **spec}})


def apart(prefill: int, decode: int) -> ModelDeployment:
    roles = {"prefill": {"gpu": {"count": prefill}}, "decode": {"gpu": {"count": decode}}}
    return model(serving={"mode": "disaggregated"}, scaling=roles)


def test_gpus_that_are_missing_are_named_by_the_field_that_counts() -> None:
    assert [found.path for found in without_gpus(model(), who="Acme")] == ["spec.resources.gpu.count"]
    found = list(without_gpus(apart(0, 1), who="Acme"))
    assert [finding.path for finding in found] == ["spec.scaling.prefill.gpu.count"]
    assert found[0].message == "Acme requires GPU (set scaling.prefill.gpu.count > 0)"


def test_workers_that_nobody_describes_are_as_large_as_a_replica() -> None:
    asked = model(serving={"mode": "disaggregated"}, resources={"gpu": {"count": 2}})
    assert [gpu for _, gpu in gpus_of(asked)] == [None, None]
    assert list(without_gpus(asked, who="Acme")) == []


@pytest.mark.parametrize(("prefill", "decode", "doubtful"), [(1, 1, False), (1, 2, False), (2, 1, True)])
def test_more_gpus_for_prefill_than_for_decode_are_doubtful(prefill: int, decode: int, doubtful: bool) -> None:
    assert bool(list(doubtful_split(apart(prefill, decode)))) is doubtful


def test_roles_have_a_meaning_in_disaggregated_mode_only() -> None:
    together = model(scaling={"decode": {"gpu": {"count": 1}}})
    assert [finding.path for finding in role_fields(together)] == ["spec.scaling.decode"]
    assert list(role_fields(apart(1, 1))) == []
    assert list(doubtful_split(together)) == []


def test_a_name_that_begins_with_a_dash_is_refused_where_it_stands() -> None:
    assert [finding.path for finding in like_a_flag("-x", "spec.engine.args[ggufUrl]")] == ["spec.engine.args[ggufUrl]"]
    assert list(like_a_flag("o/m")) == []
