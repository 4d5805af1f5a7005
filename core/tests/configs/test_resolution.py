"""Resolution, merge and hash of runtime configs."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airunway.configs.canonical import canonical_duration, canonical_quantity, merge
from airunway.configs.resolution import (
    EffectiveConfig,
    GatewayChoice,
    Problem,
    Rollout,
    RoutingRequest,
    Scope,
    check,
    config_name,
    resolve,
    routing_request,
)
from airunway.resource import Resource, digest


def config(spec: Any, *, namespace: str = "ml-team", name: str = "default") -> Resource:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def effective(spec: Any = None, *, cluster: Any = None) -> EffectiveConfig:
    found = resolve(
        "default",
        namespaced=None if spec is None else config(spec),
        cluster=None if cluster is None else config(cluster, namespace=""),
    ).config
    assert found is not None
    return found


# ----------------------------------------------------------------------------------------------------------- resolution


@pytest.mark.parametrize("name", ["", "default"], ids=["C1", "C2"])
def test_no_default_config_is_no_config(name: str) -> None:
    found = resolve(name, namespaced=None, cluster=None)
    assert (found.name, found.config, found.missing) == ("default", None, False)


def test_c3_c4_a_named_config_is_missing() -> None:
    found = resolve("gpu", namespaced=None, cluster=None)
    assert (found.name, found.config, found.missing) == ("gpu", None, True)


def test_c6_without_inherit_only_the_namespace_counts() -> None:
    found = effective({}, cluster={"routing": {"gatewayRef": {"name": "shared"}}, "env": [{"name": "A", "value": "1"}]})
    assert found.scope is Scope.NAMESPACE
    assert found.routing.gateway is None
    assert found.env == ()


def test_a_config_is_named_by_kind_namespace_and_name() -> None:
    assert effective({}).title == f"RuntimeConfig {effective({}).namespace}/default"
    assert effective(cluster={}).title == "ClusterRuntimeConfig default"
    merged = effective({"inherit": "Cluster"}, cluster={})
    assert merged.title == f"RuntimeConfig {merged.namespace}/default with ClusterRuntimeConfig default"


def test_c7_inherit_merges_field_by_field() -> None:
    cluster = {
        "routing": {
            "enabled": True,
            "gatewayRef": {"name": "shared", "namespace": "gateways", "sectionName": "https"},
            "annotations": {"a": "1", "b": "1"},
        },
        "storage": {"pvcHeadroomPercent": 15, "accessMode": "ReadWriteOnce"},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}, {"name": "B", "value": "b"}],
        "labelPropagation": {"enabled": True, "match": ["a/*", "b/*", "c/*"]},
        "defaultStorageClassName": "fast",
    }
    namespace = {
        "inherit": "Cluster",
        "routing": {"enabled": False, "gatewayRef": {"name": "own"}, "annotations": {"b": ""}},
        "storage": {"pvcHeadroomPercent": 0},
        "env": [{"name": "C", "value": "c"}, {"name": "A", "value": "own"}],
        "labelPropagation": {"match": ["d/*"]},
    }
    found = effective(namespace, cluster=cluster)
    assert found.scope is Scope.MERGED
    assert found.routing.enabled is False
    assert found.routing.gateway == GatewayChoice(name="own")
    assert found.routing.annotations == {"a": "1", "b": ""}
    assert (found.storage.headroom_percent, found.storage.access_mode) == (0, "ReadWriteOnce")
    assert found.storage.class_name == "fast"
    assert found.env == ({"name": "A", "value": "own"}, {"name": "B", "value": "b"}, {"name": "C", "value": "c"})
    assert found.label_patterns == ("d/*",)
    assert found.status() == {
        "namespaceRef": {"kind": "RuntimeConfig", "namespace": "ml-team", "name": "default"},
        "scope": "Merged",
        "hash": found.hash,
    }
    assert effective({**namespace, "rollout": "Immediately"}, cluster=cluster).hash != found.hash
    assert effective(namespace, cluster={**cluster, "rollout": "Immediately"}).hash != found.hash


def test_c8_inherit_without_a_cluster_config_is_no_error() -> None:
    found = effective({"inherit": "Cluster", "rollout": "Immediately"})
    assert (found.scope, found.rollout, found.problems) == (Scope.NAMESPACE, Rollout.IMMEDIATELY, ())


def test_a_cluster_config_is_referred_to_without_namespace() -> None:
    found = effective(cluster={"rollout": "OnNextChange"})
    reference = {"kind": "ClusterRuntimeConfig", "name": "default"}
    assert found.status() == {"clusterRef": reference, "scope": "Cluster", "hash": found.hash}


def test_the_example_of_the_spec() -> None:
    spec = {
        "defaultStorageClassName": "team-ssd",
        "routing": {
            "enabled": True,
            "gatewayRef": {"name": "inference-gateway", "namespace": "gateways"},
            "pathTemplate": "/ml/{.metadata.namespace}/{.metadata.labels['project']}",
        },
    }
    found = effective(spec, cluster={"labelPropagation": {"enabled": True, "match": ["org.example/project"]}})
    assert found.status()["namespaceRef"] == {"kind": "RuntimeConfig", "namespace": "ml-team", "name": "default"}
    assert len(found.hash) == 64
    assert found.storage.class_name == "team-ssd"
    assert found.label_patterns == ()


# ----------------------------------------------------------------------------------------------------------------- hash


def test_the_hash_is_over_the_defaults_of_the_spec() -> None:
    assert effective({}).hash == digest(
        {
            "inherit": "None",
            "rollout": "OnNextChange",
            "maxConcurrentRollouts": 1,
            "storage": {"pvcHeadroomPercent": 10, "accessMode": "ReadWriteMany"},
            "labelPropagation": {"enabled": False},
            "statusPolicy": {"dependencyGracePeriod": "10s", "capacityBlockedAfter": "15m"},
        }
    )


DIVISOR = {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"rollout": "OnNextChange", "inherit": "None"}, {"inherit": "None", "rollout": "OnNextChange"}),
        ({"defaultStorageClassName": "fast"}, {"storage": {"defaultStorageClassName": "fast"}}),
        (
            {"env": [{"name": "A", "valueFrom": DIVISOR}]},
            {
                "env": [
                    {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1024Mi"}}}
                ]
            },
        ),
        ({"statusPolicy": {"capacityBlockedAfter": "90s"}}, {"statusPolicy": {"capacityBlockedAfter": "1m30s"}}),
        ({"routing": {"requestTimeout": "1h"}}, {"routing": {"requestTimeout": "3600s"}}),
        ({"inherit": "None", "maxConcurrentRollouts": 1}, {}),
        ({"routing": None, "rollout": None}, {}),
    ],
    ids=["key-order", "alias", "1Gi-1024Mi", "status-duration", "timeout", "defaults", "null"],
)
def test_c10_the_same_hash(one: Resource, other: Resource) -> None:
    assert effective(one).hash == effective(other).hash


def test_c10_metadata_never_counts() -> None:
    labelled = {**config({}), "metadata": {"name": "default", "namespace": "ml-team", "labels": {"a": "b"}}}
    found = resolve("default", namespaced=labelled, cluster=None).config
    assert found is not None
    assert found.hash == effective({}).hash


@pytest.mark.parametrize(
    "spec",
    [
        {"env": [{"name": "A", "value": "1"}]},
        {"maxConcurrentRollouts": 2},
        {"labelPropagation": {"enabled": True}},
        {"inherit": "Cluster"},
        {"aFieldOfALaterRelease": 0},
        {"storage": {"aFieldOfALaterRelease": None, "other": "1Gi"}},
    ],
)
def test_a_change_moves_the_hash(spec: Resource) -> None:
    assert effective(spec).hash != effective({}).hash


def test_c26_unknown_fields_are_merged_and_kept_as_they_are_stored() -> None:
    found = effective(
        {"inherit": "Cluster", "later": {"b": "60s"}, "laterList": []},
        cluster={"later": {"a": "1024Mi", "b": 1}, "laterList": [1], "storage": {"later": "60s"}},
    )
    assert found.spec["later"] == {"a": "1024Mi", "b": "60s"}
    assert found.spec["laterList"] == []
    assert found.spec["storage"]["later"] == "60s"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("60s", "1m"),
        ("1h30m", "1h30m"),
        ("5400s", "1h30m"),
        ("1500ms", "1s500ms"),
        ("0s", "0s"),
        ("99999h99999h", "99999h99999h"),
        ("soon", "soon"),
        ("", ""),
        (5, 5),
        ("-1s", "-1s"),
        ("1.5h", "1.5h"),
    ],
)
def test_durations(value: Any, expected: Any) -> None:
    assert canonical_duration(value) == expected
    assert canonical_duration(expected) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1024Mi", "1Gi"),
        ("1Gi", "1Gi"),
        (1, "1"),
        ("1000m", "1"),
        ("1m", "1m"),
        ("0.001", "1m"),
        ("1M", "1M"),
        ("1T", "1T"),
        ("1048576", "1Mi"),
        ("0", "0"),
        ("much", "much"),
        ("1e999", "1e999"),
        (None, None),
    ],
)
def test_quantities(value: Any, expected: Any) -> None:
    assert canonical_quantity(value) == expected
    assert canonical_quantity(expected) == expected


# ---------------------------------------------------------------------------------------------------------------- views


def test_views_have_the_defaults() -> None:
    found = effective({})
    assert (found.env, found.image_pull_secrets, found.token, found.label_patterns) == ((), (), "", ())
    assert (found.storage.class_name, found.storage.headroom_percent) == ("", 10)
    assert (found.status_policy.grace, found.status_policy.patience) == (timedelta(seconds=10), timedelta(minutes=15))
    assert (found.rollout, found.max_concurrent_rollouts) == (Rollout.ON_NEXT_CHANGE, 1)
    assert (found.routing.enabled, found.routing.path_template, found.routing.request_timeout) == (None, None, "")


def test_c28_token_and_pull_secrets() -> None:
    found = effective({"secrets": {"huggingFaceToken": "hf"}, "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]})
    assert (found.token, found.image_pull_secrets) == ("hf", ("a",))


@pytest.mark.parametrize(
    ("enabled", "template", "default", "expected"),
    [
        (None, None, None, RoutingRequest.WHERE_POSSIBLE),
        (None, "", None, RoutingRequest.WHERE_POSSIBLE),
        (False, None, True, RoutingRequest.OFF),
        (False, "/a", None, RoutingRequest.OFF),
        (None, None, False, RoutingRequest.OFF),
        (None, "/a", False, RoutingRequest.OFF),
        (True, None, False, RoutingRequest.REQUIRED),
        (True, None, None, RoutingRequest.REQUIRED),
        (None, "/a", None, RoutingRequest.REQUIRED),
        (None, None, True, RoutingRequest.REQUIRED),
    ],
)
def test_routing_request(enabled: Any, template: Any, default: Any, expected: RoutingRequest) -> None:
    deployment = {"spec": {"gateway": {"enabled": enabled, "pathTemplate": template}}}
    assert routing_request(deployment, effective({"routing": {"enabled": default}})) is expected
    if default is None:
        assert routing_request(deployment, None) is expected


# ------------------------------------------------------------------------------------------------------------- problems


def test_c20_a_broken_pattern_and_a_broken_template_are_named() -> None:
    spec = {
        "labelPropagation": {"enabled": True, "match": ["a/*", "b/[bad"]},
        "routing": {"pathTemplate": "/x/{.metadata[}"},
    }
    problems = {problem.field: problem.message for problem in check(config(spec))}
    assert set(problems) == {"spec.labelPropagation.match[1]", "spec.routing.pathTemplate"}
    assert "at character 3;" in problems["spec.labelPropagation.match[1]"]
    assert "at character 15:" in problems["spec.routing.pathTemplate"]
    assert effective(spec).problems == check(config(spec))


@pytest.mark.parametrize(("length", "large"), [(32 * 1024, True), (40 * 1024, True), (32 * 1024 - 100, False)])
def test_c27_large_pod_settings_are_said(length: int, large: bool) -> None:
    spec = {"env": [{"name": "A", "value": "x" * length}]}
    assert effective(spec).too_large is large
    assert [problem.field for problem in check(config(spec))] == (["spec.env"] if large else [])


def test_c27_the_limit_is_32_kib_of_json() -> None:
    rest = len(b'{"env":[{"name":"A","value":""}],"imagePullSecrets":[],"token":""}')
    assert not effective({"env": [{"name": "A", "value": "x" * (32 * 1024 - rest)}]}).too_large
    assert effective({"env": [{"name": "A", "value": "x" * (32 * 1024 - rest + 1)}]}).too_large


def test_c27_two_configs_that_are_too_large_together() -> None:
    half = 20 * 1024
    found = effective(
        {"inherit": "Cluster", "env": [{"name": "A", "value": "x" * half}]},
        cluster={"env": [{"name": "B", "value": "x" * half}]},
    )
    assert found.too_large
    assert [problem.field for problem in found.problems] == ["spec.env"]


@pytest.mark.parametrize("obj", [{}, None, [], {"spec": None}, {"spec": {"runtimeConfigName": 5}}, {"spec": []}])
def test_the_name_is_default_where_none_is_usable(obj: Any) -> None:
    assert config_name(obj) == "default"


# ----------------------------------------------------------------------------------------------------------------- laws

FIELDS = st.sampled_from(
    [
        "inherit",
        "rollout",
        "maxConcurrentRollouts",
        "defaultStorageClassName",
        "storage",
        "pvcHeadroomPercent",
        "routing",
        "gatewayRef",
        "pathTemplate",
        "requestTimeout",
        "annotations",
        "enabled",
        "env",
        "name",
        "value",
        "valueFrom",
        "resourceFieldRef",
        "divisor",
        "imagePullSecrets",
        "secrets",
        "huggingFaceToken",
        "labelPropagation",
        "match",
        "statusPolicy",
        "dependencyGracePeriod",
        "later",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["Cluster", "60s", "1024Mi", "/{.a}", "[bad", "*", ""])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=12,
)
SPECS = st.dictionaries(FIELDS, VALUES, max_size=8)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(each) for key, each in reversed(value.items())}
    return [reordered(each) for each in value] if isinstance(value, list) else value


def everything(upper: Any, lower: Any) -> None:
    """Everything that is asked of two configs, for any JSON."""
    before = copy.deepcopy((upper, lower))
    found = resolve("x", namespaced=upper, cluster=lower)
    again = resolve("x", namespaced=reordered(upper), cluster=reordered(lower))
    assert repr((upper, lower)) == repr(before)
    assert (found.config is None) is not (isinstance(upper, dict) or isinstance(lower, dict))
    for each in (upper, lower):
        assert all(isinstance(problem, Problem) for problem in check(each))
    if found.config is None or again.config is None:
        assert found.missing
        return
    effective = found.config
    assert effective.hash == again.config.hash
    assert len(effective.hash) == 64
    assert merge(effective.spec, effective.spec) == effective.spec
    assert effective.routing.request_timeout is not None
    assert effective.storage.headroom_percent >= 0
    assert effective.status_policy.grace >= timedelta()
    assert effective.max_concurrent_rollouts >= 1
    assert all(entry["name"] for entry in effective.env)
    assert all(isinstance(name, str) for name in (*effective.image_pull_secrets, *effective.label_patterns))
    assert effective.rollout in Rollout
    assert effective.token is not None
    # What is canonical stays the same when it is stored and read again.
    stored = resolve("x", namespaced={"spec": effective.spec}, cluster=None).config
    assert stored is not None
    assert stored.hash == effective.hash
    routing_request({"spec": upper}, effective)


@example(upper={"defaultStorageClassName": []}, lower={"defaultStorageClassName": [], "storage": []})
@given(upper=SPECS, lower=SPECS)
def test_any_spec_has_a_result(upper: Any, lower: Any) -> None:
    everything({"spec": upper}, {"spec": lower})
    everything({"spec": {**upper, "inherit": "Cluster"}}, {"spec": lower})


@given(upper=VALUES, lower=VALUES)
def test_any_config_has_a_result(upper: Any, lower: Any) -> None:
    everything(upper, lower)
    everything({"spec": upper, "metadata": lower}, {"spec": lower, "metadata": upper})


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=100_000, deadline=None)
@given(upper=SPECS, lower=SPECS)
def test_any_of_100_000_specs_has_a_result(upper: Any, lower: Any) -> None:
    everything({"spec": {**upper, "inherit": "Cluster"}}, {"spec": lower})


@given(upper=SPECS, lower=SPECS)
def test_a_merge_made_again_changes_nothing(upper: Any, lower: Any) -> None:
    upper = effective(upper).spec
    lower = effective(lower).spec
    merged = merge(lower, upper)
    assert merge(lower, merged) == merged


def nested(depth: int, make: Any) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = make(value)
    return value


@pytest.mark.parametrize("depth", [100, 199, 260, 900, 5_000])
@pytest.mark.parametrize("make", [lambda inner: {"a": inner}, lambda inner: [inner]], ids=["objects", "lists"])
def test_a_deep_config_has_a_result(depth: int, make: Any) -> None:
    for field in ("later", "env", "routing"):
        deep = {"spec": {field: nested(depth, make), "inherit": "Cluster"}}
        found = resolve("x", namespaced=deep, cluster=deep).config
        assert found is not None
        assert len(found.hash) == 64
        check(deep)


def test_huge_lists_have_a_result() -> None:
    spec = {
        "env": [{"name": f"V{number}", "value": "x"} for number in range(50_000)],
        "labelPropagation": {"enabled": True, "match": ["[bad"] * 10_000},
    }
    found = effective(spec)
    assert found.too_large
    assert len(found.problems) == 10_001
