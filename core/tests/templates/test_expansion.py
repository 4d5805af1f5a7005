"""The effective spec: the deployment's own over what its template gives."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.crds import custom_resource_definitions
from airunway.resource import Resource
from airunway.templates.choice import request_of
from airunway.templates.contribution import contribution_of
from airunway.templates.expansion import effective, expand, is_default

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)

NODES = "requiredDuringSchedulingIgnoredDuringExecution"


def term(key: str) -> Resource:
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


def nodes(*terms: Resource) -> Resource:
    return {"nodeAffinity": {NODES: {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    ("own", "template", "expected"),
    [
        pytest.param({}, {"model": {"id": "org/m"}}, {"model": {"id": "org/m"}}, id="only the template's"),
        pytest.param(
            {"engine": {"enforceEager": False}, "env": []},
            {"engine": {"enforceEager": True, "contextLength": 8}, "env": [{"name": "A", "value": "1"}]},
            {"engine": {"enforceEager": False, "contextLength": 8}, "env": [{"name": "A", "value": "1"}]},
            id="an explicit false wins",
        ),
        pytest.param(
            {"env": [{"name": "B", "value": "own"}, {"name": "C", "value": "own"}]},
            {"env": [{"name": "A", "value": "t"}, {"name": "B", "value": "t"}]},
            {"env": [{"name": "A", "value": "t"}, {"name": "B", "value": "own"}, {"name": "C", "value": "own"}]},
            id="variables by name",
        ),
        pytest.param(
            {"engine": {"args": {"x": "1"}, "extraArgs": ["--own"]}},
            {"engine": {"args": {"x": "0", "y": "0"}, "extraArgs": ["--template"]}},
            {"engine": {"args": {"x": "1", "y": "0"}, "extraArgs": ["--own"]}},
            id="args by name, other lists whole",
        ),
        pytest.param(
            {"engine": {"type": "sglang"}},
            {"engine": {"type": "vllm", "args": {"x": "1"}}, "image": "vllm:1", "resources": {"gpu": {"count": 2}}},
            {"engine": {"type": "sglang"}, "resources": {"gpu": {"count": 2}}},
            id="flags and image of another engine do not count",
        ),
        pytest.param(
            {"resources": {"gpu": {"count": 4, "type": "nvidia.com/gpu"}}},
            {"resources": {"gpu": {"count": 2, "type": "amd.com/gpu"}}},
            {"resources": {"gpu": {"count": 4, "type": "amd.com/gpu"}}},
            id="what the API server wrote is no value of the deployment",
        ),
        pytest.param(
            {"resources": {"gpu": {"count": 1, "type": "nvidia.com/mig-1g.5gb"}}},
            {"resources": {"gpu": {"count": 2, "type": "amd.com/gpu"}}},
            {"resources": {"gpu": {"count": 1, "type": "nvidia.com/mig-1g.5gb"}}},
            id="another type is the deployment's own",
        ),
        pytest.param(
            {"resources": {"gpu": {"count": 1, "type": "nvidia.com/gpu"}}},
            {"resources": {"gpu": {"count": 2}}},
            {"resources": {"gpu": {"count": 1, "type": "nvidia.com/gpu"}}},
            id="a template without a type changes none",
        ),
        pytest.param(
            {"scaling": {"prefill": {"memory": "1Gi", "replicas": 1, "gpu": {"count": 1, "type": "nvidia.com/gpu"}}}},
            {"scaling": {"prefill": {"replicas": 3, "gpu": {"count": 8, "type": "amd.com/gpu"}}}},
            {"scaling": {"prefill": {"memory": "1Gi", "replicas": 1, "gpu": {"count": 1, "type": "amd.com/gpu"}}}},
            id="nor for a role, whose replicas are the deployment's own",
        ),
        pytest.param(
            {"affinity": nodes(term("a"), term("b"))},
            {"affinity": nodes(term("gpu"))},
            {
                "affinity": nodes(
                    {"matchExpressions": [*term("gpu")["matchExpressions"], *term("a")["matchExpressions"]]},
                    {"matchExpressions": [*term("gpu")["matchExpressions"], *term("b")["matchExpressions"]]},
                )
            },
            id="nodes have to be what both select",
        ),
    ],
)
def test_the_deployments_own_values_count_over_the_templates(
    own: Resource, template: Resource, expected: Resource
) -> None:
    assert expand(own, template) == expected


def test_of_each_default_that_the_api_server_writes_it_is_decided_whose_value_counts() -> None:
    crd = next(each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == "ModelDeployment")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    written = dict(_defaults(schema, ()))
    own = {
        ("model", "source"): "a template gives no source",
        ("model", "storage", "volumes", "purpose"): "a list of the deployment counts as a whole",
        ("scaling",): "empty",
        ("scaling", "replicas"): "replicas are always the deployment's own",
        ("scaling", "prefill", "replicas"): "the same",
        ("scaling", "decode", "replicas"): "the same",
        ("serving", "mode"): "the only field below it",
    }
    templates = {at for at, value in written.items() if is_default(value, at=at)}
    assert templates | own.keys() == written.keys()
    assert templates == {at for at in written if at[-2:] == ("gpu", "type")}


def _defaults(schema: Resource, at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each default of a schema, by the path of its field; entries of a list have the path of the list."""
    if at and "default" in schema:
        yield at, schema["default"]
    for field, below in schema.get("properties", {}).items():
        yield from _defaults(below, (*at, field))
    if "items" in schema:
        yield from _defaults(schema["items"], at)


