"""What users brought and the API could not say: each input, and two siblings of its kind, with every provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.plugins.contract import Context, RuntimeSettings
from airunway.plugins.registry import load
from airunway.resource import Resource, dig
from airunway.runtime.translate import TranslationResult
from airunway.sdk import pod_templates
from airunway.validation import validate
from airunway.validation.policy import NAMESPACE_NAME, Policy, parse_policy, violations
from airunway_testing.conformance.cases import Base, context_of, judged, merged_spec

PROVIDERS = ("dynamo", "kaito", "kuberay", "llmd", "vllm")
INPUTS = Path(__file__).parent / "inputs"
_SPLIT: Resource = {
    "serving": {"mode": "disaggregated"},
    "resources": {"gpu": {"count": 0}},
    "scaling": {role: {"gpu": {"count": 1}, "memory": "64Gi"} for role in ("prefill", "decode")},
}


def given(case: str) -> Resource:
    (found,) = yaml.safe_load_all((INPUTS / f"{case}.yaml").read_text(encoding="utf-8"))
    assert validate(found) == []
    return dict(found["spec"])


def rendered(
    provider: str, spec: Resource, *, runtime: RuntimeSettings | None = None, **context: Any
) -> TranslationResult:
    """What the provider makes of a spec; settings of a runtime config, and of the context, are keyword arguments."""
    host = load(provider)
    base = Base(name="asked", engine=dig(spec, "engine", "type", default="vllm"), spec=spec)
    about: Context[Any] = replace(context_of(host, base), runtime=runtime or RuntimeSettings(), **context)
    return judged(host, base, spec, context=about)


def pods(found: TranslationResult, *, of_model: bool) -> Iterator[Resource]:
    """The pod specs of the model, or of helpers; the GPUs of a pod, or its head's, show which it is."""
    assert found.blockers == ()
    for obj in found.objects:
        for template in pod_templates(obj):
            containers = template["spec"]["containers"]
            if any("nvidia.com/gpu" in (dig(each, "resources", "limits") or {}) for each in containers) is of_model:
                yield template["spec"]


def refusal(found: TranslationResult) -> str:
    assert found.objects == ()
    return "; ".join(f"{each.path}: {each.message}" for each in found.blockers)


def allowed(spec: Resource, policy: Policy) -> list[str]:
    labels = {NAMESPACE_NAME: "team"}
    found = violations(policy, spec, engine="vllm", provider=None, namespace_labels=labels)
    return [f"{each.path}: {each.message}" for each in found]


# ------------------------------------------------------------------------------------------- 02 chat template configmap


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("configMap", {"configMap": {"name": "templates"}}),
        ("secret", {"secret": {"secretName": "templates"}}),
    ],
)
def test_02_chat_template_configmap_files_are_mounted_read_only(provider: str, kind: str, source: Resource) -> None:
    spec = given("02-chat-template-configmap")
    (volume,) = spec["model"]["storage"]["volumes"]
    volumes = [{"name": "templates", kind: volume["configMap"], "mountPath": "/etc/templates"}]
    spec = merged_spec(spec, {"engine": {"args": {}}, "model": {"storage": {"volumes": volumes}}})
    spec["engine"]["args"] = {}  # which flag reaches which worker is another matter
    (pod,) = pods(rendered(provider, spec), of_model=True)
    mount = {"name": "templates", "mountPath": "/etc/templates", "readOnly": True}
    assert {"name": "templates", **source} in pod["volumes"]
    assert [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "templates"] == [mount]


def test_02_chat_template_configmap_a_misspelt_field_is_answered_with_the_right_one() -> None:
    spec = given("02-chat-template-configmap")
    spec["model"]["storage"]["volumes"] = [{"name": "t", "configMapName": "templates", "mountPath": "/t"}]
    found = [str(each) for each in validate({**_object(), "spec": spec})]
    assert "spec.model.storage.volumes[0].configMapName: unknown field, did you mean configMap?" in found


def test_02_chat_template_configmap_a_bundle_of_certificates_is_put_below_etc() -> None:
    spec = given("02-chat-template-configmap")
    spec["model"]["storage"]["volumes"] = [{"name": "ca", "secret": {"name": "ca"}, "mountPath": "/etc/ssl/site"}]
    assert validate({**_object(), "spec": spec}) == []
    nothing = parse_policy(str({"rules": [{"secrets": []}]}))
    (refused,) = allowed(spec, nothing)
    assert refused.startswith("spec.model.storage.volumes[0].secret.name: secret 'ca' is not allowed")


def _object() -> Resource:
    return {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "m"}}


# ---------------------------------------------------------------------------------------------------- 03 runtime class


