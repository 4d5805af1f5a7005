"""`validate` beyond the CRD: it never raises, it walks overrides, it knows generated names; and the warnings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.modeldeployment import parse_deployment
from airunway.api.rules import FORBIDDEN_OVERRIDES
from airunway.cel import Evaluator
from airunway.resource import Resource
from airunway.validation import Violation, validate, warnings

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
FIELDS = (
    "model",
    "engine",
    "serving",
    "scaling",
    "resources",
    "provider",
    "env",
    "gateway",
    "storage",
    "volumes",
    "name",
    "size",
    "claimName",
    "mountPath",
    "purpose",
    "prefill",
    "decode",
    "gpu",
    "count",
    "type",
    "replicas",
    "memory",
    "cpu",
    "args",
    "extraArgs",
    "mode",
    "source",
    "id",
    "image",
    "overrides",
    "tolerations",
    "suspend",
)
near_misses = st.recursive(
    scalars | st.sampled_from(["vllm", "disaggregated", "custom", "modelCache", "1Gi", "/x", 1, 0, 65]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=20,
)


def deployment(spec: Any, **metadata: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", **metadata},
        "spec": spec,
    }


def messages(obj: Any, **options: Any) -> list[str]:
    return [str(violation) for violation in validate(obj, **options)]


@given(json_values)
def test_any_json_gives_violations_and_no_exception(value: Any) -> None:
    for obj in (value, deployment(value), {**deployment({"model": {"id": "a"}}), "metadata": value}):
        for violation in validate(obj, old=value):
            assert violation.message
            assert violation.reason.startswith("FieldValue")
        assert isinstance(warnings(obj), list)


@given(near_misses, st.sampled_from(list(Evaluator)))
def test_near_misses_give_violations_and_what_is_valid_can_be_read(value: Any, evaluator: Evaluator) -> None:
    obj = deployment({"model": {"id": "a"}, **value} if isinstance(value, dict) else value)
    if not validate(obj, old=deployment({"model": value}), evaluator=evaluator):
        assert parse_deployment(obj).metadata.name == "llama"


@given(near_misses)
def test_both_evaluators_find_the_same(value: Any) -> None:
    obj = deployment({"model": {"id": "a"}, **value} if isinstance(value, dict) else value)
    assert validate(obj, evaluator=Evaluator.CEL_CPP) == validate(obj, evaluator=Evaluator.CEL_PYTHON)


def test_very_deep_values_are_refused() -> None:
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = {"a": [deep]}
    obj = deployment({"model": {"id": "a"}, "provider": {"overrides": {"x": deep}}, "affinity": {"x": deep}})
    assert messages(obj) == ["spec: nested more than 64 deep: no setting needs that, write it flatter"]
    assert messages(deployment(deep)) != []


def test_fairly_deep_values_are_accepted() -> None:
    deep: Any = "bottom"
    for _ in range(60):
        deep = {"a": deep}
    assert validate(deployment({"model": {"id": "a"}, "provider": {"overrides": deep}})) == []


@pytest.mark.parametrize("obj", [None, [], "x", 1, {}, {"kind": "ModelDeployment"}, {"kind": ["x"], "apiVersion": 1}])
def test_what_is_not_of_our_kinds_is_one_violation(obj: Any) -> None:
    assert len(validate(obj)) == 1


def test_the_group_of_other_versions_is_named() -> None:
    found = messages({"apiVersion": "kubeairunway.ai/v1alpha1", "kind": "ModelDeployment"})
    assert found == [
        "kind: must be ModelDeployment, InferenceProviderConfig, RuntimeConfig, ClusterRuntimeConfig, ModelArtifact, "
        "ModelTemplate, ClusterModelTemplate or ModelSource of airunway.ai/v1alpha1, not ModelDeployment of "
        "kubeairunway.ai/v1alpha1"
    ]


def test_a_whole_double_is_not_an_integer() -> None:
    """The API server's own answer depends on the field; kubectl and `airunway validate` turn 2.0 into 2 before."""
    assert messages(deployment({"model": {"id": "a"}, "scaling": {"replicas": 2.0}})) == [
        "spec.scaling.replicas: must be of type integer, not number"
    ]