def test_a_deployment_without_template_or_without_record_is_the_identical_object() -> None:
    plain = {"spec": {"model": {"id": "org/m"}}, "status": {"revision": {"template": {"spec": {"image": "x"}}}}}
    assert effective(plain) is plain
    unresolved = {"spec": {"templateRef": {"name": "t"}}}
    assert effective(unresolved) is unresolved


def test_the_effective_spec_has_the_reference_only_until_it_is_resolved() -> None:
    spec = {"templateRef": {"name": "t"}, "scaling": {"replicas": 3}}
    request = request_of(spec)
    assert request is not None
    record = {"asked": request.digest, "spec": {"model": {"id": "org/m"}}}
    resolved = effective({"spec": spec, "status": {"revision": {"template": record}}})
    assert resolved["spec"] == {"model": {"id": "org/m"}, "scaling": {"replicas": 3}}
    assert effective(resolved) is resolved
    other = effective({"spec": {**spec, "templateRef": {"name": "u"}}, "status": {"revision": {"template": record}}})
    assert other["spec"] == {**resolved["spec"], "templateRef": {"name": "u"}}


TEMPLATE: Resource = {
    "kind": "ModelTemplate",
    "metadata": {"name": "t", "namespace": "team"},
    "spec": {
        "modelName": "org/m",
        "hardware": {"gpu": {"count": 2, "type": "amd.com/gpu", "model": "MI300X"}, "cpu": "8"},
        "defaults": {"engine": {"type": "vllm"}, "resources": {"memory": "64Gi"}},
        "caching": {"enabled": True},
    },
    "status": {"hardware": {"requirements": [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]}},
}


def test_a_template_gives_model_hardware_and_defaults() -> None:
    found = contribution_of(TEMPLATE)
    assert found.problems == ()
    assert found.spec == {
        "model": {"id": "org/m", "cache": {"mode": "Shared"}},
        "resources": {"gpu": {"count": 2, "type": "amd.com/gpu"}, "cpu": "8", "memory": "64Gi"},
        "engine": {"type": "vllm"},
        "affinity": nodes(
            {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}
        ),
    }


@pytest.mark.parametrize(
    ("gpu", "defaults", "resources"),
    [
        ({"model": "H100"}, {}, {"gpu": {"count": 1}}),
        ({"minVram": "80Gi", "count": 0}, {}, {"gpu": {"count": 1}}),
        ({"model": "MI300X", "type": "amd.com/gpu"}, {}, {"gpu": {"count": 1, "type": "amd.com/gpu"}}),
        ({"model": "H100"}, {"resources": {"gpu": {"count": 4}}}, {"gpu": {"count": 4}}),
        ({"model": "H100", "count": 2}, {}, {"gpu": {"count": 2}}),
        ({"type": "amd.com/gpu"}, {}, {"gpu": {"type": "amd.com/gpu"}}),
        ({"model": "H100"}, {"serving": {"mode": "disaggregated"}}, None),
    ],
)
def test_a_gpu_model_without_a_count_is_one_gpu(gpu: Resource, defaults: Resource, resources: Resource | None) -> None:
    spec = {"modelName": "org/m", "hardware": {"gpu": gpu}, "defaults": defaults}
    assert contribution_of({"kind": "ModelTemplate", "spec": spec}).spec.get("resources") == resources


def test_what_a_template_cannot_give_is_named() -> None:
    spec = {
        "modelName": "org/m",
        "defaults": {
            "model": {"id": "x"},
            "scaling": {"replicas": 2},
            "provider": {"name": "p"},
            "secrets": {"a": "b"},
        },
    }
    found = contribution_of({"kind": "ClusterModelTemplate", "spec": spec})
    assert [each.field for each in found.problems] == [
        "spec.defaults.model",
        "spec.defaults.secrets",
        "spec.defaults.provider.name",
        "spec.defaults.scaling.replicas",
    ]
    assert found.spec == {"model": {"id": "org/m"}, "scaling": {}, "provider": {}}


def test_weights_elsewhere_on_the_hub_keep_the_models_name() -> None:
    sources = [{"modelId": "org/m", "uri": "hf://mirror/m-fp8"}]
    found = contribution_of({"kind": "ModelTemplate", "spec": {"modelName": "org/m", "modelSources": sources}})
    assert found.spec["model"] == {"id": "mirror/m-fp8", "servedName": "org/m"}
    s3 = [{"modelId": "org/m", "uri": "s3://bucket/m"}]
    found = contribution_of({"kind": "ModelTemplate", "spec": {"modelName": "org/m", "modelSources": s3}})
    assert "s3://bucket/m" in found.unusable


def test_a_contribution_that_is_too_large_is_refused() -> None:
    large = {"modelName": "org/m", "defaults": {"env": [{"name": "A", "value": "x" * 20000}]}}
    found = contribution_of({"kind": "ModelTemplate", "spec": large})
    assert "16384" in found.unusable
    assert found.spec == {"model": {"id": "org/m"}}


@given(
    own=st.dictionaries(st.sampled_from(["env", "affinity", "engine", "x"]), JSON), spec=JSON, status=JSON, record=JSON
)
def test_any_json_is_read(own: Resource, spec: object, status: object, record: object) -> None:
    found = contribution_of({"kind": "ModelTemplate", "spec": spec, "status": status})
    orjson.dumps(found.spec)
    assert len(found.hash) == 64
    both = effective({"spec": {**own, "templateRef": {}}, "status": {"revision": {"template": {"spec": record}}}})
    assert both["spec"]["templateRef"] == {}
    expand(own, found.spec)
