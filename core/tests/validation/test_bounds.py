"""How large a deployment may be: found out at once, whatever it is, and told with field and limit (H1, C1)."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api import bounds
from airunway.api.bounds import MAX_CAUSES, MAX_DEPTH, MAX_KEY, MAX_SPEC, is_modest, size_of
from airunway.json_path import MAX_PATH, JsonPath, entries, shortened
from airunway.resource import Resource
from airunway.runtime.translate import check_overrides
from airunway.validation import validate
from airunway.validation.policy import parse_policy, violations

HUGE = 1_300_000
"""Bytes: nearly what an API server and its etcd take."""


def deployment(**spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama"},
        "spec": {"model": {"id": "org/model"}, **spec},
    }


def overridden(**overrides: Any) -> Resource:
    return deployment(provider={"name": "p", "overrides": overrides})


HOSTILE: dict[str, tuple[Resource, str]] = {
    "C1 long key": (overridden(**{"k" * 700_000: [0] * 350_000}), "spec.provider.overrides"),
    "preferred nodes": (
        overridden(resource={"preferredNodes": [0] * 650_000}),
        "spec.provider.overrides.resource",
    ),
    "unknown overrides": (overridden(**{f"key-{i}": 0 for i in range(90_000)}), "spec.provider.overrides"),
    "tolerations": (deployment(tolerations=[{}] * 430_000), "spec.tolerations"),
    "env": (deployment(env=[{"name": "A"}] * 100_000), "spec.env"),
    "forbidden overrides": (overridden(x=[{"kind": 0}] * 118_000), "spec.provider.overrides.x"),
    "empty lists": (overridden(x=[[]] * 430_000), "spec.provider.overrides.x"),
    "affinity": (deployment(affinity={"x": [{}] * 430_000}), "spec.affinity.x"),
    "one argument": (deployment(engine={"args": {"a": "x" * HUGE}}), "spec.engine.args.a"),
    "unknown fields": (deployment(**{f"field-{i}": 0 for i in range(90_000)}), "spec"),
}


@pytest.mark.parametrize("title", HOSTILE)
def test_what_is_too_large_is_one_problem_that_names_field_and_limit(title: str) -> None:
    obj, field = HOSTILE[title]
    assert len(orjson.dumps(obj)) > HUGE // 2
    (found,) = validate(obj)
    assert found.path == field
    assert "32 KiB" in found.message or f"{MAX_KEY} characters" in found.message
    assert len(str(found)) < 500


def test_c1_the_judgement_of_a_long_key_takes_no_memory() -> None:
    """1.4 MB with 700,000 bytes of key over 350,000 children: the product would be 245 GB."""
    code = """
import resource, sys
from airunway.api.bounds import excess
from airunway.plugins.contract import Finding
from airunway.process.deployment_cache import DeploymentProjection
from airunway.runtime.translate import check_overrides
from airunway.validation import validate
from airunway.validation.policy import parse_policy, violations
overrides = {"k" * 700_000: [0] * 350_000, "l" * 1000: {"m" * 700_000: {str(i): {"kind": 0} for i in range(1000)}}}
obj = {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "a", "namespace": "b"},
       "spec": {"model": {"id": "a"}, "provider": {"overrides": overrides}}}
policy = parse_policy("rules: [{images: [a], gpuTypes: [b]}]")
schema = {"type": "object", "properties": {"known": {}}}
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 192 * 2**20,) * 2)
assert len(validate(obj)) == 1
assert violations(policy, obj["spec"], engine=None, provider=None, namespace_labels={}) == []
found = check_overrides(overrides, schema)
assert len(found.errors) == 20 and all(len(finding.path) <= 256 for finding in found.errors)
assert excess(DeploymentProjection(["m"])(obj))
print("judged")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "judged\n", done.stderr


