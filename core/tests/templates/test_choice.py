"""Which template is chosen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api import names
from airunway.resource import Resource
from airunway.templates.choice import Choice, choose, request_of
from airunway.templates.contribution import contribution_of


def template(
    name: str,
    *,
    namespace: str = "",
    phase: str = "Ready",
    tier: int | None = None,
    source: str = "",
    **spec: Any,
) -> Resource:
    metadata: Resource = {"name": name, **({"namespace": namespace} if namespace else {})}
    if source:
        metadata["labels"] = {names.MODEL_SOURCE: source}
    status: Resource = {"phase": phase} if phase else {}
    if tier is not None:
        status["hardware"] = {"tier": tier}
    if phase not in ("", "Ready"):
        status |= {"reason": "GPUNotAvailable", "message": "no node has an MI300X"}
    return {"metadata": metadata, "spec": {"modelName": "org/m", **spec}, "status": status}


def unusable(template: Resource) -> str:
    return contribution_of(template).unusable


def chosen(*templates: Resource, **asked: str) -> Choice:
    request = request_of({"templateRef": asked or {"modelName": "org/m"}})
    assert request is not None
    own = [each for each in templates if "namespace" in each["metadata"]]
    shared = [each for each in templates if "namespace" not in each["metadata"]]
    found = choose(request, namespaced=own, cluster=shared, unusable=unusable, every=True)
    short = choose(request, namespaced=own, cluster=shared, unusable=unusable)
    assert (short.chosen, short.reason, short.message) == (found.chosen, found.reason, found.message)
    return found


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(template("z"), template("a", phase="Pending"), id="Ready"),
        pytest.param(template("z"), template("a", phase="NotAvailable", tier=9), id="hardware there"),
        pytest.param(template("z", namespace="team", optimized=False), template("a", optimized=True), id="namespace"),
        pytest.param(
            template("z", optimized=False), template("a", optimized=True, tier=9, source="vendor"), id="administrator"
        ),
        pytest.param(template("z", optimized=True), template("a", tier=9), id="optimised before not known"),
        pytest.param(template("z"), template("a", optimized=False, tier=9), id="not known before not optimised"),
        pytest.param(template("z", tier=3), template("a", tier=2, metric="latency"), id="GPU tier"),
        pytest.param(template("z", metric="latency"), template("a", metric="throughput", precision="fp4"), id="metric"),
        pytest.param(template("z", precision="fp8"), template("a", precision="bf16"), id="precision"),
    ],
)
def test_one_rule_after_the_other_decides(better: Resource, worse: Resource) -> None:
    for order in ((better, worse), (worse, better)):
        found = chosen(*order)
        assert found.chosen is not None, found.message
        assert found.chosen.key.name == "z"
        assert [each.key.name for each in found.candidates] == ["z", "a"]


def test_what_was_asked_for_passes_others_over() -> None:
    fast, wide = template("fast", metric="latency"), template("wide", metric="throughput")
    found = chosen(fast, wide, modelName="org/m", metric="throughput")
    assert found.chosen is not None
    assert found.chosen.key.name == "wide"
    (other,) = (each for each in found.candidates if each.against)
    assert other.against == "its metric is latency, and throughput was asked for"


def test_case_73_two_equal_templates_are_ambiguous() -> None:
    found = chosen(template("a"), template("b"))
    assert found.chosen is None
    assert found.reason == "TemplateSelectionAmbiguous"
    assert "ClusterModelTemplate a, ClusterModelTemplate b" in found.message


def test_none_that_can_be_used_says_what_speaks_against_each() -> None:
    assert chosen().reason == "TemplateNotFound"
    found = chosen(template("a", phase="NotAvailable"), template("b", phase=""))
    assert found.reason == "TemplateNotFound"
    assert "ClusterModelTemplate a: it is NotAvailable: no node has an MI300X" in found.message
    assert "ClusterModelTemplate b: it has no status" in found.message


def test_one_that_no_deployment_can_use_is_passed_over_whatever_its_status_says() -> None:
    far = template("far", optimized=True, modelSources=[{"uri": "s3://bucket/m"}])
    large = template("large", namespace="team", defaults={"env": [{"name": "A", "value": "x" * 20_000}]})
    found = chosen(far, large, template("plain"), template("worse", optimized=False))
    assert found.chosen is not None
    assert found.chosen.key.name == "plain"
    against = {each.key.name: (each.reason, each.against) for each in found.candidates if each.against}
    assert against["far"][0] == "InvalidSpec"
    assert against["far"][1].startswith("no deployment can use it: spec.modelSources: the weights are at s3://bucket/m")
    assert "spec.defaults: it gives" in against["large"][1]
    none = chosen(far, large)
    assert none.reason == "TemplateNotFound"
    assert "no deployment can use it: spec.modelSources" in none.message
    assert chosen(template("plain"), template("other"), far).reason == "TemplateSelectionAmbiguous"


def test_by_name_the_namespace_comes_first_and_no_catalogue_is_needed() -> None:
    own, shared = template("t", namespace="team", phase=""), template("t")
    found = chosen(own, shared, name="t")
    assert found.chosen is not None
    assert found.chosen.scope == "Namespace"
    absent = chosen(template("other"), name="t")
    assert (absent.reason, absent.candidates) == ("TemplateNotFound", ())
    missing = chosen(template("t", phase="NotAvailable"), name="t")
    assert (missing.chosen, missing.reason) == (None, "GPUNotAvailable")


@given(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4) | st.none(), max_size=4), st.data())
def test_any_json_is_considered(values: Resource, data: st.DataObject) -> None:
    any_template = {
        "metadata": {"name": "t"},
        "spec": {**values, "modelName": "org/m"},
        "status": data.draw(st.none() | st.just(values)),
    }
    assert isinstance(chosen(any_template), Choice)
    assert request_of({"templateRef": values}) is not None
