"""The generated CRDs: structural, bounded, documented, and the files in the package are current."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import Field

import airunway.api
from airunway.api._deployment_status import UNSEEN
from airunway.api.base import ApiModel
from airunway.api.crds import SchemaError, custom_resource_definitions, schema_of, structural_schema, to_yaml, write
from airunway.api.rules import MODEL_DEPLOYMENT_RULES
from airunway.resource import Resource

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in custom_resource_definitions()}
KEYWORDS = {
    "additionalProperties",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minLength",
    "minimum",
    "maximum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}


def schema(kind: str) -> Resource:
    found: Resource = CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(node: Resource, path: str = "") -> Iterator[tuple[str, Resource]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for keyword, suffix in (("items", "[*]"), ("additionalProperties", ".*")):
        if keyword in node:
            yield from nodes(node[keyword], path + suffix)


def unstructural(node: Resource) -> Iterator[str]:
    """What of a node a structural schema must not have."""
    if unknown := node.keys() - KEYWORDS:
        yield f"keywords {sorted(unknown)}"
    if ("type" in node) == bool(node.get("x-kubernetes-int-or-string")):
        yield "a type beside int-or-string, or none"
    if "properties" in node and "additionalProperties" in node:
        yield "properties beside additionalProperties"
    listed = "items" in node and node.get("x-kubernetes-list-type") in ("atomic", "map", "set")
    if node.get("type") == "array" and not listed:
        yield "a list without items or without its type"
    if node.get("type") == "object" and not node.keys() & {
        "properties",
        "additionalProperties",
        "x-kubernetes-preserve-unknown-fields",
    }:
        yield "an object without fields"
    if missing := set(node.get("required", [])) - set(node.get("properties", {})):
        yield f"required fields that it has not: {sorted(missing)}"
    for key in node.get("x-kubernetes-list-map-keys", []):
        if key not in node["items"]["required"] or node["items"]["properties"][key]["type"] != "string":
            yield f"the key {key} is not a required text"


def test_the_schemas_are_structural() -> None:
    wrong = [
        f"{kind}{path}: {problem}"
        for kind in CRDS
        for path, node in nodes(schema(kind))
        for problem in unstructural(node)
    ]
    assert wrong == []
    assert set(unstructural({"type": "object", "oneOf": [], "required": ["a"]})) == {
        "keywords ['oneOf']",
        "an object without fields",
        "required fields that it has not: ['a']",
    }


def test_patterns_are_anchored() -> None:
    patterns = [node["pattern"] for kind in CRDS for _, node in nodes(schema(kind)) if "pattern" in node]
    assert len(patterns) >= 7
    assert [pattern for pattern in patterns if not (pattern.startswith("^") and pattern.endswith("$"))] == []


@pytest.mark.parametrize("kind", list(CRDS))
def test_every_property_is_described(kind: str) -> None:
    described = {path for path, node in nodes(schema(kind)) if node.get("description")}
    parts = ("[*]", ".*", "", ".metadata", ".metadata.name")
    bare = [path for path, _ in nodes(schema(kind)) if path not in described and not path.endswith(parts[:2])]
    assert [path for path in bare if path not in parts] == []


def test_the_server_writes_few_defaults() -> None:
    """What a user applies must come back as it was, but for these."""
    found = {path: node["default"] for path, node in nodes(schema("ModelDeployment")) if "default" in node}
    assert found == {
        ".spec.model.source": "huggingface",
        ".spec.model.storage.volumes[*].purpose": "custom",
        ".spec.resources.gpu.type": "nvidia.com/gpu",
        ".spec.scaling": {},  # so that kubectl scale and autoscalers find spec.scaling.replicas
        ".spec.scaling.replicas": 1,
        ".spec.scaling.prefill.replicas": 1,
        ".spec.scaling.prefill.gpu.type": "nvidia.com/gpu",
        ".spec.scaling.decode.replicas": 1,
        ".spec.scaling.decode.gpu.type": "nvidia.com/gpu",
        ".spec.serving.mode": "aggregated",
        ".status": UNSEEN,
    }


def test_lists_of_named_things_merge_by_name() -> None:
    found = {
        path: node["x-kubernetes-list-map-keys"]
        for kind in CRDS
        for path, node in nodes(schema(kind), kind)
        if node.get("x-kubernetes-list-type") == "map"
    }
    assert found == {
        "ModelDeployment.spec.model.storage.volumes": ["name"],
        "ModelDeployment.spec.imagePullSecrets": ["name"],
        "ModelDeployment.status.conditions": ["type"],
        "ModelDeployment.status.selection.candidates": ["name"],
        "InferenceProviderConfig.spec.capabilities.engines": ["name"],
        "InferenceProviderConfig.spec.upstream": ["group", "kind"],
        "InferenceProviderConfig.spec.installation.helmRepos": ["name"],
        "InferenceProviderConfig.spec.installation.helmCharts": ["name"],
        "InferenceProviderConfig.status.conditions": ["type"],
        "RuntimeConfig.spec.env": ["name"],
        "RuntimeConfig.spec.imagePullSecrets": ["name"],
        "RuntimeConfig.status.conditions": ["type"],
        "ClusterRuntimeConfig.spec.env": ["name"],
        "ClusterRuntimeConfig.spec.imagePullSecrets": ["name"],
        "ClusterRuntimeConfig.status.conditions": ["type"],
        "ModelArtifact.spec.env": ["name"],
        "ModelArtifact.spec.imagePullSecrets": ["name"],
        "ModelArtifact.status.conditions": ["type"],
        "ModelTemplate.spec.defaults.env": ["name"],
        "ModelTemplate.spec.imagePullSecrets": ["name"],
        "ModelTemplate.status.conditions": ["type"],
        "ClusterModelTemplate.spec.defaults.env": ["name"],
        "ClusterModelTemplate.spec.imagePullSecrets": ["name"],
        "ClusterModelTemplate.status.conditions": ["type"],
        "ModelSource.spec.imagePullSecrets": ["name"],
        "ModelSource.status.conditions": ["type"],
    }


@pytest.mark.parametrize(
    ("kind", "scope", "short_names", "categories", "columns", "wide"),
    [
        (
            "ModelDeployment",
            "Namespaced",
            ["md"],
            ["airunway", "all"],
            ["Phase", "Model", "Engine", "Provider", "Ready", "Reason", "Age"],
            ["Endpoint", "Share", "Message"],
        ),
        (
            "InferenceProviderConfig",
            "Cluster",
            ["ipc"],
            ["airunway"],
            ["Ready", "Version", "Upstream", "Heartbeat", "Age"],
            ["Reports"],
        ),
        ("RuntimeConfig", "Namespaced", ["artc"], ["airunway"], ["Storage-Class", "Routing", "Used-By", "Age"], []),
        (
            "ClusterRuntimeConfig",
            "Cluster",
            ["arcrtc"],
            ["airunway"],
            ["Storage-Class", "Routing", "Used-By", "Age"],
            [],
        ),
        (
            "ModelArtifact",
            "Namespaced",
            ["mart"],
            ["airunway"],
            ["Phase", "Source", "Progress", "Size", "Used-By", "Age"],
            ["Reason", "Message"],
        ),
    ],
)
def test_names_and_columns(
    kind: str, scope: str, short_names: list[str], categories: list[str], columns: list[str], wide: list[str]
) -> None:
    spec = CRDS[kind]["spec"]
    printed = spec["versions"][0]["additionalPrinterColumns"]
    assert (spec["scope"], spec["names"]["shortNames"], spec["names"]["categories"]) == (scope, short_names, categories)
    assert [column["name"] for column in printed if not column.get("priority")] == columns
    assert [column["name"] for column in printed if column.get("priority")] == wide
    paths = {path for path, _ in nodes(schema(kind))} | {".metadata.creationTimestamp"}
    # Of a list of conditions a filter picks one: what is left without it is a field of each.
    shown = [re.sub(r"\[\?\(@\.type==\"\w+\"\)\]", "[*]", column["jsonPath"]) for column in printed]
    shown = [path for each in shown for path in _alternatives(each)]
    assert [path for path in shown if path not in paths] == []


def _alternatives(path: str) -> list[str]:
    """The fields of a path whose value is one of several."""
    if not path.startswith(".*["):
        return [path]
    # What a template gives is free-form: its record is in the schema.
    fields = [
        each.replace("revision.template.spec.model.id", "revision.template") for each in re.findall(r"'(.+?)'", path)
    ]
    return [f"{'.status' if each.startswith('revision') else '.spec'}.{each}" for each in fields]


def test_every_rule_is_in_the_crd() -> None:
    attached = [
        rule["rule"]
        for _, node in nodes(schema("ModelDeployment"))
        for rule in node.get("x-kubernetes-validations", [])
    ]
    assert len(attached) == len(MODEL_DEPLOYMENT_RULES)
    assert [rule for rule in MODEL_DEPLOYMENT_RULES if not any(rule.expression in text for text in attached)] == []
    assert not any("x-kubernetes-validations" in node for _, node in nodes(schema_of("ModelDeployment")))


def test_rules_on_the_whole_object_leave_what_came_in_before_them_alone() -> None:
    """The API server never takes a whole object for unchanged: such a rule would hold back finalizers and status."""
    on_the_root = schema("ModelDeployment")["x-kubernetes-validations"]
    assert on_the_root
    assert [rule["message"] for rule in on_the_root if not rule.get("optionalOldSelf")] == []


def test_the_checked_in_files_are_current(tmp_path: Path) -> None:
    folder = Path(str(airunway.api.__file__)).parent / "crds"
    written = {path.name: path.read_text(encoding="utf-8") for path in write(tmp_path)}
    checked_in = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
    assert checked_in == written, "run: python -m airunway.api.crds"
    assert [yaml.load(text, Loader=yaml.CSafeLoader) for text in written.values()] == custom_resource_definitions()
    together = yaml.load_all(to_yaml(custom_resource_definitions()), Loader=yaml.CSafeLoader)
    assert list(together) == custom_resource_definitions()


class Union(ApiModel):
    field: int | str = 0


class Recursive(ApiModel):
    field: Recursive | None = None


class Exclusive(ApiModel):
    field: int = Field(default=1, gt=0)


class Anything(ApiModel):
    field: Any = None


@pytest.mark.parametrize("model", [Union, Recursive, Exclusive, Anything])
def test_what_a_crd_cannot_say_is_refused(model: type[ApiModel]) -> None:
    with pytest.raises(SchemaError, match=r"field"):
        structural_schema(model)
