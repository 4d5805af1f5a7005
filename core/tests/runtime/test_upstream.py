"""Which version and transformer fit the CRDs that are installed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airunway.api import names
from airunway.plugins.contract import Transformer, Upstream, UpstreamKind
from airunway.resource import Resource
from airunway.runtime.crd_versions import (
    crd_facts,
    detect,
    newest_waits,
    pinned,
    schema_hash,
    translation_status,
    writer_of,
)

KIND = UpstreamKind(group="example.org", kind="Thing", plural="things", versions=("v1", "v1beta1"), primary=True)
OLD: dict[str, Any] = {"type": "object", "description": "old words", "properties": {"size": {"type": "integer"}}}
NEW: dict[str, Any] = {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}}


def crd(*versions: tuple[str, dict[str, Any], bool], established: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": "things.example.org"},
        "spec": {
            "versions": [
                {"name": name, "served": served, "schema": {"openAPIV3Schema": schema}}
                for name, schema, served in versions
            ]
        },
        "status": {"conditions": [{"type": "Established", "status": "True" if established else "False"}]},
    }


def transformer(name: str, version: str, *hashes: str) -> Transformer:
    return Transformer(name=name, api_version=f"example.org/{version}", schema_hashes=hashes)


REGISTRY = [
    transformer("beta", "v1beta1", schema_hash(OLD)[:12]),
    transformer("v1-old", "v1", schema_hash(OLD)),
    transformer("v1-new", "v1", schema_hash(NEW)),
]


def test_words_do_not_change_the_hash_but_a_property_named_description_does() -> None:
    reworded = {**OLD, "description": "new words"}
    assert schema_hash(reworded) == schema_hash(OLD)
    with_property = {**OLD, "properties": {**OLD["properties"], "description": {"type": "string"}}}
    assert schema_hash(with_property) != schema_hash(OLD)


def test_a_list_of_nothing_required_says_nothing_as_the_api_server_drops_it() -> None:
    inner = {"type": "object", "properties": {"required": {"type": "array", "default": []}}}
    assert schema_hash({**inner, "required": []}) == schema_hash(inner)
    assert schema_hash({**inner, "required": ["x"]}) != schema_hash(inner)
    assert schema_hash({"properties": {"required": []}}) != schema_hash({"properties": {}}), "there it is a name"


def test_the_preferred_served_version_is_taken_with_the_transformer_that_fits() -> None:
    found = detect(KIND, REGISTRY, crd_facts(crd(("v1beta1", OLD, True), ("v1", OLD, True))))
    assert found.upstream is not None
    assert (found.upstream.transformer.name, found.upstream.verified) == ("v1-old", True)
    assert found.reason == "SchemaSupported"


def test_a_version_that_is_not_served_is_passed_over() -> None:
    found = detect(KIND, REGISTRY, crd_facts(crd(("v1", OLD, False), ("v1beta1", OLD, True))))
    assert found.upstream is not None
    assert found.upstream.transformer.name == "beta"


def test_an_unknown_schema_gets_the_newest_transformer_unverified() -> None:
    changed = {**NEW, "properties": {"weight": {"type": "integer"}}}
    found = detect(KIND, REGISTRY, crd_facts(crd(("v1", changed, True))))
    assert found.upstream is not None
    assert (found.upstream.transformer.name, found.upstream.verified) == ("v1-new", False)
    assert schema_hash(changed)[:12] in found.message


def test_an_unknown_schema_is_refused_under_the_policy_fail() -> None:
    changed = {**NEW, "properties": {"weight": {"type": "integer"}}}
    found = detect(KIND, REGISTRY, crd_facts(crd(("v1", changed, True))), verify=False)
    assert (found.upstream, found.reason) == (None, "UnsupportedSchema")


def test_no_crd_and_one_that_is_not_established_are_both_not_installed() -> None:
    for facts in (None, crd_facts(crd(("v1", OLD, True), established=False))):
        assert detect(KIND, REGISTRY, facts).reason == "UpstreamNotInstalled"


def test_only_foreign_versions_served_names_both_sides() -> None:
    found = detect(KIND, REGISTRY, crd_facts(crd(("v2", NEW, True))))
    assert found.reason == "UnsupportedSchema"
    assert "v2" in found.message
    assert "v1, v1beta1" in found.message


# -------------------------------------------------------------------- kinds that are part of Kubernetes, or optional

DEPLOYMENT = UpstreamKind(group="apps", kind="Deployment", plural="deployments", versions=("v1",), builtin=True)


def test_g1_a_builtin_kind_needs_no_crd_and_no_hash() -> None:
    written = Transformer(name="web", api_version="apps/v1", kind="Deployment")
    found = detect(DEPLOYMENT, [written], None)
    assert found.upstream == Upstream(api_version="apps/v1", transformer=written)
    assert (found.reason, found.upstream.verified if found.upstream else None) == ("SchemaSupported", True)


def test_g1_a_builtin_kind_without_a_transformer_is_there_all_the_same() -> None:
    config_map = UpstreamKind(group="", kind="ConfigMap", plural="configmaps", versions=("v1",), builtin=True)
    for kind, where in ((DEPLOYMENT, "apps/v1"), (config_map, "v1")):
        upstream = detect(kind, [], None, verify=False).upstream
        assert upstream is not None
        assert (upstream.api_version, upstream.transformer.name, upstream.verified) == (where, "", True)


def test_g1_of_a_builtin_kind_s_versions_the_first_that_is_written_counts() -> None:
    kind = replace(DEPLOYMENT, versions=("v2", "v1"))
    upstream = detect(kind, [Transformer(name="web", api_version="apps/v1", kind="Deployment")], None).upstream
    assert upstream is not None
    assert upstream.api_version == "apps/v1"


@pytest.mark.parametrize("served", ["v1", "v1beta1"])
def test_g3_a_kind_that_is_only_named_is_taken_in_the_first_version_that_is_served(served: str) -> None:
    upstream = detect(KIND, [], crd_facts(crd((served, OLD, True)))).upstream
    assert upstream is not None
    assert (upstream.api_version, upstream.transformer.name) == (f"example.org/{served}", "")
    assert upstream.verified, "nothing is written by a transformer that could be wrong"


def test_g2_a_kind_of_other_group_and_same_name_is_another_kind() -> None:
    assert (KIND.key, replace(KIND, group="other.org").key, replace(KIND, group="").key) == (
        "Thing.example.org",
        "Thing.other.org",
        "Thing",
    )


def test_a_crd_that_is_cluster_scoped_is_refused() -> None:
    definition = crd(("v1", OLD, True))
    definition["spec"]["scope"] = "Cluster"
    found = detect(KIND, REGISTRY, crd_facts(definition))
    assert (found.upstream, found.reason) == (None, "UnsupportedSchema")
    assert "cluster-scoped" in found.message


def test_a_crd_that_is_being_deleted_is_not_installed() -> None:
    definition = crd(("v1", OLD, True))
    definition["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    assert detect(KIND, REGISTRY, crd_facts(definition)).reason == "UpstreamNotInstalled"


# ------------------------------------------------------------------------- what exists keeps its version


def primary(transformer_name: str, *, version: str = "v1") -> Resource:
    annotations = {names.TRANSFORMER: transformer_name}
    return {"apiVersion": f"example.org/{version}", "metadata": {"name": "llama", "annotations": annotations}}


INSTALLED = detect(KIND, REGISTRY, crd_facts(crd(("v1", NEW, True), ("v1beta1", OLD, True))))


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (None, ("v1", "v1-new")),
        ("v1-new", ("v1", "v1-new")),
        ("v1-old", ("v1", "v1-old")),
        ("beta", ("v1beta1", "beta")),
        ("gone", ("v1", "v1-new")),
        (7, ("v1", "v1-new")),
    ],
    ids=["none", "the newest", "an older one", "one of an older version", "one that this release lacks", "any JSON"],
)
def test_ruling_27_a_kind_is_written_by_the_transformer_of_the_revision(
    recorded: object, expected: tuple[str, str]
) -> None:
    found = pinned(INSTALLED, REGISTRY, recorded)
    assert found is not None
    assert (found.api_version.removeprefix("example.org/"), found.transformer.name) == expected
    assert newest_waits(found, INSTALLED) == (expected[1] != "v1-new")


def test_ruling_27_a_version_that_is_not_served_any_more_is_left_for_the_newest() -> None:
    installed = detect(KIND, REGISTRY, crd_facts(crd(("v1", NEW, True), ("v1beta1", OLD, False))))
    assert pinned(installed, REGISTRY, "beta") == installed.upstream


def test_a_provider_publishes_the_transformer_of_each_kind_that_it_can_write() -> None:
    missing = detect(KIND, REGISTRY, None)
    only_named = detect(KIND, [], crd_facts(crd(("v1", OLD, True))))
    kinds = {"Thing": INSTALLED, "Gone": missing, "Named": only_named}
    assert translation_status(kinds, settings={"image": "engine:1"}) == {
        "transformers": {"Thing": "v1-new"},
        "settings": {"image": "engine:1"},
    }


def test_where_nothing_can_be_written_nothing_is_kept() -> None:
    missing = detect(KIND, REGISTRY, None)
    assert pinned(missing, REGISTRY, "v1-old") is None
    assert not newest_waits(None, missing)


def test_who_wrote_an_object_is_known_by_its_note_else_by_its_version() -> None:
    names_of = {
        live["metadata"]["annotations"][names.TRANSFORMER]: writer_of(live, REGISTRY)
        for live in (primary("v1-old"), primary("gone"), primary("gone-too", version="v9"))
    }
    assert {name: found.name if found else None for name, found in names_of.items()} == {
        "v1-old": "v1-old",
        "gone": "v1-new",
        "gone-too": None,
    }