def entries_of(field: str, number: int) -> Resource:
    """A deployment with `number` entries in one field."""
    named = {f"a{i}": "b" for i in range(number)}
    return {
        "env": deployment(env=[{"name": f"A{i}", "value": "b"} for i in range(number)]),
        "tolerations": deployment(tolerations=[{"key": "a"}] * number),
        "imagePullSecrets": deployment(imagePullSecrets=[{"name": f"a{i}"} for i in range(number)]),
        "topologySpreadConstraints": deployment(topologySpreadConstraints=[{"maxSkew": 1}] * number),
        "nodeSelector": deployment(nodeSelector=named),
        "podTemplate.metadata.labels": deployment(podTemplate={"metadata": {"labels": named}}),
        "podTemplate.metadata.annotations": deployment(podTemplate={"metadata": {"annotations": named}}),
        "gateway.annotations": deployment(gateway={"annotations": named}),
        "affinity": deployment(affinity=named),
        "provider.overrides": overridden(**named),
    }[field]


COUNTS = {
    "env": bounds.MAX_ENV,
    "tolerations": bounds.MAX_TOLERATIONS,
    "imagePullSecrets": bounds.MAX_SECRETS,
    "topologySpreadConstraints": bounds.MAX_CONSTRAINTS,
    **dict.fromkeys(
        (
            "nodeSelector",
            "podTemplate.metadata.labels",
            "podTemplate.metadata.annotations",
            "gateway.annotations",
            "affinity",
            "provider.overrides",
        ),
        bounds.MAX_ENTRIES,
    ),
}


@pytest.mark.parametrize("field", COUNTS)
def test_each_count_has_its_limit(field: str) -> None:
    assert validate(entries_of(field, COUNTS[field])) == []
    assert [str(found) for found in validate(entries_of(field, COUNTS[field] + 1))] == [
        f"spec.{field}: must have at most {COUNTS[field]} items"
    ]


def test_values_have_their_limit() -> None:
    longest = "x" * bounds.MAX_VALUE
    assert validate(deployment(env=[{"name": "A", "value": longest}], engine={"args": {"a": longest}})) == []
    found = validate(deployment(env=[{"name": "A", "value": longest + "x"}], engine={"args": {"a": longest + "x"}}))
    assert {problem.path for problem in found} == {"spec.env[0].value", "spec.engine.args.a"}


def test_many_problems_are_told_in_bounded_words() -> None:
    found = validate(overridden(x=[{"kind": "k" * 100} for _ in range(200)], **{"y" * 500: {"z" * 500: {"kind": 0}}}))
    assert len(found) == MAX_CAUSES
    assert all(len(problem.path) <= MAX_PATH and len(problem.message) <= 1100 for problem in found)
    found = validate(deployment(**{f"modle{i}": 0 for i in range(1000)}))
    assert len(found) == MAX_CAUSES
    assert "(and 980 more problems)" in found[-1].message
    (problem,) = validate(deployment(model={"id": "a", "source": "x" * 20_000}))
    assert len(problem.message) < 300


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.parametrize("value", [b"\xff", {1, 2}, date(2026, 11, 22), float("nan")])
def test_what_is_no_json_has_a_size(value: Any) -> None:
    assert size_of({"a": [value]}, limit=100).length > 4


@given(json_values)
def test_the_size_is_that_of_the_json(value: Any) -> None:
    found = size_of(value, limit=10**6)
    text = orjson.dumps(value)
    # A trailing comma is counted for each list and object; floats are written in two ways.
    assert len(text) <= found.length <= len(text) * 1.5 + 2
    assert (found.over, found.too_deep, found.long_key) == (False, False, "")


@given(
    st.recursive(
        json_values | st.sampled_from(['"' * 600, "\\" * 600, "{" * 40, 'k:{"type":"Ready"}']),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(max_size=3) | st.sampled_from(["k" * 600, '\\"' * 300]), inner, max_size=4)
        ),
    ),
    st.integers(0, 300),
    st.lists(st.booleans(), max_size=80),
)
def test_what_is_modest_has_nothing_wrong(value: Any, limit: int, levels: list[bool]) -> None:
    for as_list in levels:
        value = [value] if as_list else {"a": value}
    found = size_of(value, limit=limit)
    if is_modest(value, limit=limit):
        assert (found.over, found.too_deep, found.long_key) == (False, False, "")


