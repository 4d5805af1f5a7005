"""What is refused or remarked on; and that no field of the spec is dropped in silence."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from airunway.api.modeldeployment import ModelDeployment, ModelDeploymentSpec, parse_deployment
from airunway.plugins.contract import Compatibility, Context
from airunway.plugins.errors import SettingsError
from airunway.plugins.registry import host_of
from airunway_kaito.compatibility import compatibility as can_handle
from airunway_kaito.objects import desired_objects as translate_spec
from airunway_kaito.provider import provider


def blockers(found: Compatibility) -> dict[str, str]:
    return {finding.path: finding.message for finding in found.blockers}


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "tgi"])
def test_engines_that_kaito_has_not(vllm: Any, context: Any, engine: str) -> None:
    found = can_handle(vllm(), context(engine))
    assert blockers(found) == {"spec.engine.type": f"KAITO does not support {engine} engine"}


def test_disaggregated_mode(vllm: Any, context: Any) -> None:
    role = {"gpu": {"count": 1}, "memory": "1Gi"}
    deployment = vllm(resources=None, serving={"mode": "disaggregated"}, scaling={"prefill": role, "decode": role})
    assert blockers(can_handle(deployment, context())) == {
        "spec.serving.mode": "KAITO does not support disaggregated mode"
    }


@pytest.mark.parametrize(
    ("fields", "path", "text"),
    [
        ({"scaling": {"replicas": 2}}, "spec.scaling.replicas", "serves exactly one replica"),
        ({"scaling": {"replicas": 0}}, "spec.scaling.replicas", "set spec.suspend"),
        ({"resources": {}}, "spec.resources.gpu.count", "vLLM engine requires GPU (set resources.gpu.count > 0)"),
        ({"affinity": {"nodeAffinity": {}}}, "spec.affinity", "use spec.nodeSelector"),
        ({"model": {"source": "custom"}}, "spec.model.source", "needs spec.image"),
        ({"model": {"id": "--port=80"}}, "spec.model.id", "begins with '-'"),
        ({"image": "i", "model": {"id": "--port=80"}}, "spec.model.id", "begins with '-'"),
        ({"model": {"id": "o/m", "cache": {"mode": "Shared"}}}, "spec.model.cache.mode", "no model caches are at hand"),
        ({"resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}}}, "spec.resources.gpu.type", "amd.com/gpu"),
        ({"engine": {"args": {"port": "80"}}}, "spec.engine.args[port]", "remove it"),
        (
            {"image": "i", "model": {"id": "o/m", "storage": {"volumes": [{"name": "v", "mountPath": "/v"}]}}},
            "spec.model.storage.volumes[0]",
            "volume v needs claimName (or size) and mountPath",
        ),
        (
            {"image": "i", "model": {"id": "o/m", "storage": {"volumes": [{"name": "v", "claimName": "c"}]}}},
            "spec.model.storage.volumes[0]",
            "volume v needs claimName (or size) and mountPath",
        ),
        (
            {"provider": {"overrides": {"inference": {"template": {"spec": {}}}}}},
            "spec.provider.overrides.inference.template",
            "KAITO preset",
        ),
        (
            {"image": "i", "provider": {"overrides": {"inference": {"preset": {"name": "phi-4"}}}}},
            "spec.provider.overrides.inference.preset",
            "because of spec.image",
        ),
    ],
    ids=str,
)
def test_blockers_name_field_and_way_out(vllm: Any, context: Any, fields: dict[str, Any], path: str, text: str) -> None:
    found = blockers(can_handle(vllm(**fields), context()))
    assert list(found) == [path]
    assert text in found[path]


def test_llamacpp_needs_an_image_and_takes_either_field(llamacpp: Any, context: Any) -> None:
    found = blockers(can_handle(llamacpp(image=None), context("llamacpp")))
    assert list(found) == ["spec.image"]
    assert found["spec.image"].startswith("llamacpp engine requires spec.image to be set")
    assert can_handle(llamacpp(image=None, engine={"image": "i"}), context("llamacpp")).ok


def test_partition_by_override_needs_a_release_that_has_it(vllm: Any, context: Any) -> None:
    overrides = {"resource": {"partition": {"mode": "accelerator", "count": 1}}}
    deployment = vllm(provider={"overrides": overrides})
    assert can_handle(deployment, context()) == Compatibility()
    path = "spec.provider.overrides.resource.partition"
    assert list(blockers(can_handle(deployment, context(release="0.9")))) == [path]


def test_a_preset_says_what_it_decides_itself(vllm: Any, context: Any) -> None:
    deployment = vllm(
        resources={"gpu": {"count": 1}, "memory": "32Gi", "cpu": "4"},
        podTemplate={"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
    )
    found = can_handle(deployment, context())
    assert found.ok
    assert [warning.path for warning in found.warnings] == [
        "spec.resources.gpu.count",
        "spec.resources.memory",
        "spec.resources.cpu",
        "spec.podTemplate.metadata.labels",
        "spec.podTemplate.metadata.annotations",
    ]
    assert can_handle(vllm(), context(partition=True)) == Compatibility()


def test_a_repository_without_a_file_is_remarked_on_for_the_runner_only(llamacpp: Any, context: Any) -> None:
    model = {"id": "google/gemma-3-1b-it-qat-q8_0-gguf"}
    found = can_handle(llamacpp(model=model), context("llamacpp"))
    assert [warning.path for warning in found.warnings] == ["spec.model.id"]
    server = llamacpp(model=model, image="ghcr.io/ggml-org/llama.cpp:server")
    assert can_handle(server, context("llamacpp")) == Compatibility()


@pytest.mark.parametrize("settings", [{"nodeProvisoner": "byo"}, {"partition": "half"}, {"gpuNodeSelector": "a=b"}])
def test_wrong_provider_settings_end_the_process_at_its_start_and_nothing_is_guessed(settings: dict[str, Any]) -> None:
    """No deployment is blocked for them any more: the host reads them before the first (spec/contract.md)."""
    with pytest.raises(SettingsError, match=rf"provider kaito: .*'{next(iter(settings))}'"):
        host_of("kaito", provider).settings(settings)


# ------------------------------------------------------------------------------- no field is dropped in silence

SAMPLES: dict[str, Any] = {
    "model.id": "org/other/file.gguf",
    "model.servedName": "other",
    "model.source": "custom",
    "model.storage.volumes": [{"name": "v", "claimName": "c", "mountPath": "/v"}],
    "model.cache.mode": "Shared",
    "engine.image": "registry.example/other:1",
    "engine.contextLength": 1234,
    "engine.trustRemoteCode": True,
    "engine.enablePrefixCaching": False,
    "engine.enforceEager": True,
    "engine.args": {"seed": "1"},
    "engine.extraArgs": ["--seed=1"],
    "serving.mode": "disaggregated",
    "scaling.replicas": 2,
    "scaling.prefill": {"gpu": {"count": 1}},
    "scaling.decode": {"gpu": {"count": 1}},
    "resources.gpu.count": 3,
    "resources.gpu.type": "amd.com/gpu",
    "resources.memory": "3Gi",
    "resources.cpu": "3",
    "image": "registry.example/other:1",
    "env": [{"name": "A", "value": "b"}],
    "podTemplate.metadata.labels": {"a": "b"},
    "podTemplate.metadata.annotations": {"a": "b"},
    "secrets.huggingFaceToken": "token",
    "nodeSelector": {"a": "b"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "serviceAccountName": "sa",
    "imagePullSecrets": [{"name": "pull"}],
    "priorityClassName": "high",
}

NOT_FOR_A_PROVIDER = {
    "model.cache.artifactName": "part of model.cache, which is refused as a whole by its mode",
    "model.cache.size": "part of model.cache, which is refused as a whole by its mode",
    "model.cache.storageClassName": "part of model.cache, which is refused as a whole by its mode",
    "provider.name": "what brought the deployment here",
    "provider.overrides": "merged into the Workspace by the provider runtime, by the manifest's schema",
    "engine.type": "arrives resolved, as context.engine",
    "gateway.enabled": "routing is the core's",
    "gateway.modelName": "routing is the core's",
    "gateway.httpRouteRef": "routing is the core's",
    "gateway.gatewayRef": "routing is the core's",
    "gateway.pathTemplate": "routing is the core's",
    "gateway.requestTimeout": "routing is the core's",
    "gateway.annotations": "routing is the core's",
    "runtimeConfigName": "arrives resolved, as context.runtime",
    "suspend": "the provider runtime deletes the Workspace; there is nothing to translate",
}


def leaves(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every field of the spec that is not itself a group of fields, by its JSON path."""
    for name, field in model.model_fields.items():
        here = f"{path}{field.alias or name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{here}.")
        else:
            yield here


