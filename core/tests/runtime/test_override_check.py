"""``spec.provider.overrides``: cases 40 to 42 of the Go project's edge list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.rules import FORBIDDEN_OVERRIDES, MAX_CPU, MAX_MEMORY
from airunway.runtime.report import located
from airunway.runtime.translate import check_overrides, merged, placed
from airunway.sdk.overrides import CPU, GPUS, MEMORY, REPLICAS, TEXT, choice, items, keys, typed

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "routerMode": {"type": "string", "enum": ["kv", "round-robin", "none"], "x-airunway-typed": True},
        "frontend": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"replicas": {"type": "integer", "minimum": 0}},
            "x-airunway-typed": True,
        },
        "spec": {"type": "object", "additionalProperties": True},
        "adapters": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "source": {"type": "object", "properties": {"image": {"type": "string"}}},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            },
        },
    },
}


def test_known_keys_pass_and_typed_ones_are_not_merged() -> None:
    result = check_overrides({"routerMode": "kv", "spec": {"a": {"b": 1}}}, SCHEMA)
    assert (result.errors, result.unknown) == ((), ())
    assert result.merge == {"spec": {"a": {"b": 1}}}


def test_a_typo_at_any_depth_is_named_with_the_nearest_key_and_passed_over() -> None:
    result = check_overrides({"frontend": {"replicsa": 2}, "routermode": "kv"}, SCHEMA)
    texts = {finding.path: finding.message for finding in result.unknown}
    assert set(texts) == {"spec.provider.overrides.frontend.replicsa", "spec.provider.overrides.routermode"}
    assert "did you mean 'replicas'?" in texts["spec.provider.overrides.frontend.replicsa"]
    assert "did you mean 'routerMode'?" in texts["spec.provider.overrides.routermode"]
    assert result.errors == ()


def test_a_typed_key_in_a_map_is_not_merged_either() -> None:
    schema = keys(server=keys(size=typed(choice("small", "large")), zone=TEXT), other=keys(deep=keys(size=typed(TEXT))))
    overrides = {"server": {"size": "large", "zone": "a"}, "other": {"deep": {"size": "x"}}}
    assert check_overrides(overrides, schema).merge == {"server": {"zone": "a"}}
    assert check_overrides({"server": {"zone": "a"}, "other": {}}, schema).merge == {
        "server": {"zone": "a"},
        "other": {},
    }


def test_a_wrong_value_names_its_field_once() -> None:
    (error,) = check_overrides({"size": "huge"}, keys(size=choice("small", "large"))).errors
    assert located(error) == "spec.provider.overrides.size: 'huge' is not one of ['small', 'large']"


def test_m3_unknown_keys_inside_lists_are_named_and_dropped() -> None:
    source = {"image": "a", "urls": ["http://169.254.169.254/x"], "volume": {"secret": "s"}}
    adapters = [{"labels": {"any": "key"}}, {"strenght": "1", "source": source}, [{"deeper": 1}]]
    result = check_overrides({"adapters": adapters}, SCHEMA)
    texts = {finding.path.removeprefix("spec.provider.overrides."): finding.message for finding in result.unknown}
    assert set(texts) == {"adapters[1].strenght", "adapters[1].source.urls", "adapters[1].source.volume"}
    assert "'adapters[1].source.urls'" in texts["adapters[1].source.urls"]
    assert "known keys: image" in texts["adapters[1].source.urls"]
    assert result.merge["adapters"][:2] == [{"labels": {"any": "key"}}, {"source": {"image": "a"}}]


def test_a_wrong_type_is_found_behind_many_unknown_keys() -> None:
    adapters = [*({"x": 0} for _ in range(100)), {"source": {"image": 3}}]
    result = check_overrides({"adapters": adapters}, SCHEMA)
    assert [finding.path for finding in result.errors] == ["spec.provider.overrides.adapters[100].source.image"]


def test_a_wrong_type_names_the_key() -> None:
    result = check_overrides({"frontend": {"replicas": "two"}}, SCHEMA)
    assert [finding.path for finding in result.errors] == ["spec.provider.overrides.frontend.replicas"]
    assert result.errors[0].reason == "InvalidOverride"


@pytest.mark.parametrize("key", sorted(FORBIDDEN_OVERRIDES))
def test_forbidden_keys_are_found_inside_lists_too(key: str) -> None:
    result = check_overrides({"spec": {"containers": [{"name": "x", key: True}]}}, SCHEMA)
    assert [finding.path for finding in result.errors] == [f"spec.provider.overrides.spec.containers[0].{key}"]


def test_a_provider_without_overrides_reports_every_key() -> None:
    empty: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    result = check_overrides({"anything": 1}, empty)
    assert [finding.path for finding in result.unknown] == ["spec.provider.overrides.anything"]
    assert "known keys: none" in result.unknown[0].message


@pytest.mark.parametrize("schema", [{}, {"type": "object"}])
def test_a_provider_that_says_nothing_of_overrides_takes_none_and_says_so(schema: dict[str, Any]) -> None:
    result = check_overrides({"anything": 1}, schema)
    assert [finding.path for finding in result.unknown] == ["spec.provider.overrides.anything"]
    assert result.merge == {}


SIZES = keys(frontend=keys(memory=MEMORY, cpu=CPU, gpus=GPUS, replicas=REPLICAS), pool=items(keys(memory=MEMORY)))


@pytest.mark.parametrize(
    ("frontend", "wrong"),
    [
        ({"memory": "4Ti", "cpu": "512", "gpus": 64, "replicas": 32}, []),
        ({"memory": 1024, "cpu": 0.5}, []),
        ({"memory": "4097Gi"}, ["memory"]),
        ({"memory": "-1"}, ["memory"]),
        ({"cpu": "512001m"}, ["cpu"]),
        ({"cpu": 1000000}, ["cpu"]),
        ({"memory": "a lot"}, ["memory"]),
        ({"memory": True}, ["memory"]),
        ({"gpus": 65, "replicas": 33}, ["gpus", "replicas"]),
    ],
    ids=str,
)
def test_sizes_in_overrides_obey_the_ceilings_of_the_spec(frontend: dict[str, Any], wrong: list[str]) -> None:
    errors = {finding.path: finding.message for finding in check_overrides({"frontend": frontend}, SIZES).errors}
    assert sorted(errors) == [f"spec.provider.overrides.frontend.{key}" for key in wrong]


def test_sizes_obey_their_ceilings_in_lists_too_and_the_ceilings_are_the_spec_s_own() -> None:
    (error,) = check_overrides({"pool": [{"memory": "1Gi"}, {"memory": "5Ti"}]}, SIZES).errors
    assert error.path == "spec.provider.overrides.pool[1].memory"
    assert f"must be between 0 and {MAX_MEMORY}" in error.message
    assert (MEMORY["x-airunway-ceiling"], CPU["x-airunway-ceiling"]) == (MAX_MEMORY, MAX_CPU)


def test_b2_unknown_keys_in_lists_are_passed_over_with_the_fragments_too() -> None:
    found = check_overrides({"pool": [{"memory": "1Gi", "memroy": "9Ti"}]}, SIZES)
    assert [finding.path for finding in found.unknown] == ["spec.provider.overrides.pool[0].memroy"]
    assert "did you mean 'memory'?" in found.unknown[0].message
    assert found.merge == {"pool": [{"memory": "1Gi"}]}


def test_merging_maps_merge_null_removes_and_lists_replace() -> None:
    base = {"a": {"b": 1, "c": 2}, "list": [1, 2], "gone": True}
    assert merged(base, {"a": {"c": 3, "d": 4}, "list": [9], "gone": None}) == {
        "a": {"b": 1, "c": 3, "d": 4},
        "list": [9],
    }
    assert base == {"a": {"b": 1, "c": 2}, "list": [1, 2], "gone": True}


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["routerMode", "frontend", "spec", "adapters", "x"]), json))
def test_any_json_gets_a_verdict(overrides: dict[str, Any]) -> None:
    result = check_overrides(overrides, SCHEMA)
    assert set(result.merge) <= {"spec", "adapters"}


def test_parts_of_the_overrides_are_merged_where_the_plugin_says_the_longest_path_first() -> None:
    overlay = {"resource": {"labels": {"a": "1"}, "machine": "m"}, "inference": {"preset": None}, "other": [1]}
    places = {"resource": "spec.template.resource", "resource.labels": "spec.labels", "inference": "spec.inference"}
    parts = list(placed(overlay, places))
    assert parts == [
        {"spec": {"labels": {"a": "1"}}},
        {"spec": {"inference": {"preset": None}}},
        {"spec": {"template": {"resource": {"machine": "m"}}}},
        {"other": [1]},
    ]
    assert overlay["resource"] == {"labels": {"a": "1"}, "machine": "m"}, "what was given stays as it was"
    assert list(placed(overlay, {})) == [overlay]
    assert list(placed({"a": 1}, {"a.b": "c", "d": "e"})) == [{"a": 1}]


@pytest.mark.parametrize("wrong", ["1.2.3\n", "1.2.3\n\n", " 1.2.3", "x1.2.3"])
def test_l1_a_pattern_ends_at_the_very_end(wrong: str) -> None:
    """In Python a newline may stand behind ``$``, and gets into what a shell reads (second security review, L1)."""
    version = {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}
    named = {"type": "object", "propertyNames": version, "additionalProperties": version}
    schema = keys(version=version, named=named, price={"type": "string", "pattern": r"^\d+\$"})
    assert check_overrides({"version": "1.2.3", "named": {"1.2.3": "1.2.3"}, "price": "5$ each"}, schema).errors == ()
    (found,) = check_overrides({"version": wrong}, schema).errors
    assert found.path == "spec.provider.overrides.version"
    assert "does not match" in found.message
    assert len(check_overrides({"named": {wrong: wrong}}, schema).errors) == 2
