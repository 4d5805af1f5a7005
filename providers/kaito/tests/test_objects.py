"""The desired objects, against the targets of the upstream study."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from airunway.plugins.contract import Context, RuntimeSettings, Transformer, Upstream
from airunway.resource import Resource, yaml_json
from airunway_kaito.compatibility import compatibility as can_handle
from airunway_kaito.manifest import INFERENCE_SET, TRANSFORMERS, WORKSPACE
from airunway_kaito.objects import desired

TOKEN = {"huggingFaceToken": "hf-token"}
HOME = [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "model"}]
DROPPED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def container(deployment: Any, context: Context) -> Resource:
    (workspace,) = desired(deployment, context).objects
    (found,) = workspace["inference"]["template"]["spec"]["containers"]
    return dict(found)


def test_vllm_preset_on_existing_nodes(vllm: Any, context: Any) -> None:
    deployment = vllm(
        model={"id": "meta-llama/Llama-3.1-8B-Instruct", "servedName": "llama-3.1-8b"},
        engine={"contextLength": 8192},
        resources={"gpu": {"count": 1}, "memory": "32Gi"},
        secrets=TOKEN,
    )
    workspace, config = desired(deployment, context()).objects
    assert workspace == {
        "apiVersion": "kaito.sh/v1beta1",
        "kind": "Workspace",
        "metadata": {
            "name": "llama-8b",
            "labels": {"airunway.ai/model-source": "huggingface", "airunway.ai/engine-type": "vllm"},
            "annotations": {"kaito.sh/runtime": "vllm", "kaito.sh/disable-benchmark": "true"},
        },
        "resource": {"labelSelector": {"matchLabels": {"nvidia.com/gpu.present": "true"}}},
        "inference": {
            "preset": {
                "name": "meta-llama/Llama-3.1-8B-Instruct",
                "presetOptions": {"modelAccessSecret": "hf-token"},
            },
            "config": config["metadata"]["name"],
        },
    }
    assert (config["kind"], config["immutable"]) == ("ConfigMap", True)
    assert yaml.safe_load(config["data"]["inference_config.yaml"]) == {
        "vllm": {"max-model-len": "8192", "served-model-name": "llama-3.1-8b"}
    }


def test_a_change_of_the_engine_settings_is_a_change_of_the_config_name_only(vllm: Any, context: Any) -> None:
    before, config_before = desired(vllm(engine={"contextLength": 8192}), context()).objects
    after, config_after = desired(vllm(engine={"contextLength": 4096}), context()).objects
    assert config_before["metadata"]["name"] != config_after["metadata"]["name"]
    before["inference"]["config"] = after["inference"]["config"]
    assert before == after


def test_a_public_model_gets_no_access_secret(vllm: Any, context: Any) -> None:
    workspace, _ = desired(vllm(), context()).objects
    assert "presetOptions" not in workspace["inference"]["preset"]


@pytest.mark.parametrize("name", ['a"b: {}', "ünï", "- x", "true", "a\nb", "8192"])
def test_any_served_name_is_text_in_the_config(vllm: Any, context: Any, name: str) -> None:
    _, config = desired(vllm(model={"id": "o/m", "servedName": name}), context()).objects
    assert yaml.safe_load(config["data"]["inference_config.yaml"]) == {"vllm": {"served-model-name": name}}


def test_partition_holds_a_preset_to_its_gpus(vllm: Any, context: Any) -> None:
    workspace, _ = desired(vllm(resources={"gpu": {"count": 2}}), context(partition=True)).objects
    assert workspace["resource"]["partition"] == {"mode": "accelerator", "count": 2}


@pytest.mark.parametrize(
    ("release", "settings"), [("0.9", {}), ("0.12", {"nodeProvisioner": "karpenter", "instanceType": "X"})]
)
def test_partition_only_where_kaito_has_it(vllm: Any, context: Any, release: str, settings: dict[str, str]) -> None:
    workspace, _ = desired(vllm(), context(release=release, partition=True, **settings)).objects
    assert "partition" not in workspace["resource"]


def test_node_auto_provisioning(vllm: Any, llamacpp: Any, context: Any) -> None:
    settings = {"nodeProvisioner": "azure-gpu-provisioner", "instanceType": "Standard_NC24ads_A100_v4"}
    workspace, _ = desired(vllm(nodeSelector={"team": "a"}), context(**settings)).objects
    labels = workspace["resource"]["labelSelector"]["matchLabels"]
    assert workspace["resource"]["instanceType"] == "Standard_NC24ads_A100_v4"
    assert labels.pop("airunway.ai/nodes-of").startswith("llama-8b-")
    assert labels == {"team": "a"}
    assert not can_handle(llamacpp(), context("llamacpp", **settings)).ok
    cpu = context("llamacpp", **settings, cpuInstanceType="Standard_D8s_v5")
    assert can_handle(llamacpp(), cpu).ok
    assert desired(llamacpp(), cpu).objects[0]["resource"]["instanceType"] == "Standard_D8s_v5"


def test_vllm_template_is_exact(vllm: Any, context: Any) -> None:
    deployment = vllm(
        image="vllm/vllm-openai:v0.23.0",
        engine={"contextLength": 8192, "args": {"quantization": "awq"}},
        resources={"gpu": {"count": 2}, "memory": "32Gi", "cpu": "4"},
        secrets=TOKEN,
    )
    assert container(deployment, context()) == {
        "name": "model",
        "image": "vllm/vllm-openai:v0.23.0",
        "command": ["vllm", "serve"],
        "args": [
            "meta-llama/Llama-3.1-8B-Instruct",
            "--port=5000",
            "--served-model-name=Llama-3.1-8B-Instruct",
            "--max-model-len=8192",
            "--tensor-parallel-size=2",
            "--quantization=awq",
        ],
        "env": HOME,
        "envFrom": [{"secretRef": {"name": "hf-token"}}],
        "ports": [{"name": "http", "containerPort": 5000}],
        "resources": {
            "requests": {"nvidia.com/gpu": "2", "memory": "32Gi", "cpu": "4"},
            "limits": {"nvidia.com/gpu": "2", "memory": "32Gi"},
        },
        "startupProbe": {
            "httpGet": {"path": "/health", "port": 5000},
            "periodSeconds": 30,
            "failureThreshold": 120,
        },
        "securityContext": DROPPED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "readinessProbe": {"httpGet": {"path": "/health", "port": 5000}},
        "volumeMounts": [{"name": "airunway-dshm", "mountPath": "/dev/shm"}],
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"image": "i"},
        {"engine": {"image": "i"}},
        {"engine": {"args": {"seed": "1"}}},
        {"engine": {"extraArgs": ["--seed=1"]}},
        {"engine": {"trustRemoteCode": True}},
        {"engine": {"enablePrefixCaching": False}},
        {"engine": {"enforceEager": True}},
        {"env": [{"name": "A", "value": "b"}]},
        {"tolerations": [{"operator": "Exists"}]},
        {"serviceAccountName": "sa"},
        {"imagePullSecrets": [{"name": "pull"}]},
        {"priorityClassName": "high"},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
    ],
    ids=str,
)
def test_what_a_preset_has_no_place_for_makes_a_template(vllm: Any, context: Any, fields: dict[str, Any]) -> None:
    assert "preset" in desired(vllm(), context()).objects[0]["inference"]
    assert "template" in desired(vllm(**fields), context()).objects[0]["inference"]


def test_releases_whose_presets_take_no_model_ids_get_templates(vllm: Any, context: Any) -> None:
    for release in ("0.4.5", "0.4.6", "0.7"):
        found = container(vllm(secrets=TOKEN), context(release=release, instanceType="X"))
        assert found["image"] == "vllm/vllm-openai:v0.23.0"
        assert found["envFrom"] == [{"secretRef": {"name": "hf-token"}}]


def test_releases_before_0_7_use_nodes_of_a_named_type(vllm: Any, context: Any) -> None:
    assert [b.path for b in can_handle(vllm(), context(release="0.4.6")).blockers] == ["spec.provider.overrides"]
    named = context(release="0.4.6", instanceType="Standard_NC24ads_A100_v4")
    assert can_handle(vllm(), named).ok
    assert desired(vllm(), named).objects[0]["resource"]["instanceType"] == "Standard_NC24ads_A100_v4"
    assert "instanceType" not in desired(vllm(), context(release="0.7")).objects[0]["resource"]


def test_llamacpp_on_cpu_is_the_seeds_example(llamacpp: Any, context: Any) -> None:
    (workspace,) = desired(llamacpp(), context("llamacpp")).objects
    assert workspace["resource"] == {"labelSelector": {"matchLabels": {"kubernetes.io/os": "linux"}}}
    assert "annotations" not in workspace["metadata"]
    assert workspace["inference"]["template"] == {
        "metadata": {},  # the labels that say whose the pod is are the runtime's
        "spec": {
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "model",
                    "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
                    "args": [
                        "huggingface://google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf",
                        "--address=:5000",
                    ],
                    "ports": [{"name": "http", "containerPort": 5000}],
                    "env": HOME,
                    "resources": {"requests": {"cpu": "8", "memory": "16Gi"}, "limits": {"memory": "16Gi"}},
                    "startupProbe": {"tcpSocket": {"port": 5000}, "periodSeconds": 10, "failureThreshold": 180},
                    "securityContext": DROPPED,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "readinessProbe": {"tcpSocket": {"port": 5000}},
                }
            ],
        },
    }


def test_llamacpp_on_a_gpu(llamacpp: Any, context: Any) -> None:
    deployment = llamacpp(resources={"gpu": {"count": 1}})
    (workspace,) = desired(deployment, context("llamacpp")).objects
    assert workspace["resource"]["labelSelector"]["matchLabels"] == {"nvidia.com/gpu.present": "true"}
    assert container(deployment, context("llamacpp"))["resources"]["limits"] == {"nvidia.com/gpu": "1"}


SERVER = "ghcr.io/ggml-org/llama.cpp:server"
RUNNER = "ghcr.io/kaito-project/aikit/runners/llama-cpp-cpu@sha256:0123"


@pytest.mark.parametrize(
    ("image", "model", "url", "expected"),
    [
        (RUNNER, {"id": "o/r/f.gguf"}, "", ["huggingface://o/r/f.gguf", "--address=:5000", "--context-size=4096"]),
        (
            RUNNER,
            {"id": "o/r"},
            "https://e.org/m.gguf",
            ["https://e.org/m.gguf", "--address=:5000", "--context-size=4096"],
        ),
        (RUNNER, {"source": "custom"}, "", ["--address=:5000", "--context-size=4096"]),
        (
            SERVER,
            {"id": "o/r", "servedName": "n"},
            "",
            ["--hf-repo", "o/r", "--host", "0.0.0.0", "--port", "5000", "--alias", "n", "--ctx-size", "4096"],
        ),
        (
            SERVER,
            {"id": "o/r/f.gguf"},
            "",
            [
                "--hf-repo",
                "o/r",
                "--hf-file",
                "f.gguf",
                "--host",
                "0.0.0.0",
                "--port",
                "5000",
                "--alias",
                "f.gguf",
                "--ctx-size",
                "4096",
            ],
        ),
        (
            SERVER,
            {"source": "custom"},
            "/models/m.gguf",
            ["--model", "/models/m.gguf", "--host", "0.0.0.0", "--port", "5000", "--ctx-size", "4096"],
        ),
        (
            SERVER,
            {"source": "custom"},
            "https://e.org/m.gguf",
            ["--model-url", "https://e.org/m.gguf", "--host", "0.0.0.0", "--port", "5000", "--ctx-size", "4096"],
        ),
    ],
)
def test_the_command_line_fits_the_image(
    llamacpp: Any, context: Any, image: str, model: dict[str, str], url: str, expected: list[str]
) -> None:
    args = {"ggufUrl": url} if url else {}
    deployment = llamacpp(image=None, model=model, engine={"image": image, "contextLength": 4096, "args": args})
    assert can_handle(deployment, context("llamacpp")).ok
    assert container(deployment, context("llamacpp"))["args"] == expected


def test_environment_from_the_weakest_to_the_strongest(vllm: Any, context: Any) -> None:
    runtime = RuntimeSettings(env=({"name": "A", "value": "runtime"}, {"name": "B", "value": "runtime"}))
    field = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    deployment = vllm(env=[{"name": "B", "value": "mine"}, field], secrets=TOKEN)
    assert container(deployment, context(runtime=runtime))["env"] == [
        {"name": "A", "value": "runtime"},
        {"name": "B", "value": "mine"},
        field,
        *HOME,
    ]
    shared = RuntimeSettings(env=({"name": "HF_TOKEN", "value": "everybody's"},))
    found = container(vllm(secrets=TOKEN), context(runtime=shared))["env"]
    assert found == HOME, "it would hide that of the Secret"
    own = vllm(env=[{"name": "HF_TOKEN", "value": "x"}], secrets=TOKEN)
    assert container(own, context())["env"] == [{"name": "HF_TOKEN", "value": "x"}, *HOME]
    assert [w.path for w in can_handle(own, context()).warnings] == ["spec.secrets.huggingFaceToken"]


def test_volumes_are_mounted_and_caches_are_used(vllm: Any, context: Any) -> None:
    volumes = [
        {"name": "weights", "purpose": "modelCache", "claimName": "pvc", "readOnly": True},
        {"name": "kernels", "purpose": "compilationCache", "size": "10Gi"},
        {"name": "data", "claimName": "data", "mountPath": "/data"},
    ]
    deployment = vllm(model={"id": "o/m", "storage": {"volumes": volumes}})
    pod = desired(deployment, context()).objects[0]["inference"]["template"]["spec"]
    assert pod["volumes"][1:] == [
        {"name": "weights", "persistentVolumeClaim": {"claimName": "pvc", "readOnly": True}},
        {"name": "kernels", "persistentVolumeClaim": {"claimName": "llama-8b-kernels"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    found = container(deployment, context())
    assert found["volumeMounts"][1:] == [
        {"name": "weights", "mountPath": "/model-cache", "readOnly": True},
        {"name": "kernels", "mountPath": "/compilation-cache"},
        {"name": "data", "mountPath": "/data"},
    ]
    assert found["env"] == [
        *HOME,
        {"name": "HF_HOME", "value": "/model-cache"},
        {"name": "VLLM_CACHE_ROOT", "value": "/compilation-cache"},
    ]


def test_pods_of_a_template_carry_the_wanted_metadata(vllm: Any, context: Any) -> None:
    metadata = {
        "labels": {"team": "a", "airunway.ai/model-deployment": "other", "kaito.sh/workspace": "other"},
        "annotations": {"note": "b"},
    }
    deployment = vllm(image="i", podTemplate={"metadata": metadata})
    runtime = RuntimeSettings(labels={"airunway.ai/tenant": "t"})
    (workspace,) = desired(deployment, context(runtime=runtime)).objects
    assert workspace["inference"]["template"]["metadata"] == {
        "labels": {
            "airunway.ai/tenant": "t",
            "team": "a",
        },
        "annotations": {"note": "b"},
    }
    assert [w.path for w in can_handle(deployment, context()).warnings] == [
        "spec.podTemplate.metadata.labels[airunway.ai/model-deployment]",
        "spec.podTemplate.metadata.labels[kaito.sh/workspace]",
    ]


def test_pod_settings_reach_the_pod(vllm: Any, context: Any) -> None:
    fields = {
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "serviceAccountName": "sa",
        "imagePullSecrets": [{"name": "pull"}],
        "priorityClassName": "high",
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    }
    pod = desired(vllm(**fields), context()).objects[0]["inference"]["template"]["spec"]
    assert {key: pod[key] for key in fields} == fields


def test_a_custom_source_leaves_command_and_model_to_the_image(vllm: Any, context: Any) -> None:
    deployment = vllm(image="registry.example/my-model:1", model={"source": "custom"})
    found = container(deployment, context())
    assert "command" not in found
    assert found["args"] == ["--port=5000"]


def test_node_selector_adds_to_the_default_and_can_replace_it(vllm: Any, context: Any) -> None:
    def labels(*, settings: dict[str, Any], selector: dict[str, str]) -> Any:
        return desired(vllm(nodeSelector=selector), context(**settings)).objects[0]["resource"]["labelSelector"][
            "matchLabels"
        ]

    assert labels(settings={}, selector={"pool": "a"}) == {"nvidia.com/gpu.present": "true", "pool": "a"}
    assert labels(settings={"gpuNodeSelector": {}}, selector={"pool": "a"}) == {"pool": "a"}


def test_l5_ids_names_and_references_are_no_variables(vllm: Any, llamacpp: Any, context: Any) -> None:
    model = {"id": "a/$(HF_TOKEN)", "servedName": "b$(X)"}
    args = container(vllm(model=model, env=[{"name": "A", "value": "$(B)"}]), context())["args"]
    assert args[0] == "a/$$(HF_TOKEN)"
    assert "--served-model-name=b$$(X)" in args
    found = container(llamacpp(engine={"args": {"ggufUrl": "https://x/$(HF_TOKEN)"}}), context("llamacpp"))
    assert found["args"][0] == "https://x/$$(HF_TOKEN)"


def test_l5_what_the_user_writes_as_variables_keeps_its_meaning(vllm: Any, context: Any) -> None:
    storage = {"volumes": [{"name": "v", "claimName": "c", "mountPath": "/x/$(A)", "purpose": "modelCache"}]}
    model = {"id": "o/m", "storage": storage}
    engine = {"args": {"api-key": "$(KEY)"}, "extraArgs": ["--seed=$(SEED)"]}
    found = container(vllm(model=model, engine=engine, env=[{"name": "A", "value": "$(B)"}]), context())
    assert {"name": "A", "value": "$(B)"} in found["env"]
    assert {"name": "HF_HOME", "value": "/x/$$(A)"} in found["env"]
    assert found["volumeMounts"][-1]["mountPath"] == "/x/$(A)"
    assert found["args"][-2:] == ["--api-key=$(KEY)", "--seed=$(SEED)"]


@given(st.text(max_size=20))
@example("a\x7fb")
@example("a\x85b")
@example("a\u2028b\ufeff\U0001f600")
def test_l6_any_character_is_text_in_the_config(name: str) -> None:
    assert yaml.safe_load(f"a: {yaml_json(name)}") == {"a": name}


@pytest.mark.parametrize("several", [False, True])
def test_m1_pods_of_a_template_are_hardened_as_the_kind_that_has_it_says(
    vllm: Any, context: Any, *, several: bool
) -> None:
    """A Workspace by its transformer, an InferenceSet by its own: what exists keeps the one that wrote it."""
    new = context(sets="0.12", live="" if several else WORKSPACE.key)
    old = {key: replace(served, transformer=_released(served.transformer)) for key, served in new.served.items()}
    deployment = vllm(image="i", scaling={"replicas": 2 if several else 1})
    own = INFERENCE_SET.key if several else WORKSPACE.key
    for context_, hardened in (
        (new, True),
        (_serving(new, old), False),
        (_serving(new, {**new.served, own: old[own]}), False),
        (_serving(new, {**old, own: new.served[own]}), True),
    ):
        (made, *_) = desired(deployment, context_).objects
        inference = made["spec"]["template"]["inference"] if several else made["inference"]
        pod = inference["template"]["spec"]
        assert ("automountServiceAccountToken" in pod) is hardened
        assert ("securityContext" in pod["containers"][0]) is hardened


def _released(transformer: Transformer) -> Transformer:
    return next(t for t in TRANSFORMERS if t.name == transformer.name.removesuffix("-r3"))


def _serving(context: Context, served: dict[str, Upstream]) -> Context:
    return replace(context, served=served, upstream=served[WORKSPACE.key])


@pytest.mark.parametrize(
    ("fields", "runtime"),
    [
        ({"engine": {"args": {"api-key": "x"}}}, ()),
        ({"engine": {"extraArgs": ["--api-key=x"]}}, ()),
        ({"env": [{"name": "VLLM_API_KEY", "value": "x"}]}, ()),
        ({}, ({"name": "VLLM_API_KEY", "value": "x"},)),
    ],
)
def test_a_key_that_protects_vllm_s_server_protects_it_here_too(
    vllm: Any, context: Any, fields: dict[str, Any], runtime: tuple[Resource, ...]
) -> None:
    """A preset has KAITO's own server and no place for a key: it becomes a template, which starts vLLM's."""
    around = context(runtime=RuntimeSettings(env=runtime))
    assert can_handle(vllm(**fields), around).blockers == ()
    (written,) = desired(vllm(**fields), around).objects
    (container,) = written["inference"]["template"]["spec"]["containers"]
    assert container["command"] == ["vllm", "serve"]
    key = {"name": "VLLM_API_KEY", "value": "x"}
    assert "--api-key=x" in container["args"] or key in container["env"]


@pytest.mark.parametrize("several", [False, True])
def test_labels_by_which_a_service_selects_are_not_the_users(vllm: Any, context: Any, several: bool) -> None:
    """All of the manifest's, in the pods and in the warnings; what is released goes on as it was. The transformer of
    the kind that is written decides."""
    new = context(sets="0.12", live="" if several else WORKSPACE.key)
    by_ordinal = ["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"]
    old = {key: replace(served, transformer=_released(served.transformer)) for key, served in new.served.items()}
    asked = {**dict.fromkeys(by_ordinal, "0"), "kaito.sh/x": "y", "team": "a"}
    wanted = vllm(image="i", scaling={"replicas": 2 if several else 1}, podTemplate={"metadata": {"labels": asked}})
    own, other = (INFERENCE_SET.key, WORKSPACE.key) if several else (WORKSPACE.key, INFERENCE_SET.key)
    for ctx, left_out in (
        (new, {"kaito.sh/x", *by_ordinal}),
        (_serving(new, {**new.served, other: old[other]}), {"kaito.sh/x", *by_ordinal}),
        (_serving(new, {**new.served, own: old[own]}), {"kaito.sh/x"}),
    ):
        (made, *_) = desired(wanted, ctx).objects
        inference = made["spec"]["template"]["inference"] if several else made["inference"]
        assert asked.keys() & inference["template"]["metadata"]["labels"].keys() == set(asked) - left_out
        warned = {finding.path for finding in can_handle(wanted, ctx).warnings if "podTemplate" in finding.path}
        assert warned == {f"spec.podTemplate.metadata.labels[{key}]" for key in left_out}
