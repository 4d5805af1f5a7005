"""What a runtime config does to KAITO's presets and pod templates (docs/runtime-configs.md)."""

from dataclasses import replace
from typing import Any

import pytest

from airunway.plugins.contract import RuntimeSettings
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway_kaito.compatibility import compatibility
from airunway_kaito.manifest import INFERENCE_SET
from airunway_kaito.objects import desired
from airunway_testing.conformance.cases import bases, context_of, judged
from airunway_testing.conformance.fields import Answer, setting_outcomes

TOKEN = RuntimeSettings(token="config-token")
PULL = RuntimeSettings(image_pull_secrets=("shared",))
LABELS = RuntimeSettings(labels={"org.example/team": "x"})
EVERYTHING = RuntimeSettings(
    env=({"name": "A", "value": "config"}, {"name": "B", "value": "config"}),
    labels={"org.example/team": "x"},
    image_pull_secrets=("shared",),
    token="config-token",
)
HOME = ({"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "model"})
"""What every container of an engine has."""


def inference(deployment: Any, around: Any) -> Resource:
    written = desired(deployment, around).objects[0]
    found: Resource = written.get("inference") or written["spec"]["template"]["inference"]
    return found


@pytest.mark.parametrize("runtime", [TOKEN, PULL], ids=["only a token", "only pull secrets"])
@pytest.mark.parametrize("sets", ["", "0.12"], ids=["Workspace", "InferenceSet"])
def test_c28_a_preset_stays_a_preset(vllm: Any, context: Any, runtime: RuntimeSettings, sets: str) -> None:
    live = INFERENCE_SET.key if sets else ""
    around = context(sets=sets, live=live, runtime=runtime)
    assert compatibility(vllm(), around).ok
    found = inference(vllm(), around)
    assert list(found) == ["preset", "config"]
    options = {"modelAccessSecret": "config-token"} if runtime.token else None
    assert found["preset"].get("presetOptions") == options


def test_c28_pull_secrets_change_nothing_of_a_preset_and_are_warned_about(vllm: Any, context: Any) -> None:
    assert desired(vllm(), context(runtime=PULL)) == desired(vllm(), context())
    before, after = (compatibility(vllm(), around).warnings for around in (context(), context(runtime=PULL)))
    (said,) = set(after) - set(before)
    assert said.path == "spec.runtimeConfigName"
    assert said.message.startswith("imagePullSecrets of the runtime config: ")


def test_a_release_without_a_place_for_a_token_makes_a_template_of_it(vllm: Any, context: Any) -> None:
    assert "template" in inference(vllm(), context(release="0.4.5", runtime=TOKEN))


def test_the_deployments_own_token_wins_and_the_preset_stays(vllm: Any, context: Any) -> None:
    found = inference(vllm(secrets={"huggingFaceToken": "own"}), context(runtime=TOKEN))
    assert found["preset"]["presetOptions"] == {"modelAccessSecret": "own"}


def test_env_of_a_config_makes_a_template(vllm: Any, context: Any) -> None:
    runtime = RuntimeSettings(env=({"name": "A", "value": "config"},))
    (container,) = inference(vllm(), context(runtime=runtime))["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "A", "value": "config"}, *HOME]


def test_c22_a_template_has_all_of_it_and_the_deployments_own_wins(vllm: Any, context: Any) -> None:
    asked = vllm(
        image="i",
        env=[{"name": "A", "value": "own"}],
        imagePullSecrets=[{"name": "own"}],
        podTemplate={"metadata": {"labels": {"org.example/team": "own"}}},
    )
    template = inference(asked, context(runtime=EVERYTHING))["template"]
    (container,) = template["spec"]["containers"]
    assert container["env"] == [
        {"name": "A", "value": "own"},
        {"name": "B", "value": "config"},
        *HOME,
    ]
    assert container["envFrom"] == [{"secretRef": {"name": "config-token"}}]
    assert template["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "shared"}]
    assert template["metadata"]["labels"]["org.example/team"] == "own"


def test_l9_labels_over_a_preset_are_warned_about_once() -> None:
    host = load("kaito")
    (preset,) = [base for base in bases(host) if base.name == "vllm"]
    (said,) = [o for o in setting_outcomes(host, [preset]) if o.field == "RuntimeConfig spec.labelPropagation"]
    assert said.answer is Answer.WARNED
    (finding,) = said.words
    assert finding.message.startswith("propagated labels: pods of a KAITO preset take no labels of their own")


def test_l9_labels_make_no_template_of_a_preset(vllm: Any, context: Any) -> None:
    assert desired(vllm(), context(runtime=LABELS)) == desired(vllm(), context())


def test_pools_are_possible_for_vllm_and_paths_for_both_engines() -> None:
    engines = {engine.name: engine for engine in load("kaito").manifest.engines}
    assert {name: engine.path_routing for name, engine in engines.items()} == {"vllm": True, "llamacpp": True}
    assert engines["vllm"].gateway == {"endpointPicker": {}}
    assert "endpointPicker" not in (engines["llamacpp"].gateway or {})


def test_nothing_of_a_config_that_pods_have_is_warned_about() -> None:
    host = load("kaito")
    (own,) = [base for base in bases(host) if base.name == "vllm, own image"]
    around = context_of(host, own)
    with_config = judged(host, own, own.spec, context=replace(around, runtime=EVERYTHING))
    assert with_config.warnings == judged(host, own, own.spec).warnings
