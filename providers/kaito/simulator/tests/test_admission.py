"""Refusals of KAITO's webhook: ours against the answers that the recordings hold, and the texts of pod failures."""

from __future__ import annotations

import json

import pytest
from tests.recorded import recorded_by

from airunway.resource import Resource
from airunway_kaito_simulator.admission import denial, refusals_on_create, refusals_on_update
from airunway_kaito_simulator.pods import MESSAGE_LIMIT, failure_of
from airunway_testing.simulators.writes import merged

RECORDINGS = recorded_by("kaito-v0.12.0")

NODE = {"metadata": {"name": "gpu-1", "labels": {"nvidia.com/gpu.present": "true"}}}
CONFIG = "llama-8b-inference-config"
PRESET: Resource = {
    "metadata": {"name": "llama-8b", "namespace": "i1-config-adapters"},
    "resource": {"count": 1, "labelSelector": {"matchLabels": {"nvidia.com/gpu.present": "true"}}},
    "inference": {
        "config": CONFIG,
        "preset": {"name": "meta-llama/Llama-3.1-8B-Instruct", "presetOptions": {"modelAccessSecret": "hf-token"}},
    },
}
ADAPTER = {"source": {"name": "a1", "image": "docker.io/org/x:1"}}


def config_map(text: str, key: str = "inference_config.yaml") -> Resource:
    return {"metadata": {"name": CONFIG}, "data": {key: text}}


GOOD = config_map("vllm: {max-model-len: '8192'}")


def answer(recording: str, step: str) -> str:
    """What the API server answered to a step, from the webhook's name on; empty if it refused nothing."""
    rows = [json.loads(line) for line in (RECORDINGS / f"{recording}.jsonl").read_text().splitlines()]
    (output,) = {row["output"] for row in rows if row["name"] == f"result of: {step}" and "output" in row}
    return str(output[output.index("admission webhook") :]) if "admission webhook" in output else ""


@pytest.mark.parametrize(
    ("step", "patch"),
    [
        ("preset: change preset.name", {"inference": {"preset": {"name": "other"}}}),
        ("preset: change modelAccessSecret", {"inference": {"preset": {"presetOptions": {"modelAccessSecret": "b"}}}}),
        ("preset: change inference.config to a missing ConfigMap", {"inference": {"config": "no-such"}}),
        ("change resource.count", {"resource": {"count": 2}}),
        ("change resource.instanceType", {"resource": {"instanceType": "Standard_NC24ads_A100_v4"}}),
        ("change resource.labelSelector", {"resource": {"labelSelector": {"matchLabels": {"a": "b"}}}}),
        ("add resource.partition", {"resource": {"partition": {"mode": "accelerator", "count": 1}}}),
        ("replace preset by template", {"inference": {"preset": None, "template": {"spec": {}}}}),
        ("remove inference", {"inference": None}),
        ("add adapter (image)", {"inference": {"adapters": [ADAPTER]}}),
        ("our labels changed", {"metadata": {"labels": {"a": "b"}}}),
    ],
)
def test_edits_are_refused_as_recorded(step: str, patch: Resource) -> None:
    refusals = refusals_on_update(PRESET, merged(PRESET, patch))
    assert (denial(refusals) if refusals else "") == answer("f1-edits", step)


@pytest.mark.parametrize(
    ("step", "config", "patch"),
    [
        ("apply Workspace whose ConfigMap is missing", None, {}),
        ("ConfigMap without key inference_config.yaml", config_map("1", key="wrong"), {}),
        (
            "server dry run with inference_config.yaml = $'vllm:\\n  max-model-len: 8192\\n'",
            config_map("vllm:\n  max-model-len: 8192\n"),
            {},
        ),
        (
            "server dry run with inference_config.yaml = $'vllm:\\n  max-model-len: \"abc\"\\n'",
            config_map('vllm:\n  max-model-len: "abc"\n'),
            {},
        ),
        (
            "server dry run with inference_config.yaml = $'max-model-len: 1\\n'",
            config_map("max-model-len: 1\n"),
            {},
        ),
        (
            'adapters [{"source":{"name":"a1","image":"docker.io/org/no-such:1"},"strength":"0.5"}]',
            GOOD,
            {"inference": {"adapters": [{**ADAPTER, "strength": "0.5"}]}},
        ),
        (
            'adapters [{"source":{"name":"a1","image":"docker.io/org/x:1"}},'
            '{"source":{"name":"a1","image":"docker.io/org/y:1"}}]',
            GOOD,
            {"inference": {"adapters": [ADAPTER, ADAPTER]}},
        ),
    ],
)
def test_creations_are_refused_as_recorded(step: str, config: Resource | None, patch: Resource) -> None:
    refusals = refusals_on_create(merged(PRESET, patch), nodes=[NODE], config_map=config)
    assert (denial(refusals) if refusals else "") == answer("i1-config-adapters", step)