def test_status_is_not_looked_at() -> None:
    assert validate({**deployment({"model": {"id": "a"}}), "status": {"phase": 3}}) == []


@pytest.mark.parametrize("key", sorted(FORBIDDEN_OVERRIDES))
def test_forbidden_overrides_are_found_at_any_depth(key: str) -> None:
    overrides = {"fine": {"list": [{"x": 1}, {key: {"hostPath": 1}}]}, key: None, "replicas": 3, "resources": {}}
    found = messages(deployment({"model": {"id": "a"}, "provider": {"overrides": overrides}}))
    paths = {message.split(": ")[0] for message in found}
    assert paths == {f"spec.provider.overrides.{key}", f"spec.provider.overrides.fine.list[1].{key}"}
    assert all(f"{key} cannot be overridden" in message for message in found)


def test_rules_run_beside_forbidden_overrides() -> None:
    spec = {"model": {"id": "a"}, "engine": {"type": "vllm"}, "provider": {"overrides": {"hostNetwork": True}}}
    assert len(validate(deployment(spec))) == 2


def test_a_name_or_a_generated_name_is_needed() -> None:
    spec = {"model": {"id": "a"}}
    assert messages(deployment(spec, name=None)) == ["metadata.name: name or generateName is required"]
    assert messages({**deployment(spec), "metadata": None}) == ["metadata: required"]
    assert validate(deployment(spec, name=None, generateName="llama-")) == []
    generated = messages(deployment(spec, name=None, generateName="l" * 50))
    assert [message.split(":")[0] for message in generated] == ["metadata.name"]


def test_metadata_is_checked_too() -> None:
    spec = {"model": {"id": "a"}}
    assert messages(deployment(spec, labels={"a": 1})) == [
        "metadata.labels.a: must be of type string, not integer: put it in quotes"
    ]
    assert messages(deployment(spec, lables={})) == ["metadata.lables: unknown field, did you mean labels?"]


def test_transition_rules_need_the_old_object() -> None:
    volume = {"name": "a", "size": "1Gi", "mountPath": "/a"}
    old = deployment({"model": {"id": "a", "storage": {"volumes": [volume]}}})
    new = deployment({"model": {"id": "a"}})
    assert validate(new) == []
    assert len(validate(new, old=old)) == 1
    assert validate(new, old={}) == []


def test_a_name_is_judged_when_the_object_is_new() -> None:
    """As on the API server: an object that came in before the rule about names can still be changed."""
    old, new = (deployment({"model": {"id": model}}, name="8b") for model in ("a", "b"))
    assert [message.split(":")[0] for message in messages(new)] == ["metadata.name"]
    assert messages(new, old=old) == []


def test_a_violation_prints_with_its_path() -> None:
    assert str(Violation(path="spec.x", message="bad", reason="FieldValueInvalid")) == "spec.x: bad"
    assert str(Violation(path="", message="bad", reason="FieldValueInvalid")) == "bad"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"model": {"source": "custom", "servedName": "x"}}, ["servedName is ignored for custom source"]),
        ({"model": {"servedName": "x"}}, []),
        (
            {"model": {}, "engine": {"trustRemoteCode": True}},
            ["trustRemoteCode executes remote code: Python code of the model's repository runs in the pods"],
        ),
        ({"model": {}, "engine": {"trustRemoteCode": False}}, []),
        # Whether an image of TensorRT-LLM takes it is the provider's to say: releases from 1.0 on do.
        ({"model": {}, "engine": {"type": "trtllm", "contextLength": 1}}, []),
        ({"model": {}, "engine": {"type": "vllm", "contextLength": 1}}, []),
    ],
)
def test_warnings(spec: Resource, told: list[str]) -> None:
    assert warnings(deployment(spec)) == told