def test_what_is_usual_is_modest() -> None:
    condition = {"type": "Ready", "status": "True", "message": 'said: "yes"', "observedGeneration": 1}
    assert is_modest({"conditions": [condition] * 15, "phase": "Running"}, limit=8192)
    assert is_modest({"f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}}}}}, limit=1024)


@given(json_values, st.integers(0, 2000))
def test_looking_for_the_limit_ends_there(value: Any, limit: int) -> None:
    found = size_of([[value]] * 1000, limit=limit)
    assert found.over
    assert found.values <= limit + 1


def test_the_deepest_spec_is_accepted_and_one_deeper_is_not() -> None:
    def nested(levels: int) -> Any:
        value: Any = {}
        for _ in range(levels):
            value = {"a": value}
        return value

    assert validate(deployment(affinity=nested(MAX_DEPTH - 2))) == []
    assert [str(found) for found in validate(deployment(affinity=nested(MAX_DEPTH - 1)))] == [
        "spec: nested more than 64 deep: no setting needs that, write it flatter"
    ]


def test_a_spec_at_the_limit_is_accepted() -> None:
    obj = overridden(a="")
    room = MAX_SPEC - size_of(obj["spec"], limit=MAX_SPEC).length
    obj["spec"]["provider"]["overrides"]["a"] = "x" * room
    assert validate(obj) == []
    obj["spec"]["provider"]["overrides"]["a"] += "x"
    assert [found.path for found in validate(obj)] == ["spec.provider.overrides.a"]


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_large_metadata_is_named_too(field: str) -> None:
    obj = deployment()
    obj["metadata"][field] = {f"airunway.ai/{i}": "x" * 60 for i in range(100)}
    assert [found.path for found in validate(obj)] == [f"metadata.{field}"]


def test_annotations_of_others_do_not_count() -> None:
    obj = deployment()
    obj["metadata"]["annotations"] = {"example.com/notes": "x" * 100_000}
    assert validate(obj) == []


def test_a_change_away_from_what_is_too_large_is_judged_by_what_it_becomes() -> None:
    volume = {"name": "a", "size": "1Gi", "mountPath": "/a"}
    model = {"id": "a", "storage": {"volumes": [volume]}}
    old = deployment(model=model, tolerations=[{}] * 430_000)
    assert validate(deployment(model=model), old=old) == []
    assert [found.path for found in validate(deployment(model={"id": "a"}), old=old)] == ["spec.model.storage.volumes"]
    assert validate(deployment(), old=deployment(model={"id": ["x" * HUGE]})) == []


def test_places_make_a_path_for_what_is_told() -> None:
    found = {str(place): value for place, _, value in entries({"a": [{"b": 1}, 2], "c": {"d": None}}, "root")}
    assert found == {"root.a": [{"b": 1}, 2], "root.a[0].b": 1, "root.c": {"d": None}, "root.c.d": None}
    assert str(JsonPath(JsonPath(None, "x"), "y" * 1000)).startswith("x.yyy")
    assert len(shortened("p" * 1000)) == MAX_PATH
    assert shortened("a" * 300 + ".kind").endswith("aaa.kind")


def test_findings_and_policy_violations_are_bounded() -> None:
    schema = {"type": "object", "properties": {"nodes": {"type": "array", "items": {"type": "string"}}}}
    found = check_overrides({"nodes": [0] * 10_000, **{f"k{i}": 0 for i in range(1000)}}, schema)
    assert (len(found.errors), len(found.unknown)) == (MAX_CAUSES, MAX_CAUSES)
    policy = parse_policy("rules: [{images: [b]}]")
    images = overridden(x=[{"image": "a"}] * 500)["spec"]
    assert len(violations(policy, images, engine=None, provider=None, namespace_labels={})) == MAX_CAUSES