def with_field(spec: dict[str, Any], path: str, value: Any) -> ModelDeployment:
    head, _, rest = path.partition(".")
    changed = {**spec, head: _set(spec.get(head, {}), rest, value) if rest else value}
    return parse_deployment({"metadata": {"name": "m", "namespace": "default"}, "spec": changed})


def _set(node: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {**node, head: _set(node.get(head, {}), rest, value) if rest else value}


BASES: dict[str, tuple[str, dict[str, Any]]] = {
    "preset": ("vllm", {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}}),
    "template": ("vllm", {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}, "image": "i"}),
    "llamacpp": ("llamacpp", {"model": {"id": "o/m/f.gguf"}, "resources": {"gpu": {"count": 1}}, "image": "i"}),
    "custom": ("vllm", {"model": {"source": "custom"}, "resources": {"gpu": {"count": 1}}, "image": "i"}),
    "custom llamacpp": ("llamacpp", {"model": {"source": "custom"}, "resources": {"gpu": {"count": 1}}, "image": "i"}),
}


def test_every_field_is_known_to_this_test() -> None:
    known = {*SAMPLES, *NOT_FOR_A_PROVIDER}
    found = set(leaves(ModelDeploymentSpec))
    assert found - known == set(), "new fields: translate them, or say why they are not for a provider"
    assert known - found == set()


