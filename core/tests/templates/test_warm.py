"""Which artifacts a template keeps: those that deployments with the template alone ask for."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.artifacts.deployments import request_of
from airunway.configs.resolution import EffectiveConfig, resolve
from airunway.resource import Resource, dig
from airunway.templates.contribution import contribution_of, keeps_warm, warm_requests
from airunway.templates.expansion import expand


def template(**spec: Any) -> Resource:
    wanted = {"modelName": "org/m", "caching": {"enabled": True}, **spec}
    return {"kind": "ModelTemplate", "metadata": {"name": "fast", "namespace": "team"}, "spec": wanted}


def config_of(**spec: Any) -> EffectiveConfig:
    found = resolve(
        "default", namespaced={"metadata": {"name": "default", "namespace": "team"}, "spec": spec}, cluster=None
    )
    assert found.config is not None
    return found.config


def warm(template: Resource, config: EffectiveConfig | None = None) -> list[tuple[str, str]]:
    return [(each.name, each.uri) for each in warm_requests(template, contribution_of(template), config)]


def asked(template: Resource, config: EffectiveConfig | None = None, **own: Any) -> str:
    """The artifact of a deployment with this template and with these fields of its own."""
    spec = expand(own, contribution_of(template).spec)
    request = request_of({"metadata": {"name": "d", "namespace": "team", "uid": "u"}, "spec": spec}, config)
    assert request is not None
    return request.name


def test_a_deployment_with_the_template_alone_asks_for_what_the_template_keeps() -> None:
    configs = (None, config_of(storage={"defaultStorageClassName": "nfs", "accessMode": "ReadOnlyMany"}))
    secrets = config_of(secrets={"huggingFaceToken": "of-the-config"}, storage={"pvcHeadroomPercent": 30})
    sources: list[Resource] = [
        {},
        {"defaults": {"secrets": {"huggingFaceToken": "hf"}, "nodeSelector": {"a": "b"}}},
        {"modelSources": [{"uri": "hf://org/other-build"}]},
        {"modelSources": [{"uri": "hf://org/m/file.gguf", "size": "10Gi"}]},
        {"modelSources": [{"uri": "s3://bucket/prefix/"}]},
        {
            "modelSources": [
                {"uri": "hf://org/draft", "modelId": "org/draft"},
                {"uri": "hf://org/n", "modelId": "org/m"},
            ]
        },
    ]
    for config in (*configs, secrets):
        names = set()
        for spec in sources:
            kept = [name for name, _ in warm(template(**spec), config)]
            assert asked(template(**spec), config) in kept, spec
            assert all(len(name) <= 52 for name in kept)
            names |= set(kept)
        assert len(names) == 7, "the template's token, each repository, each file and the bucket tell them apart"
    plain = template()
    other = asked(plain, None, model={"cache": {"storageClassName": "fast"}})
    assert other not in [name for name, _ in warm(plain)], "what a deployment says itself makes another artifact"


def test_the_artifact_is_one_of_the_hub_or_of_the_bucket_with_the_template_s_settings() -> None:
    spec = {
        "modelSources": [{"uri": "s3://bucket/prefix", "size": "20Gi"}],
        "defaults": {"tolerations": [{"key": "gpu"}], "secrets": {"huggingFaceToken": "hf"}},
        "runtimeConfigName": "gold",
    }
    (request,) = warm_requests(template(**spec), contribution_of(template(**spec)), config_of())
    assert request.artifact is not None
    assert request.artifact["spec"] == {
        "source": {"uri": "s3://bucket/prefix"},
        "modelId": "org/m",
        "size": "20Gi",
        "accessMode": "ReadWriteMany",
        "secrets": {"huggingFaceToken": "hf"},
        "tolerations": [{"key": "gpu"}],
        "runtimeConfigName": "gold",
    }
    assert contribution_of(template(**spec)).spec["model"] == {
        "id": "org/m",
        "cache": {"mode": "Shared", "size": "20Gi", "artifactName": request.name},
    }
    cluster = {**template(**spec), "kind": "ClusterModelTemplate", "metadata": {"name": "fast"}}
    assert warm(cluster) == []
    assert "s3://bucket/prefix" in contribution_of(cluster).unusable
    cold = template(**spec, caching={"enabled": False})
    assert "enable caching" in contribution_of(cold).unusable


def test_sources_are_those_of_the_spec_then_those_found_then_the_hub_s() -> None:
    found = {"modelSources": [{"uri": "hf://org/found"}]}
    plain = template()
    assert [uri for _, uri in warm(plain)] == ["hf://org/m"]
    assert [uri for _, uri in warm({**plain, "status": found})] == ["hf://org/found"]
    said = template(
        modelSources=[{"uri": "hf://org/a"}, {"uri": "hf://org/b", "modelId": "org/b"}, {"uri": "hf://org/a"}]
    )
    assert [uri for _, uri in warm({**said, "status": found})] == ["hf://org/a", "hf://org/b"]


@pytest.mark.parametrize("uri", ["hf://org/m", "s3://bucket/m"])
def test_a_size_that_an_image_reports_is_measured_and_not_claimed(uri: str) -> None:
    listed = {"modelSources": [{"uri": uri, "size": "20Gi", "modelId": "org/m"}]}
    said, found = template(**listed), {**template(), "status": listed}
    for each, size in ((said, "20Gi"), (found, None)):
        contribution = contribution_of(each)
        assert dig(contribution.spec, "model", "cache", "size") == size
        (request,) = warm_requests(each, contribution, None)
        assert request.artifact is not None
        assert dig(request.artifact, "spec", "size") == size
        if uri.startswith("hf:"):
            assert asked(each) == request.name, "the deployment meets the same artifact"
        else:
            assert dig(contribution.spec, "model", "cache", "artifactName") == request.name
    assert [name for name, _ in warm(said)] == [name for name, _ in warm(found)]


def test_nothing_is_kept_before_discovery_has_found_where_the_weights_are() -> None:
    asking = template(discovery={"image": "registry.example/team/vllm:1.0"})
    assert warm(asking) == []
    done = {"conditions": [{"type": "DiscoveryReady", "status": "True"}]}
    assert [uri for _, uri in warm({**asking, "status": done})] == ["hf://org/m"], "it has found no other source"
    failed = {"conditions": [{"type": "DiscoveryReady", "status": "False"}]}
    assert warm({**asking, "status": failed}) == []
    assert [uri for _, uri in warm({**asking, "status": {"modelSources": [{"uri": "hf://org/x"}]}})] == ["hf://org/x"]
    inline = template(discovery={}, modelSources=[{"uri": "hf://org/a"}])
    assert [uri for _, uri in warm(inline)] == ["hf://org/a"]


def test_a_template_without_caching_or_on_its_way_out_keeps_nothing() -> None:
    assert not keeps_warm(template(caching={"enabled": False}))
    assert not keeps_warm(template(caching={}))
    going = template()
    assert not keeps_warm({**going, "metadata": {**going["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})


def test_any_json_is_answered() -> None:
    for odd in (None, 7, "x", [], [None, {"uri": 7}], [{"uri": "hf://"}], [{"uri": ""}], {"uri": "hf://a/b"}):
        for model in ("org/m", "", None, 3):
            found = template(modelSources=odd, modelName=model)
            for name, _ in warm(found):
                assert dig(found, "spec", "modelName"), name
