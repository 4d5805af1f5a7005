"""Honoured or reported: what of a deployment was looked at, and what was set and never read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from airunway.api.modeldeployment import ModelDeployment
from airunway.resource import Resource
from airunway.sdk import (
    Context,
    Finding,
    ModelCache,
    NoSettings,
    PodSetting,
    RuntimeSettings,
    Transformer,
    Upstream,
    as_json,
    ignored_fields,
    ignored_pod_setting,
    parse_deployment,
    tracked,
)
from airunway.sdk.fields import ignored_pod_settings

MakeDeployment = Callable[..., Resource]
EVERYTHING: Resource = {
    "model": {"id": "org/model", "servedName": "n"},
    "engine": {"type": "vllm", "contextLength": 4096, "args": {"a": "1"}, "extraArgs": ["--b"]},
    "resources": {"gpu": {"count": 2}, "memory": "1Gi"},
    "env": [{"name": "A", "value": "1"}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "nodeSelector": {"a": "b"},
    "podTemplate": {"metadata": {"labels": {"a": "b"}}},
}


@pytest.fixture
def ignored(plain: MakeDeployment) -> Callable[..., list[str]]:
    """The fields that are reported after something was read."""

    def after(read: Callable[[ModelDeployment], object], **spec: Any) -> list[str]:
        deployment = parse_deployment(plain(**{**EVERYTHING, **spec}))
        view, reads = tracked(deployment)
        read(view)
        return sorted(finding.path for finding in ignored_fields(deployment, reads))

    return after


def test_what_nobody_reads_is_reported_and_defaults_are_not(ignored: Callable[..., list[str]]) -> None:
    assert ignored(lambda view: None) == [
        "spec.engine.args",
        "spec.engine.contextLength",
        "spec.engine.extraArgs",
        "spec.env.name",
        "spec.env.value",
        "spec.model.id",
        "spec.model.servedName",
        "spec.nodeSelector",
        "spec.podTemplate.metadata.labels",
        "spec.resources.gpu.count",
        "spec.resources.memory",
        "spec.tolerations.key",
        "spec.tolerations.operator",
    ]


@pytest.mark.parametrize(
    ("read", "path"),
    [
        (lambda d: d.spec.engine.args, "spec.engine.args"),
        (lambda d: d.spec.resources.gpu.count, "spec.resources.gpu.count"),
        (lambda d: d.spec.resources.memory, "spec.resources.memory"),
        (lambda d: [entry.value for entry in d.spec.env], "spec.env.value"),
        (lambda d: d.spec.pod_template.metadata.labels, "spec.podTemplate.metadata.labels"),
        (lambda d: [entry.to_resource() for entry in d.spec.tolerations], "spec.tolerations.key"),
    ],
    ids=["a map", "a number deep down", "a text", "items of a list", "labels", "items as a whole"],
)
def test_what_is_read_is_not_reported(
    ignored: Callable[..., list[str]], read: Callable[[ModelDeployment], object], path: str
) -> None:
    before, after = ignored(lambda view: None), ignored(read)
    assert path in before
    assert path not in after


def test_reading_one_field_says_nothing_of_its_neighbours(ignored: Callable[..., list[str]]) -> None:
    assert "spec.engine.contextLength" in ignored(lambda view: view.spec.engine.args)
    assert "spec.engine.args" in ignored(lambda view: view.spec.engine), "a section is not its fields"


def test_what_core_and_runtime_act_on_is_nobody_else_s_to_read(ignored: Callable[..., list[str]]) -> None:
    spec = {
        "gateway": {"enabled": False},
        "provider": {"name": "toy", "overrides": {"a": 1}},
        "runtimeConfigName": "x",
        "suspend": True,
        "serving": {"mode": "disaggregated"},
    }
    assert ignored(lambda view: None, **spec) == ignored(lambda view: None)


def test_a_view_is_as_good_as_the_deployment(plain: MakeDeployment) -> None:
    deployment = parse_deployment(plain(**EVERYTHING))
    view, _ = tracked(deployment)
    assert isinstance(view, ModelDeployment)
    assert view == deployment
    assert view.spec.engine == deployment.spec.engine
    assert repr(view) == repr(deployment)
    assert (view.metadata.name, view.spec.engine.args) == ("llama", {"a": "1"})
    assert view.spec.to_resource() == deployment.spec.to_resource()
    with pytest.raises(AttributeError, match=r"a deployment is not to be changed: spec\.suspend"):
        view.spec.suspend = True
    with pytest.raises(AttributeError):
        _ = view.spec.no_such_field  # type: ignore[attr-defined]


def test_maps_and_lists_are_the_reader_s_own_to_the_bottom(plain: MakeDeployment) -> None:
    deployment = parse_deployment(plain(affinity={"x": {"y": [1]}}, **EVERYTHING))
    view, _ = tracked(deployment)
    assert view.spec.affinity is not None
    view.spec.affinity["x"]["y"].append(2)
    view.spec.engine.extra_args.append("--c")
    view.spec.env.clear()
    assert deployment.spec.affinity == {"x": {"y": [1]}}
    assert deployment.spec.engine.extra_args == ["--b"]
    assert len(deployment.spec.env) == 1


def test_a_field_as_json_is_as_it_was_given_and_counts_as_read(plain: MakeDeployment) -> None:
    given: Resource = {
        "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}],
        "affinity": {"nodeAffinity": {"x": [1, None]}},
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    }
    deployment = parse_deployment(plain(**given))
    view, reads = tracked(deployment)
    for name, value in given.items():
        assert as_json(getattr(view.spec, name)) == as_json(getattr(deployment.spec, name)) == value
    assert not {f.path for f in ignored_fields(deployment, reads)} & {"spec.tolerations", "spec.affinity", "spec.env"}


def test_what_json_cannot_say_is_told_by_its_path() -> None:
    with pytest.raises(TypeError, match=r"^a\[1\]\.b is a set, which JSON cannot say"):
        as_json({"a": [1, {"b": {1}}]})


# ------------------------------------------------------------------------------------- what comes from a runtime config

CONFIG = RuntimeSettings(
    env=({"name": "A", "value": "1"}, {"name": "B", "value": "2"}),
    labels={"org.example/team": "x"},
    image_pull_secrets=("shared",),
    token="hub",
)
WITH_ALL: Resource = {
    "kind": "Server",
    "metadata": {"name": "m"},
    "spec": {
        "env": [{"name": "A"}, {"name": "B"}],
        "podLabels": {"org.example/team": "own"},
        "pull": ["shared"],
        "auth": {"secret": "hub"},
        "volume": {"claimName": "weights"},
    },
}


def unheeded(obj: Resource, *named: Finding, runtime: RuntimeSettings = CONFIG, **spec: Any) -> list[str]:
    deployment = parse_deployment({"metadata": {"name": "m", "namespace": "n"}, "spec": {**EVERYTHING, **spec}})
    upstream = Upstream(api_version="v1", transformer=Transformer(name="t", api_version="v1"))
    context = Context(
        engine="vllm",
        upstream=upstream,
        settings=NoSettings(),
        now=datetime(2026, 1, 1, tzinfo=UTC),
        runtime=runtime,
        cache=ModelCache(claim="weights"),
    )
    return [finding.message for finding in ignored_pod_settings(deployment, context, [obj], named=named)]


def without(field: str) -> Resource:
    return {**WITH_ALL, "spec": {key: value for key, value in WITH_ALL["spec"].items() if key != field}}


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("env", "env of the runtime config: no pod of this provider has A, B"),
        ("podLabels", "propagated labels: no pod of this provider has org.example/team"),
        ("pull", "imagePullSecrets of the runtime config: no pod of this provider has shared"),
        ("auth", "secrets.huggingFaceToken of the runtime config: no pod of this provider has hub"),
        ("volume", "the claim of the model cache: no pod of this provider has weights"),
    ],
)
def test_a_setting_that_no_object_has_is_reported(field: str, message: str) -> None:
    assert unheeded(WITH_ALL) == []
    assert unheeded(without(field)) == [message]


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("env", {"env": {"A": "1", "B": "2"}}),
        ("volume", {"url": "pvc://weights/model"}),
        ("pull", {"config": {"secrets": ["shared"]}}),
    ],
)
def test_a_setting_counts_wherever_an_upstream_without_pod_templates_takes_it(field: str, written: Resource) -> None:
    """KubeAI's variables are a map, and its model cache is an address: warnings of both were false."""
    changed = without(field)
    assert unheeded({**changed, "spec": {**changed["spec"], **written}}) == []


def test_a_claim_with_a_longer_name_is_not_the_claim() -> None:
    changed = without("volume")
    spec = {**changed["spec"], "url": "pvc://weights-2/model"}
    assert unheeded({**changed, "spec": spec}) == ["the claim of the model cache: no pod of this provider has weights"]


def test_l9_labels_of_an_object_are_none_of_its_pods() -> None:
    labelled = {**without("podLabels"), "metadata": {"name": "m", "labels": {"org.example/team": "x"}}}
    assert unheeded(labelled) == ["propagated labels: no pod of this provider has org.example/team"]


def test_what_the_provider_says_itself_is_not_said_again() -> None:
    own = ignored_pod_setting(PodSetting.LABELS, "a Server's pods take none")
    assert unheeded(without("podLabels"), own) == []
    assert own.path == "spec.runtimeConfigName"


@pytest.mark.parametrize(
    "own", [{"secrets": {"huggingFaceToken": "mine"}}, {"env": [{"name": "HF_TOKEN", "value": "x"}]}]
)
def test_a_token_that_the_deployment_s_own_replaces_is_not_missed(own: Resource) -> None:
    assert unheeded(without("auth"), **own) == []
