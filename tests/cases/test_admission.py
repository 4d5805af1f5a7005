"""Cases about what a spec may say: pure, by the rules that the CRD carries and by those of the shared runtime."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.api.modeldeployment import parse_deployment
from airunway.engines.arguments import engine_arguments
from airunway.engines.tables import FLAG_TABLES
from airunway.resource import Resource
from airunway.runtime.report import located
from airunway.runtime.translate import check_overrides, merged
from airunway.validation import validate

SCHEMA: Resource = {
    "type": "object",
    "properties": {
        "routerMode": {"type": "string", "enum": ["kv", "round-robin"], "x-airunway-typed": True},
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "names": {"type": "array", "items": {"type": "string"}},
                "free": {"type": "object", "additionalProperties": True},
            },
        },
    },
}


def deployment(name: str = "llama", **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"model": {"id": "org/model"}, **spec},
    }


def problems(obj: Resource) -> dict[str, str]:
    return {violation.path: violation.message for violation in validate(obj)}


def disaggregated(*, prefill: int, decode: int) -> Resource:
    roles = {"prefill": prefill, "decode": decode}
    scaling = {role: {"replicas": 1, "memory": "8Gi", "gpu": {"count": count}} for role, count in roles.items()}
    return deployment(engine={"type": "vllm"}, serving={"mode": "disaggregated"}, scaling=scaling)


@pytest.mark.parametrize(("prefill", "decode", "role"), [(1, 0, "decode"), (0, 1, "prefill")])
def test_case_39_both_roles_of_a_disaggregated_deployment_need_gpus(prefill: int, decode: int, role: str) -> None:
    found = problems(disaggregated(prefill=prefill, decode=decode))
    assert found == {f"spec.scaling.{role}.gpu.count": f"Disaggregated mode requires scaling.{role}.gpu.count"}
    assert problems(disaggregated(prefill=1, decode=1)) == {}


def test_case_23_zero_replicas_of_a_role_are_accepted() -> None:
    obj = disaggregated(prefill=1, decode=1)
    obj["spec"]["scaling"]["decode"]["replicas"] = 0
    assert problems(obj) == {}


def test_case_40_a_typed_override_is_read_and_not_merged() -> None:
    found = check_overrides({"routerMode": "kv", "spec": {"replicas": 2}}, SCHEMA)
    assert (found.errors, found.unknown, found.merge) == ((), (), {"spec": {"replicas": 2}})


def test_case_40_a_misspelt_override_is_a_warning_with_path_and_nearest_key() -> None:
    found = check_overrides({"spec": {"replicsa": 2}}, SCHEMA)
    assert found.errors == ()
    assert [finding.path for finding in found.unknown] == ["spec.provider.overrides.spec.replicsa"]
    assert "did you mean 'replicas'?" in found.unknown[0].message
    assert found.merge == {"spec": {}}


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"routerMode": "nope"}, "routerMode"),
        ({"routerMode": 1}, "routerMode"),
        ({"spec": {"replicas": "two"}}, "spec.replicas"),
        ({"spec": {"replicas": [2]}}, "spec.replicas"),
        ({"spec": "text"}, "spec"),
        ({"apiVersion": "v2"}, "apiVersion"),
    ],
    ids=str,
)
def test_case_40_a_wrong_type_or_a_key_that_is_not_allowed_is_an_error_that_names_it(
    overrides: Resource, path: str
) -> None:
    found = check_overrides(overrides, SCHEMA)
    assert {finding.path for finding in found.errors} == {f"spec.provider.overrides.{path}"}
    assert {finding.reason for finding in found.errors} == {"InvalidOverride"}
    assert {located(each).count(f"spec.provider.overrides.{path}") for each in found.errors} == {1}, "read once"


def test_case_40_null_removes_a_list_replaces_and_an_equal_number_changes_nothing() -> None:
    base = {"spec": {"replicas": 2, "names": ["a", "b"], "free": {"keep": 1, "drop": 2}}}
    overrides = {"spec": {"replicas": 2, "names": ["c"], "free": {"drop": None}}}
    found = check_overrides(overrides, SCHEMA)
    assert found.errors == ()
    assert merged(base, found.merge) == {"spec": {"replicas": 2, "names": ["c"], "free": {"keep": 1}}}
    assert merged(base, {"spec": {"replicas": 2}}) == base


FORBIDDEN = [
    "securityContext",
    "serviceAccountName",
    "serviceAccount",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "automountServiceAccountToken",
    "nodeName",
    "runtimeClassName",
    "hostPath",
    "apiVersion",
    "kind",
    "metadata",
    "status",
]


@pytest.mark.parametrize("key", FORBIDDEN)
@pytest.mark.parametrize("nest", [lambda x: x, lambda x: {"a": [[x]]}, lambda x: {"a": [1, {"b": x}]}], ids="123")
def test_case_42_a_security_key_in_overrides_is_refused_at_any_depth_by_core_and_provider(key: str, nest: Any) -> None:
    overrides = {"spec": {"free": nest({key: True})}}
    core = validate(deployment(provider={"name": "kaito", "overrides": overrides}))
    provider = check_overrides(overrides, SCHEMA).errors
    assert len(core) == len(provider) == 1
    assert core[0].path == provider[0].path
    assert core[0].path.endswith(f".{key}")


@pytest.mark.parametrize(("engine", "dialect"), list(FLAG_TABLES))
@pytest.mark.parametrize("key", ["--port", "-x", "größe", "a b", "", "a=b", "a;rm -rf", "a" * 129])
def test_case_43_a_key_of_engine_args_that_is_no_flag_stops_the_deployment_whatever_the_engine(
    engine: str, dialect: str, key: str
) -> None:
    """One validator for all providers; the CRD does not refuse it: `args` is also where a provider has its own keys."""
    obj = parse_deployment(deployment(engine={"type": engine, "args": {key: "1"}}))
    found = engine_arguments(obj, engine=engine, dialect=dialect)
    assert [error.path for error in found.errors] == [f"spec.engine.args[{key}]"]


@pytest.mark.parametrize(("engine", "dialect"), list(FLAG_TABLES))
@pytest.mark.parametrize("value", ["größe", "$(X); rm -rf /", "a b"])
def test_case_43_an_empty_value_is_a_bare_flag_and_any_text_is_a_value(engine: str, dialect: str, value: str) -> None:
    manifest = deployment(engine={"type": engine, "args": {"some-key": value, "a-flag": ""}})
    assert "spec.engine.args" not in str(problems(manifest))
    found = engine_arguments(parse_deployment(manifest), engine=engine, dialect=dialect)
    assert found.errors == ()
    words = list(found.argv)
    bare = next(word for word in words if word.lstrip("-").replace("_", "-") == "a-flag")
    after = words[words.index(bare) + 1]
    assert after.startswith("-"), "no value stands after a bare flag, not even an empty one"
    at = next(i for i, word in enumerate(words) if word.lstrip("-").replace("_", "-").startswith("some-key"))
    assert words[at].partition("=")[2] == value or words[at + 1] == value, "one word, whatever is in it"


@pytest.mark.parametrize("again", ["--max-num-seqs", "--max-num-seqs=8"])
def test_case_43_the_same_flag_in_args_and_extra_args_is_refused_by_name(again: str) -> None:
    engine = {"type": "llamacpp", "args": {"max-num-seqs": "4"}, "extraArgs": ["--other", again]}
    found = problems(deployment(engine=engine))
    assert len(found) == 1
    assert "--max-num-seqs is set in engine.args and in engine.extraArgs" in next(iter(found.values()))
    engine["extraArgs"] = ["--max-num-seqs-per-gpu=8"]
    assert problems(deployment(engine=engine)) == {}


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("a" * 48, True),
        ("a" * 52, True),
        ("a" * 53, False),
        ("a" * 54, False),
        ("a" * 60, False),
        ("a" * 64, False),
        ("7b", False),
        ("llama3.1", False),
        ("llama-", False),
        ("Llama", False),
    ],
)
def test_case_52_a_name_from_which_others_cannot_be_derived_is_refused_early_with_the_limit(
    name: str, accepted: bool
) -> None:
    found = problems(deployment(name))
    assert set(found) == (set() if accepted else {"metadata.name"})
    if len(name) > 52:
        assert "at most 52 characters" in found["metadata.name"]
        assert "derived" in found["metadata.name"]


def test_case_49_the_size_of_a_claim_may_be_written_in_another_way_and_only_grow() -> None:
    def sized(size: str) -> Resource:
        volume = {"name": "cache", "purpose": "modelCache", "size": size}
        return deployment(model={"id": "org/model", "storage": {"volumes": [volume]}})

    assert validate(sized("1024Mi"), old=sized("1Gi")) == []
    assert validate(sized("2Gi"), old=sized("1Gi")) == []
    assert [violation.path for violation in validate(sized("1Gi"), old=sized("2Gi"))] == [
        "spec.model.storage.volumes[0]"
    ]


@pytest.mark.parametrize("name", ["My-Config", " ", "a config", "c" * 300])
def test_aim_11_a_name_that_no_config_can_have_is_refused(name: str) -> None:
    assert problems(deployment(runtimeConfigName=name)).keys() == {"spec.runtimeConfigName"}
