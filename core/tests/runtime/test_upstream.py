"""Which version and transformer fit the CRDs that are installed (spec rulings 12 and 13; edge case 44)."""

from __future__ import annotations

from typing import Any

from airunway.plugins.contract import Transformer, UpstreamKind
from airunway.runtime.upstream import crd_facts, detect, schema_hash

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