@pytest.mark.parametrize("provider", PROVIDERS)
def test_03_runtime_class_is_on_the_pods_with_gpus(provider: str) -> None:
    found = rendered(provider, given("03-runtime-class"))
    assert {pod["runtimeClassName"] for pod in pods(found, of_model=True)} == {"nvidia"}
    assert all("runtimeClassName" not in pod for pod in pods(found, of_model=False))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_03_runtime_class_of_a_runtime_config_reaches_them_too(provider: str) -> None:
    spec = given("03-runtime-class")
    del spec["runtimeClassName"]
    if provider != "kuberay":  # with an image it is no preset of KAITO's
        spec["image"] = "vllm/vllm-openai:v0.23.0"
    runtime = RuntimeSettings(runtime_class="nvidia")
    found = rendered(provider, spec, runtime=runtime)
    assert {pod["runtimeClassName"] for pod in pods(found, of_model=True)} == {"nvidia"}
    own = rendered(provider, {**spec, "runtimeClassName": "nvidia-cdi"}, runtime=runtime)
    assert {pod["runtimeClassName"] for pod in pods(own, of_model=True)} == {"nvidia-cdi"}


def test_03_runtime_class_of_a_config_leaves_models_on_cpu_alone_and_the_policy_limits_classes() -> None:
    spec = {"model": {"id": "o/m"}, "engine": {"type": "llamacpp"}, "image": "ghcr.io/ggml-org/llama.cpp:server"}
    found = rendered("vllm", spec, runtime=RuntimeSettings(runtime_class="nvidia"))
    assert found.warnings == ()
    assert all("runtimeClassName" not in pod for pod in pods(found, of_model=False))
    only = parse_policy(str({"rules": [{"runtimeClasses": ["nvidia"]}]}))
    assert allowed(given("03-runtime-class"), only) == []
    assert allowed({"runtimeClassName": "kata"}, only) == [
        "spec.runtimeClassName: runtime class 'kata' is not allowed in namespace 'team' (allowed by policy: nvidia)"
    ]


# ---------------------------------------------------------------------------------------------------- 05 rdma resource