def test_a_config_that_is_not_yaml_is_refused_with_the_recorded_beginning() -> None:
    (refusal,) = refusals_on_create(PRESET, nodes=[NODE], config_map=config_map("vllm: [\n"))
    theirs = answer("i1-config-adapters", "server dry run with inference_config.yaml = $'vllm: [\\n'")
    assert refusal.startswith("Failed to parse inference_config.yaml: ")
    assert theirs.startswith(denial(["Failed to parse inference_config.yaml: "]))


def test_a_preset_needs_a_matching_node_and_a_template_does_not() -> None:
    refused = refusals_on_create(PRESET, nodes=[], config_map=GOOD)
    assert denial(refused) == answer("d1-no-node", "apply preset Workspace whose selector matches no node")
    template = {**PRESET, "inference": {"template": {"spec": {}}}}
    assert refusals_on_create(template, nodes=[], config_map=None) == []
    partitioned = merged(PRESET, {"resource": {"partition": {"mode": "accelerator", "count": 1}}})
    assert refusals_on_create(partitioned, nodes=[], config_map=GOOD) == []


def test_what_needs_no_node_is_refused_for_its_own_reasons() -> None:
    both = merged(PRESET, {"inference": {"template": {"spec": {}}}})
    assert refusals_on_create(both, nodes=[NODE], config_map=GOOD) == [
        "Preset and Template cannot be set at the same time"
    ]
    (sized,) = refusals_on_create(merged(PRESET, {"resource": {"instanceType": "x"}}), nodes=[NODE], config_map=GOOD)
    assert sized.startswith("invalid value: instanceType must be empty")


def pod(name: str = "llama-8b-0", **status: object) -> Resource:
    return {"metadata": {"name": name}, "status": status}


def waiting(reason: str, **more: object) -> Resource:
    return {"name": "model", "ready": False, "state": {"waiting": {"reason": reason, "message": "because"}}, **more}


@pytest.mark.parametrize(
    ("subject", "reason", "message"),
    [
        (
            pod(containerStatuses=[waiting("ErrImagePull")]),
            "ImagePullError",
            'container "model" image pull failed (ErrImagePull): because',
        ),
        (
            pod(initContainerStatuses=[waiting("ImagePullBackOff")], containerStatuses=[waiting("PodInitializing")]),
            "ImagePullError",
            'container "model" image pull failed (ImagePullBackOff): because',
        ),
        (
            pod(containerStatuses=[waiting("CreateContainerConfigError")]),
            "ContainerStartError",
            'container "model" cannot start (CreateContainerConfigError): because',
        ),
        (
            pod(containerStatuses=[waiting("CrashLoopBackOff")]),
            "ContainerCrashLoopBackOff",
            'container "model" is in CrashLoopBackOff',
        ),
        (pod(reason="Evicted", message="low on memory"), "PodEvicted", 'pod "llama-8b-0" was evicted: low on memory'),
    ],
)
def test_failures_that_no_recording_shows(subject: Resource, reason: str, message: str) -> None:
    failure = failure_of([subject])
    assert failure is not None
    assert (failure.reason, failure.message) == (reason, message)


def test_a_pod_that_only_takes_its_time_has_not_failed() -> None:
    creating = pod(containerStatuses=[waiting("ContainerCreating")])
    ended = {"name": "model", "ready": False, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    assert failure_of([creating, pod(containerStatuses=[ended]), pod()]) is None


def test_the_first_failing_pod_speaks_for_all() -> None:
    second = pod("llama-8b-1", containerStatuses=[waiting("ErrImagePull")])
    first = pod("llama-8b-0", containerStatuses=[waiting("CrashLoopBackOff")])
    failure = failure_of([second, first])
    assert failure is not None
    assert failure.reason == "ContainerCrashLoopBackOff"


def test_messages_are_cut() -> None:
    failure = failure_of([pod(reason="Evicted", message="x" * 500)])
    assert failure is not None
    assert len(failure.message) == MESSAGE_LIMIT + 3
    assert failure.message.endswith("...")
