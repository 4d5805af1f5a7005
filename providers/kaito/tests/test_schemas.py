"""The schema registry against the CRDs of every KAITO release that has v1beta1."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from airunway.resource import Resource, digest
from airunway_kaito.manifest import MANIFEST, SANDBOX_SCHEMAS, TRANSFORMERS, Feature
from airunway_testing.simulators import load_simulator

OLDEST = (0, 4, 5)


def hash_of(crd: Resource, version: str) -> str:
    schema = next(v["schema"]["openAPIV3Schema"] for v in crd["spec"]["versions"] if v["name"] == version)
    return digest(without_descriptions(schema), length=12)


def without_descriptions(node: object) -> object:
    """No property of KAITO's schemas is named `description`, except one of a metric, which is an object and stays."""
    if isinstance(node, dict):
        return {
            key: without_descriptions(value)
            for key, value in node.items()
            if key != "description" or not isinstance(value, str)
        }
    return [without_descriptions(value) for value in node] if isinstance(node, list) else node


def releases(upstream_crds: Path) -> Iterator[tuple[str, Resource]]:
    for path in sorted((upstream_crds / "kaito").glob("v*/workspaces.yaml")):
        if tuple(int(part) for part in path.parent.name[1:].split(".")) >= OLDEST:
            yield path.parent.name, yaml.safe_load(path.read_text())


def test_every_stored_release_has_a_transformer(upstream_crds: Path) -> None:
    by_hash = {short: t for t in TRANSFORMERS for short in t.schema_hashes}
    found = {release: by_hash[hash_of(crd, "v1beta1")].name for release, crd in releases(upstream_crds)}
    assert found == {
        "v0.4.5": "v1beta1-0.4.5-r3",
        "v0.4.6": "v1beta1-0.4.6-r3",
        "v0.7.0": "v1beta1-0.7-r3",
        "v0.8.0": "v1beta1-0.7-r3",
        "v0.9.0": "v1beta1-0.9-r3",
        "v0.10.0": "v1beta1-0.9-r3",
        "v0.12.0": "v1beta1-0.12-r3",
    }


def test_every_listed_release_is_covered_and_no_hash_is_made_up(upstream_crds: Path) -> None:
    index, of_the_chart = (
        (upstream_crds / "INDEX.md").read_text(),
        upstream_crds / "kaito/v0.11.0/inferencesets.chart.yaml",
    )
    for kind, sandbox, least, more in (
        ("", SANDBOX_SCHEMAS[0], 15, set()),
        ("InferenceSet", SANDBOX_SCHEMAS[1], 1, {hash_of(yaml.safe_load(of_the_chart.read_text()), "v1beta1")}),
    ):
        section = index.partition(f"## kaito / {kind.lower() or 'workspace'}s")[2].partition("\n## ")[0]
        listed = re.findall(r"^\| (\S+) \|.*v1beta1 storage `([0-9a-f]{12})`", section, re.MULTILINE)
        assert len(listed) > least
        registered = {short for t in TRANSFORMERS if t.kind == kind for short in t.schema_hashes}
        assert sorted(registered) == sorted({sandbox, *more, *(short for _, short in listed)})


def test_the_sandboxs_own_crds_are_known() -> None:
    found = {crd["spec"]["names"]["kind"]: crd for crd in load_simulator("kaito").custom_resource_definitions()}
    assert (hash_of(found["Workspace"], "v1beta1"), hash_of(found["InferenceSet"], "v1beta1")) == SANDBOX_SCHEMAS


def test_features_are_what_the_schemas_have(upstream_crds: Path) -> None:
    by_hash = {short: t for t in TRANSFORMERS for short in t.schema_hashes}
    for release, crd in releases(upstream_crds):
        schema = next(v["schema"]["openAPIV3Schema"] for v in crd["spec"]["versions"] if v["name"] == "v1beta1")
        properties = schema["properties"]
        preset = properties["inference"]["properties"]["preset"]["properties"]["presetOptions"]["properties"]
        features = by_hash[hash_of(crd, "v1beta1")].features
        assert (Feature.MODEL_ACCESS_SECRET in features) == ("modelAccessSecret" in preset), release
        assert (Feature.PARTITION in features) == ("partition" in properties["resource"]["properties"]), release


def test_every_override_is_a_field_of_the_newest_release(upstream_crds: Path) -> None:
    *_, (_, crd) = sorted(releases(upstream_crds), key=lambda item: [int(p) for p in item[0][1:].split(".")])
    schema = next(v["schema"]["openAPIV3Schema"] for v in crd["spec"]["versions"] if v["name"] == "v1beta1")

    def compare(ours: Resource, theirs: Resource, path: str) -> None:
        if theirs.get("x-kubernetes-preserve-unknown-fields"):
            return
        assert ours["type"] == theirs["type"] or path.endswith("mode"), path
        for name, property_ in ours.get("properties", {}).items():
            assert name in theirs["properties"], f"{path}.{name}"
            compare(property_, theirs["properties"][name], f"{path}.{name}")
        if "items" in ours:
            compare(ours["items"], theirs["items"], f"{path}[]")

    compare(MANIFEST.override_schema, schema, "")


def test_overrides_allow_nothing_that_identifies_or_sizes() -> None:
    properties = MANIFEST.override_schema["properties"]
    assert set(properties) == {"resource", "inference"}
    assert "count" not in properties["resource"]["properties"]
    assert properties["resource"]["properties"]["partition"]["properties"]["count"]["maximum"] == 64