REFUSED = {
    "model.source": {"preset"},  # an own image has the model: without one there is nothing to start
    "resources.gpu.type": {"preset"},  # the default image is for NVIDIA's
    "model.cache.mode": set(BASES),
    "serving.mode": set(BASES),
    "scaling.replicas": set(BASES),
    "affinity": set(BASES),
}
"""The fields whose sample is refused, and where; everywhere else a refusal is wrong."""

CASES = [(m, p) for m in BASES for p in SAMPLES if not (p == "model.source" and m.startswith("custom"))]


@pytest.mark.parametrize(("mode", "path"), CASES)
def test_every_field_is_honoured_or_named(context: Any, mode: str, path: str) -> None:
    engine, spec = BASES[mode]
    ctx: Context = context(engine)
    before = parse_deployment({"metadata": {"name": "m", "namespace": "default"}, "spec": spec})
    assert can_handle(before, ctx).ok
    after = with_field(spec, path, SAMPLES[path])
    verdict = can_handle(after, ctx)
    refusals = [finding.path for finding in verdict.blockers]
    assert refusals == ([f"spec.{path}"] if mode in REFUSED.get(path, ()) else [])
    named = {f.path for f in (*verdict.blockers, *verdict.warnings)} - {
        f.path for f in can_handle(before, ctx).warnings
    }
    if any(f"spec.{path}" in finding for finding in named):
        return
    said_anew = {*verdict.warnings} - {*can_handle(before, ctx).warnings}
    assert translate_spec(after, ctx) != translate_spec(before, ctx) or any(
        f"spec.{path}" == finding.path for finding in said_anew
    ), f"{path} changes nothing and is not named"
