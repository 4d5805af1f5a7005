"""The pydantic types: reading, defaults, and what kubectl explain shows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.base import ApiModel, ObjectMeta, ParseError, parse_model
from airunway.api.inferenceproviderconfig import InferenceProviderConfig
from airunway.api.modelartifact import ModelArtifact
from airunway.api.modeldeployment import ModelDeployment, defaulted_spec, parse_deployment
from airunway.api.modelsource import ModelSource
from airunway.api.modeltemplate import ModelTemplate
from airunway.api.runtimeconfig import ClusterRuntimeConfig, RuntimeConfig
from airunway.resource import Resource, copy_of

MINIMAL: Resource = {"metadata": {"name": "llama", "namespace": "ml"}, "spec": {"model": {"id": "org/model"}}}

KINDS: tuple[type[ApiModel], ...] = (
    ModelDeployment,
    InferenceProviderConfig,
    RuntimeConfig,
    ClusterRuntimeConfig,
    ModelArtifact,
    ModelTemplate,
    ModelSource,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def models(model: type[ApiModel], seen: set[type[ApiModel]]) -> Iterator[type[ApiModel]]:
    """`model` and every type that it is made of."""
    if model in seen or model is ObjectMeta:
        return
    seen.add(model)
    yield model
    for field in model.model_fields.values():
        for part in parts_of(field.annotation):
            yield from models(part, seen)


def parts_of(annotation: Any) -> Iterator[type[ApiModel]]:
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from parts_of(argument)


FIELDS = [
    pytest.param(model, name, id=f"{model.__name__}.{name}")
    for root in (ModelDeployment, InferenceProviderConfig)
    for model in models(root, set())
    for name in model.model_fields
    if not (model in (ModelDeployment, InferenceProviderConfig) and name in ("api_version", "kind", "metadata"))
]


@pytest.mark.parametrize(("model", "name"), FIELDS)
def test_every_field_explains_itself(model: type[ApiModel], name: str) -> None:
    field = model.model_fields[name]
    description = field.description
    assert description, "no description"
    assert re.match(r"[A-Z]", description), "starts with a capital"
    assert description.endswith("."), "ends with a full stop"
    assert len(description.split()) >= 3, "says more than the name"
    assert not description.startswith(("The ", "A ", "An ", "This ")), "starts with the meaning itself"
    if field.is_required() and not description.startswith("Whether"):
        assert "Required" in description, "says that it is required"


@pytest.mark.parametrize(("model", "name"), FIELDS)
def test_a_default_other_than_zero_is_named(model: type[ApiModel], name: str) -> None:
    field = model.model_fields[name]
    if field.default in (None, "", False, 0) or field.default_factory is not None or field.is_required():
        return
    wanted = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    assert f"Default: {wanted}" in (field.description or "")


def test_a_minimal_deployment_is_fully_defaulted() -> None:
    deployment = parse_deployment(MINIMAL)
    spec = deployment.spec
    assert (deployment.metadata.name, deployment.metadata.namespace) == ("llama", "ml")
    assert (spec.model.id, spec.model.source, spec.model.storage.volumes, spec.model.cache.mode) == (
        "org/model",
        "huggingface",
        [],
        "None",
    )
    assert (spec.resources.gpu.count, spec.resources.gpu.type) == (0, "nvidia.com/gpu")
    assert (spec.serving.mode, spec.scaling.replicas, spec.suspend) == ("aggregated", 1, False)
    assert (spec.env, spec.tolerations, spec.engine.args, spec.engine.extra_args) == ([], [], {}, [])
    assert (spec.node_selector, spec.pod_template.metadata.labels, spec.provider.overrides) == ({}, {}, {})
    absent = (
        spec.scaling.prefill,
        spec.scaling.decode,
        spec.engine.type,
        spec.engine.context_length,
        spec.engine.enable_prefix_caching,
        spec.engine.image,
        spec.image,
        spec.resources.memory,
        spec.resources.cpu,
        spec.provider.name,
        spec.secrets.hugging_face_token,
        spec.gateway.enabled,
        deployment.status.phase,
    )
    assert absent == (None,) * len(absent)


def test_empty_texts_and_nulls_mean_absent() -> None:
    spec = {
        "model": {"id": "a", "servedName": "", "source": None},
        "image": "",
        "engine": {"image": "", "args": None},
        "resources": {"memory": "", "gpu": {"count": None, "type": ""}},
        "scaling": None,
    }
    deployment = parse_deployment({"metadata": {"labels": None}, "spec": spec})
    assert (deployment.spec.image, deployment.spec.engine.image, deployment.spec.model.served_name) == (None,) * 3
    assert (deployment.spec.resources.memory, deployment.spec.engine.args) == (None, {})
    assert (deployment.spec.resources.gpu.count, deployment.spec.resources.gpu.type) == (0, "nvidia.com/gpu")
    assert (deployment.spec.scaling.replicas, deployment.spec.model.source) == (1, "huggingface")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("value", ["", "x" * 5000], ids=["empty", "long"])
def test_a_text_in_any_field_is_read_or_refused(kind: type[ApiModel], value: str) -> None:
    """pydantic raises TypeError if it applies a limit of length to the None that a validator made of an empty text."""
    for model in models(kind, set()):
        for name, field in model.model_fields.items():
            with contextlib.suppress(ParseError):
                parse_model(model, {field.alias or name: value})


def test_an_empty_name_is_no_name() -> None:
    spec: Resource = {
        "model": {"id": "a", "cache": {"artifactName": "", "revision": ""}},
        "provider": {"name": ""},
        "secrets": {"huggingFaceToken": ""},
        "runtimeConfigName": "",
        "serviceAccountName": "",
        "templateRef": {"name": ""},
    }
    found = parse_deployment({"metadata": {"name": "a"}, "spec": spec}).spec
    assert (found.provider.name, found.secrets.hugging_face_token, found.runtime_config_name) == (None,) * 3
    spec["provider"]["name"] = "x" * 254
    with pytest.raises(ParseError, match="at most 253 characters"):
        parse_deployment({"metadata": {"name": "a"}, "spec": spec})


def test_an_empty_storage_class_is_not_absent() -> None:
    volume = {"name": "v", "size": "1Gi", "storageClassName": "", "purpose": "modelCache"}
    parsed = parse_deployment({"spec": {"model": {"id": "a", "storage": {"volumes": [volume]}}}})
    assert parsed.spec.model.storage.volumes[0].storage_class_name == ""


@pytest.mark.parametrize(
    ("purpose", "size", "mount_path", "access_mode", "claim"),
    [
        ("modelCache", "1Gi", "/model-cache", "ReadWriteMany", "llama-v"),
        ("compilationCache", "1Gi", "/compilation-cache", "ReadWriteMany", "llama-v"),
        ("modelCache", None, "/model-cache", None, None),
        ("custom", None, None, None, None),
    ],
)
def test_volume_defaults(
    purpose: str, size: str | None, mount_path: str | None, access_mode: str | None, claim: str | None
) -> None:
    volume = {"name": "v", "size": size, "purpose": purpose}
    obj = {"metadata": {"name": "llama"}, "spec": {"model": {"id": "a", "storage": {"volumes": [volume]}}}}
    parsed = parse_deployment(obj).spec.model.storage.volumes[0]
    assert (parsed.mount_path, parsed.access_mode, parsed.claim_name) == (mount_path, access_mode, claim)


def test_numbers_as_quantities_become_text_and_whole_doubles_become_integers() -> None:
    spec = {"model": {"id": "a"}, "resources": {"cpu": 4, "memory": 2**31}, "scaling": {"replicas": 2.0}}
    parsed = parse_deployment({"spec": spec}).spec
    assert (parsed.resources.cpu, parsed.resources.memory, parsed.scaling.replicas) == ("4", "2147483648", 2)


def test_what_was_given_comes_back_unchanged() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}}},
        {"name": "E", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
    ]
    tolerations = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, {"tolerationSeconds": 3}]
    affinity: Resource = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    spec = {"model": {"id": "a"}, "env": env, "tolerations": tolerations, "affinity": affinity}
    parsed = parse_deployment({"spec": copy_of(spec)})
    assert parsed.spec.to_resource() == spec
    assert [variable.to_resource() for variable in parsed.spec.env] == env
    assert parsed.spec.affinity == affinity


def test_unknown_fields_are_passed_over() -> None:
    obj = {**MINIMAL, "spec": {**MINIMAL["spec"], "fromTheFuture": {"a": 1}}, "status": {"fromTheFuture": 1}}
    assert parse_deployment(obj).spec.model.id == "org/model"


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ({}, "spec"),
        ({"spec": {"model": "org/m"}}, "spec.model"),
        ({"spec": {"model": {"id": 3}}}, "spec.model.id"),
        ({"spec": {"model": {"source": "s3"}}}, "spec.model.source"),
        ({"spec": {"model": {}, "env": [{"name": "A"}, {"value": "1"}]}}, "spec.env[1].name"),
        ({"spec": {"model": {}, "engine": {"args": {"a": 1}}}}, "spec.engine.args.a"),
        ({"spec": {"model": {}, "scaling": {"replicas": -1}}}, "spec.scaling.replicas"),
        ({"spec": {"model": {}, "suspend": "yes"}}, "spec.suspend"),
    ],
)
def test_what_does_not_fit_is_named(obj: Resource, path: str) -> None:
    with pytest.raises(ParseError) as failure:
        parse_deployment(obj)
    assert failure.value.path == path
    assert failure.value.problem
    assert str(failure.value) == f"{path}: {failure.value.problem}"


@given(json_values)
def test_reading_anything_gives_a_deployment_or_a_parse_error(value: Any) -> None:
    for obj in (value, {"spec": value}, {"spec": {"model": {"id": "a"}, "engine": value, "scaling": value}}):
        for parse in (parse_deployment, partial(parse_model, InferenceProviderConfig)):
            with contextlib.suppress(ParseError):
                parse(obj)


def test_selection_rules_see_every_object_and_count() -> None:
    spec = defaulted_spec({"model": {"id": "a"}}, engine="vllm")
    assert spec["engine"]["type"] == "vllm"
    assert spec["resources"]["gpu"] == {"count": 0, "type": "nvidia.com/gpu"}
    assert spec["serving"] == {"mode": "aggregated"}
    assert spec["scaling"] == {"replicas": 1}
    assert spec["model"]["source"] == "huggingface"
    assert (spec["env"], spec["provider"], spec["nodeSelector"]) == ([], {"overrides": {}}, {})
    assert "image" not in spec
    assert "memory" not in spec["resources"]


def test_selection_rules_see_the_resolved_engine_and_leave_the_spec_alone() -> None:
    given_spec = {"model": {"id": "a"}, "engine": {"type": "sglang", "contextLength": 4096}}
    before = copy_of(given_spec)
    assert defaulted_spec(given_spec, engine="vllm")["engine"]["type"] == "vllm"
    assert defaulted_spec(given_spec, engine=None)["engine"]["type"] == "sglang"
    assert "type" not in defaulted_spec({"model": {"id": "a"}}, engine=None)["engine"]
    assert given_spec == before


def test_a_provider_config_is_read_and_written() -> None:
    spec = {
        "capabilities": {
            "engines": [
                {
                    "name": "my-engine",
                    "servingModes": ["aggregated"],
                    "gpuSupport": True,
                    "requiresCRD": False,
                    "gateway": {"managesInferencePool": True, "inferencePoolNamePattern": "{name}-pool"},
                }
            ]
        },
        "selection": "Explicit",
        "selectionRules": [{"condition": "true", "priority": 3}],
        "contractVersions": ["v1"],
        "upstream": [{"group": "kaito.sh", "kind": "Workspace", "versions": ["v1beta1"], "requiresCRD": True}],
        "installation": {"helmCharts": [{"name": "a", "chart": "b/a", "values": {"x": {"y": 1}}}]},
        "documentation": "https://example.com",
    }
    status = {"ready": True, "upstreamCRDVersion": "kaito.sh/v1beta1", "lastHeartbeat": "2026-01-01T00:00:00Z"}
    parsed = parse_model(InferenceProviderConfig, {"metadata": {"name": "x"}, "spec": copy_of(spec), "status": status})
    assert parsed.spec.to_resource() == spec
    assert parsed.status.to_resource() == status
    assert parsed.spec.capabilities is not None
    assert parsed.spec.capabilities.engines[0].requires_crd is False
    assert parse_model(InferenceProviderConfig, {"metadata": {"name": "x"}}).spec.selection == "Auto"


def test_deep_free_form_fields_are_taken_as_they_are() -> None:
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = {"a": [deep]}
    spec = {"model": {"id": "a"}, "provider": {"overrides": {"x": deep}}, "affinity": {"x": deep}}
    assert parse_deployment({"spec": spec}).spec.provider.overrides["x"] is deep
    defaulted = defaulted_spec(spec, engine="vllm")
    assert defaulted["provider"]["overrides"]["x"] is deep
    assert defaulted["affinity"]["x"] is deep