@pytest.mark.parametrize("provider", ["dynamo", "llmd", "vllm"])
def test_05_rdma_resource_is_in_every_pod_of_the_group_and_memory_can_be_locked(provider: str) -> None:
    found = list(pods(rendered(provider, given("05-rdma-resource")), of_model=True))
    assert found
    for pod in found:
        main = pod["containers"][0]
        assert {dig(main, "resources", of, "rdma/ib") for of in ("requests", "limits")} == {"2"}
        assert main["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


@pytest.mark.parametrize("provider", ["dynamo", "kuberay", "llmd"])
def test_05_rdma_resource_prefill_and_decode_have_it_and_helpers_have_not(provider: str) -> None:
    spec = merged_spec(given("05-rdma-resource"), _SPLIT)
    found = rendered(provider, spec)
    assert [pod["containers"][0]["resources"]["limits"]["rdma/ib"] for pod in pods(found, of_model=True)] == ["2", "2"]
    for pod in pods(found, of_model=False):
        assert "rdma/ib" not in str(pod)
        assert "IPC_LOCK" not in str(pod)


def test_05_rdma_resource_a_capability_and_a_device_need_the_policy() -> None:
    spec = given("05-rdma-resource")
    (refused,) = allowed(spec, Policy())
    assert refused == (
        "spec.securityContext.capabilities.add[0]: capability 'IPC_LOCK' is not allowed in namespace 'team' "
        "(only where the policy lists it under capabilities)"
    )
    assert allowed(spec, parse_policy(str({"rules": [{"capabilities": ["IPC_LOCK"]}]}))) == []
    (device,) = allowed(spec, parse_policy(str({"rules": [{"capabilities": ["*"], "extendedResources": []}]})))
    assert device.startswith("spec.resources.extended[rdma/ib]: extended resource 'rdma/ib' is not allowed")
    spec["securityContext"]["capabilities"]["add"] = ["SYS_ADMIN"]
    (unknown,) = map(str, validate({**_object(), "spec": spec}))
    assert unknown.startswith("spec.securityContext.capabilities.add[0]: ")
    assert "IPC_LOCK" in unknown


# -------------------------------------------------------------------------------------------------- 08 quota cpu limit


@pytest.mark.parametrize("provider", PROVIDERS)
def test_08_quota_cpu_limit_every_container_has_limits(provider: str) -> None:
    found = rendered(provider, given("08-quota-cpu-limit"))
    (pod,) = pods(found, of_model=True)
    assert pod["containers"][0]["resources"]["limits"] | {"nvidia.com/gpu": "1"} == {
        "cpu": "16",
        "memory": "32Gi",
        "nvidia.com/gpu": "1",
    }
    for each in [pod, *pods(found, of_model=False)]:
        for container in [*each["containers"], *each.get("initContainers", [])]:
            assert {"cpu", "memory"} <= dig(container, "resources", "limits", default={}).keys(), container["name"]
            assert {"cpu", "memory"} <= dig(container, "resources", "requests", default={}).keys(), container["name"]


@pytest.mark.parametrize("provider", ["dynamo", "kuberay", "llmd"])
def test_08_quota_cpu_limit_roles_may_have_limits_of_their_own(provider: str) -> None:
    spec = merged_spec(given("08-quota-cpu-limit"), _SPLIT, {"scaling": {"prefill": {"limits": {"cpu": "4"}}}})
    found = rendered(provider, spec)
    assert sorted(pod["containers"][0]["resources"]["limits"]["cpu"] for pod in pods(found, of_model=True)) == [
        "16",
        "4",
    ]
    for pod in pods(found, of_model=False):
        assert all(dig(each, "resources", "limits", "cpu") for each in pod["containers"])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_08_quota_cpu_limit_absent_there_is_none(provider: str) -> None:
    spec = given("08-quota-cpu-limit")
    del spec["resources"]["limits"]
    if provider != "kuberay":
        spec["image"] = "vllm/vllm-openai:v0.23.0"
    for of_model in (True, False):
        for pod in pods(rendered(provider, spec), of_model=of_model):
            assert "cpu" not in dig(pod["containers"][0], "resources", "limits", default={})


# ------------------------------------------------------------------------------------------------------ slices of GPUs


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.12gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu.shared"])
def test_a_slice_runs_the_default_image_and_two_never_become_tensor_parallel(provider: str, name: str) -> None:
    spec = {"model": {"id": "o/m"}, "engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1, "type": name}}}
    one = rendered(provider, spec)
    assert one.blockers == ()
    assert "tensor-parallel-size=" not in str(one.objects)
    two = refusal(rendered(provider, merged_spec(spec, {"resources": {"gpu": {"count": 2}}})))
    assert two.startswith("spec.resources.gpu.count: 2 ")
    assert "set count to 1" in two


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_slice_in_capital_letters_is_a_warning_with_the_name_that_nodes_have(provider: str) -> None:
    gpu = {"count": 1, "type": "nvidia.com/MIG-1g.12gb"}
    found = rendered(provider, {"model": {"id": "o/m"}, "engine": {"type": "vllm"}, "resources": {"gpu": gpu}})
    assert "write nvidia.com/mig-1g.12gb" in str([*found.warnings, *found.blockers]), found


@pytest.mark.parametrize("provider", ["dynamo", "llmd", "vllm"])
@pytest.mark.parametrize(
    ("gpus", "args", "ways"),
    [
        (2, {"tensor-parallel-size": "4"}, 4),
        (2, {"tp": "2", "pipeline-parallel-size": "2"}, 4),
        (4, {"tensor-parallel-size": "4"}, 0),
        (4, {"tensor-parallel-size": "2"}, 0),
        (2, {}, 0),
        (2, {"tensor-parallel-size": "many"}, 0),
    ],
)
def test_a_model_split_over_more_gpus_than_asked_for_is_a_warning_with_the_count_to_write(
    provider: str, gpus: int, args: dict[str, str], ways: int
) -> None:
    spec = {"model": {"id": "o/m"}, "engine": {"type": "vllm", "args": args}, "resources": {"gpu": {"count": gpus}}}
    told = str([each.message for each in rendered(provider, spec).warnings])
    assert (f"set gpu.count to {ways}, or remove the flag" in told) is bool(ways), told


@pytest.mark.parametrize("provider", ["llmd", "vllm"])
def test_amd_needs_an_image_of_its_own_and_splits_tensors(provider: str) -> None:
    spec = {
        "model": {"id": "o/m"},
        "engine": {"type": "vllm"},
        "resources": {"gpu": {"count": 2, "type": "amd.com/gpu"}},
    }
    assert "set spec.image for amd.com/gpu" in refusal(rendered(provider, spec))
    assert "tensor-parallel-size=2" in str(rendered(provider, {**spec, "image": "rocm/vllm:latest"}).objects)


# --------------------------------------------------------------------------------------------------- nodes per replica


@pytest.mark.parametrize("provider", ["dynamo", "llmd", "vllm"])
def test_two_gpus_are_spread_over_two_nodes_of_one(provider: str) -> None:
    spec = {"model": {"id": "o/m"}, "engine": {"type": "vllm"}, "resources": {"gpu": {"count": 2}}}
    spec["scaling"] = {"nodesPerReplica": 2}
    found = rendered(provider, spec)
    assert {pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for pod in pods(found, of_model=True)} == {
        "1"
    }
    uneven = refusal(rendered(provider, merged_spec(spec, {"scaling": {"nodesPerReplica": 3}})))
    assert uneven == (
        "spec.scaling.nodesPerReplica: 2 GPUs per "
        f"{'worker' if provider == 'dynamo' else 'replica'} cannot be spread evenly over 3 nodes: set "
        "resources.gpu.count to 3, or another nodesPerReplica"
    )
    large = merged_spec(spec, {"scaling": {"nodesPerReplica": 1}, "resources": {"gpu": {"count": 16}}})
    assert {
        pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        for pod in pods(rendered(provider, large), of_model=True)
    } == {"16"}


# --------------------------------------------------------------------------------------------------- workload metadata


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_queue_is_named_on_the_workload_object_alone(provider: str) -> None:
    key = "kueue.x-k8s.io/queue-name"
    spec = given("03-runtime-class")
    spec["workload"] = {"metadata": {"labels": {key: "team", "airunway.ai/provider": "x"}, "annotations": {"a": "b"}}}
    found = rendered(provider, spec)
    primary, *others = found.objects
    assert primary["metadata"]["labels"][key] == "team"
    assert primary["metadata"]["labels"]["airunway.ai/provider"] == provider
    assert primary["metadata"]["annotations"]["a"] == "b"
    assert key not in str([{name: part for name, part in primary.items() if name != "metadata"}, others])
    assert "spec.workload.metadata.labels[airunway.ai/provider]" in {each.path for each in found.warnings}


def test_a_queue_is_named_on_prefill_workers_too_and_not_on_a_picker() -> None:
    spec = merged_spec(given("03-runtime-class"), _SPLIT, {"workload": {"metadata": {"labels": {"queue": "team"}}}})
    found = rendered("llmd", spec)
    named = [obj["metadata"]["name"] for obj in found.objects if "queue" in obj["metadata"].get("labels", {})]
    assert named == ["model-decode", "model-prefill"]


# ---------------------------------------------------------------------------------------------------------- model task


@pytest.mark.parametrize(
    ("engine", "image", "task", "words"),
    [
        ("vllm", "", "embed", ["--runner=pooling"]),
        ("vllm", "vllm/vllm-openai:v0.9.2", "embed", ["--task=embed"]),
        ("vllm", "vllm/vllm-openai:v0.9.2", "rerank", ["--task=score"]),
        ("vllm", "", "transcribe", []),
        ("sglang", "lmsysorg/sglang:v0.5.3", "embed", ["--is-embedding"]),
        ("llamacpp", "ghcr.io/ggml-org/llama.cpp:server", "rerank", ["--reranking"]),
    ],
)
def test_a_task_is_told_to_the_engine(engine: str, image: str, task: str, words: list[str]) -> None:
    spec = {"model": {"id": "o/m/f.gguf"}, "engine": {"type": engine}, "resources": {"gpu": {"count": 1}}}
    if image:
        spec["image"] = image
    plain = next(pods(rendered("vllm", spec), of_model=True))["containers"][0]["args"]
    told = next(pods(rendered("vllm", merged_spec(spec, {"model": {"task": task}})), of_model=True))
    assert [word for word in told["containers"][0]["args"] if word not in plain] == words


def test_what_the_user_says_of_the_runner_counts() -> None:
    spec = {"model": {"id": "o/m", "task": "embed"}, "resources": {"gpu": {"count": 1}}}
    spec["engine"] = {"type": "vllm", "args": {"runner": "auto"}}
    (pod,) = pods(rendered("vllm", spec), of_model=True)
    assert [word for word in pod["containers"][0]["args"] if "runner" in word] == ["--runner=auto"]


@pytest.mark.parametrize("provider", ["dynamo", "kuberay"])
def test_a_provider_that_only_generates_refuses_the_others_by_name(provider: str) -> None:
    spec = {"model": {"id": "o/m", "task": "embed"}, "engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}}
    assert refusal(rendered(provider, spec)).startswith("spec.model.task: ")


@pytest.mark.parametrize(
    "change", [{"model": {"task": "embed"}}, {"model": {"task": "transcribe"}}, {"gateway": {"endpointPicker": "None"}}]
)
def test_no_picker_stands_before_what_it_cannot_read(change: Resource) -> None:
    spec = {"model": {"id": "o/m"}, "engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}}
    before = [obj["kind"] for obj in rendered("llmd", spec).objects]
    assert "InferencePool" in before
    assert [obj["kind"] for obj in rendered("llmd", merged_spec(spec, change)).objects] == ["Deployment", "Service"]
