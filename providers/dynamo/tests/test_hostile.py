"""Whatever a user writes arrives as data, or is refused: no word of his becomes two, or a command."""

from typing import Any

import pytest

from airunway.api.base import ParseError
from airunway.plugins.host import ProviderHost
from airunway.resource import canonical_json
from airunway.runtime.translate import check_overrides

EVIL = [
    "; rm -rf /",
    "$(cat /etc/shadow)",
    "`id`",
    "a\nb",
    "a\x00b",
    "' || true '",
    '"; drop',
    "${HOME}",
    "größe ✓ \u202e",
    "x" * 10_240,
]
NAMES = ["v1alpha1-1.1", "v1beta1-1.4"]


def mains(found: Any) -> list[dict[str, Any]]:
    """The main containers, with their variables, in either version."""
    if "services" in found["spec"]:
        services = found["spec"]["services"].values()
        return [{**s["extraPodSpec"]["mainContainer"], "env": s.get("envs", [])} for s in services]
    return [component["podTemplate"]["spec"]["containers"][0] for component in found["spec"]["components"]]


@pytest.mark.parametrize("written", NAMES)
@pytest.mark.parametrize("text", EVIL, ids=range(len(EVIL)))
def test_ids_names_arguments_and_variables(
    host: ProviderHost, deployment: Any, context: Any, text: str, written: str
) -> None:
    if len(text) > 2000:  # an id has a limit, which the schema says
        with pytest.raises(ParseError, match=r"spec\.model\.id"):
            deployment(model={"id": f"o/{text}"})
        text = text[:100]
    asked = deployment(
        model={"id": f"o/{text}", "servedName": f"n{text}"},
        engine={"args": {"seed": text}, "extraArgs": ["--tokenizer", text]},
        env=[{"name": "A", "value": text}],
    )
    (found,) = host.translate_spec(asked, context(written=written)).objects
    frontend, worker = mains(found)
    literal = text.replace("$", "$$")
    assert worker["command"] == ["python3", "-m", "dynamo.vllm"]
    assert worker["args"][:2] == ["--model", f"o/{literal}"], "one word, and nothing for the kubelet to replace"
    assert f"--served-model-name=n{literal}" in worker["args"]
    assert f"--seed={text}" in worker["args"]
    assert worker["args"][-2:] == ["--tokenizer", text]
    assert "args" not in frontend
    for container in (frontend, worker):
        assert {"name": "A", "value": text} in container["env"]
    assert b"sh" not in canonical_json([worker["command"], frontend.get("command")])


@pytest.mark.parametrize("text", EVIL, ids=range(len(EVIL)))
def test_overrides_take_none_of_it(host: ProviderHost, text: str) -> None:
    for overrides in (
        {"routerMode": text},
        {"runtimeVersion": text},
        {"sharedMemory": text},
        {"frontend": {"resources": {"cpu": text}}},
        {"frontend": {"replicas": text}},
        {"scalingAdapter": text},
    ):
        assert check_overrides(overrides, host.manifest.override_schema).errors, overrides
    unknown = check_overrides({text: {"a": 1}}, host.manifest.override_schema)
    assert unknown.merge == {}


def test_a_label_of_the_operators_cannot_be_taken(host: ProviderHost, deployment: Any, context: Any) -> None:
    labels = {"nvidia.com/dynamo-component-type": "worker", "grove.io/x": "y", "airunway.ai/provider": "z", "team": "a"}
    asked = deployment(podTemplate={"metadata": {"labels": labels}})
    for written in NAMES:
        (found,) = host.translate_spec(asked, context(written=written)).objects
        text = canonical_json(found)
        assert b'"team":"a"' in text
        assert b"dynamo-component-type" not in text
        assert b"grove.io" not in text
    assert len(host.can_handle(asked, context()).warnings) == 3
