"""The pod of a model server, by contexts made by hand: every field of a deployment that belongs into a pod."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airunway.resource import Resource
from airunway.sdk import (
    Context,
    Launch,
    ModelCache,
    RuntimeSettings,
    Sizing,
    Transformer,
    Upstream,
    cache_pods,
    environment,
    launch,
    model_pod,
    parse_deployment,
    pod_blockers,
    pod_findings,
    pod_specs,
    pod_templates,
    sizing,
)

UPSTREAM = Upstream(api_version="apps/v1", transformer=Transformer(name="t", api_version="apps/v1"))
CONTEXT = Context(engine="vllm", upstream=UPSTREAM, settings=None, now=datetime(2026, 11, 21, tzinfo=UTC))

MakeDeployment = Callable[..., Resource]


@pytest.fixture
def pod(plain: MakeDeployment) -> Callable[..., Resource]:
    """The pod template of a deployment with that spec. Keyword arguments: fields of spec and of the context."""

    def make(
        *, labels: Any = None, reserved: Any = (), node_selector: Any = None, size: Any = None, **fields: Any
    ) -> Resource:
        of_context = {key: fields.pop(key) for key in ("runtime", "cache") if key in fields}
        deployment = parse_deployment(plain(**fields))
        context = replace(CONTEXT, **of_context)
        how = launch(deployment, "vllm", port=8000, image="vllm/vllm-openai:v0.23.0")
        return model_pod(
            deployment, context, how, labels=labels, reserved=reserved, node_selector=node_selector, size=size
        )

    return make


def container(template: Resource) -> Resource:
    (found,) = template["spec"]["containers"]
    return dict(found)


def variables(template: Resource) -> dict[str, Any]:
    """The variables of the container, but for its home and user name, which every engine gets."""
    found = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(template).get("env", [])}
    return {name: value for name, value in found.items() if name not in ("HOME", "USER")}


def test_a_plain_pod_has_one_container_and_nothing_empty(pod: Callable[..., Resource]) -> None:
    found = pod()
    assert set(found) == {"metadata", "spec"}
    assert found["metadata"] == {}
    assert set(found["spec"]) == {"containers", "volumes", "enableServiceLinks"}
    one = container(found)
    assert (one["name"], one["image"], one["command"]) == ("model", "vllm/vllm-openai:v0.23.0", ["vllm", "serve"])
    assert one["ports"] == [{"name": "http", "containerPort": 8000}]
    assert one["resources"] == {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    assert one["env"] == [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "model"}]
    assert "livenessProbe" not in one
    assert one["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_every_field_of_the_spec_that_belongs_into_a_pod_is_there(pod: Callable[..., Resource]) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    found = pod(
        resources={"gpu": {"count": 2, "type": "amd.com/gpu"}, "memory": "64Gi", "cpu": "8"},
        image="my/image",
        nodeSelector={"pool": "a"},
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        affinity={"nodeAffinity": {"x": 1}},
        topologySpreadConstraints=[spread],
        serviceAccountName="runner",
        priorityClassName="high",
        imagePullSecrets=[{"name": "pull"}],
        podTemplate={"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}},
    )
    spec = found["spec"]
    assert spec["nodeSelector"] == {"pool": "a"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert (spec["affinity"], spec["topologySpreadConstraints"]) == ({"nodeAffinity": {"x": 1}}, [spread])
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("runner", "high")
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert found["metadata"] == {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    assert container(found)["image"] == "my/image"
    assert container(found)["resources"] == {
        "requests": {"amd.com/gpu": "2", "memory": "64Gi", "cpu": "8"},
        "limits": {"amd.com/gpu": "2", "memory": "64Gi"},
    }


def test_the_runtime_config_comes_first_and_the_deployment_wins(pod: Callable[..., Resource]) -> None:
    runtime = RuntimeSettings(
        env=({"name": "PROXY", "value": "http://p"}, {"name": "A", "value": "config"}),
        labels={"tenant": "t", "team": "config"},
        image_pull_secrets=("shared", "pull"),
        token="hub",
    )
    found = pod(
        runtime=runtime,
        env=[{"name": "A", "value": "own"}],
        imagePullSecrets=[{"name": "pull"}],
        podTemplate={"metadata": {"labels": {"team": "own"}}},
    )
    assert variables(found) == {
        "PROXY": "http://p",
        "A": "own",
    }
    assert found["metadata"]["labels"] == {"tenant": "t", "team": "own"}
    assert found["spec"]["imagePullSecrets"] == [{"name": "pull"}, {"name": "shared"}]


@pytest.mark.parametrize(
    ("fields", "secret", "variable"),
    [
        ({}, "hub", None),
        ({"secrets": {"huggingFaceToken": "mine"}}, "mine", None),
        ({"env": [{"name": "HF_TOKEN", "value": "x"}], "secrets": {"huggingFaceToken": "mine"}}, "mine", "x"),
    ],
    ids=["the config's", "the deployment's", "a variable of the user's"],
)
def test_every_key_of_the_nearest_secret_is_a_variable(
    pod: Callable[..., Resource], fields: Resource, secret: str, variable: Any
) -> None:
    """A variable goes before a source: that of a config must not hide the token of the Secret."""
    config = RuntimeSettings(token="hub", env=({"name": "HF_TOKEN", "value": "everybody's"},))
    found = pod(runtime=config, **fields)
    assert container(found)["envFrom"] == [{"secretRef": {"name": secret}}]
    assert variables(found).get("HF_TOKEN") == variable
    without = pod(runtime=RuntimeSettings(env=config.env))
    assert "envFrom" not in container(without)
    assert variables(without) == {"HF_TOKEN": "everybody's"}


def test_a_container_without_sources_has_the_token_alone(plain: MakeDeployment) -> None:
    """For upstreams whose resources have a list of variables and no ``envFrom``."""
    deployment = parse_deployment(plain(secrets={"huggingFaceToken": "mine"}))
    reference = {"secretKeyRef": {"name": "mine", "key": "HF_TOKEN"}}
    home = [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "model"}]
    assert environment(deployment, CONTEXT) == [*home, {"name": "HF_TOKEN", "valueFrom": reference}]
    assert environment(deployment, CONTEXT, token=False) == home


def test_a_reserved_key_is_exact_and_a_reserved_prefix_covers_more(
    plain: MakeDeployment, pod: Callable[..., Resource]
) -> None:
    labels = {"app": "mine", "app2": "mine", "acme.io/role": "mine", "acme-x": "mine", "acme": "mine"}
    fields = {"podTemplate": {"metadata": {"labels": labels}}}
    reserved = ("app", "acme.io/", "acme-")
    assert pod(reserved=reserved, **fields)["metadata"]["labels"] == {"app2": "mine", "acme": "mine"}
    found = pod_findings(parse_deployment(plain(**fields)), reserved=reserved)
    assert [f.path for f in found] == [
        f"spec.podTemplate.metadata.labels[{key}]" for key in ("app", "acme.io/role", "acme-x")
    ]


def test_a_token_that_is_not_used_is_said(plain: MakeDeployment) -> None:
    spec = {"env": [{"name": "HF_TOKEN", "value": "x"}], "secrets": {"huggingFaceToken": "mine"}}
    assert [f.path for f in pod_findings(parse_deployment(plain(**spec)))] == ["spec.secrets.huggingFaceToken"]
    assert list(pod_findings(parse_deployment(plain()))) == []


def test_the_cache_is_mounted_where_it_says_and_the_hub_is_off(pod: Callable[..., Resource]) -> None:
    cache = ModelCache(claim="weights", sub_path="org/model", mount_path="/m$(X)")
    found = pod(cache=cache)
    volume = {"name": "airunway-model-cache", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}
    mount = {"name": "airunway-model-cache", "mountPath": "/m$(X)", "subPath": "org/model", "readOnly": True}
    assert volume in found["spec"]["volumes"]
    assert mount in container(found)["volumeMounts"]
    assert variables(found) == {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}, "HF_HOME is written to"


def test_a_cache_that_is_being_filled_is_written_and_the_hub_stays_on(pod: Callable[..., Resource]) -> None:
    found = pod(cache=ModelCache(claim="weights", read_only=False, offline=False))
    volume = {"name": "airunway-model-cache", "persistentVolumeClaim": {"claimName": "weights"}}
    assert volume in found["spec"]["volumes"]
    assert {"name": "airunway-model-cache", "mountPath": "/model-cache"} in container(found)["volumeMounts"]
    assert variables(found) == {}


def test_a_container_with_a_model_of_its_own_is_told_nothing_of_the_cache(pod: Callable[..., Resource]) -> None:
    found = pod(cache=ModelCache(claim="weights"), model={"source": "custom"}, image="acme/own:1")
    assert container(found)["volumeMounts"][-1] == {
        "name": "airunway-model-cache",
        "mountPath": "/model-cache",
        "readOnly": True,
    }
    assert variables(found) == {}


@pytest.mark.parametrize("read_only", [False, True])
def test_beside_a_cache_only_a_volume_that_can_be_written_is_the_hub_s_home(
    pod: Callable[..., Resource], read_only: bool
) -> None:
    volume = {"name": "w", "claimName": "c", "mountPath": "/w", "purpose": "modelCache", "readOnly": read_only}
    model = {"id": "o/m", "storage": {"volumes": [volume]}}
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    found = pod(cache=ModelCache(claim="weights"), model=model)
    assert variables(found) == offline | ({} if read_only else {"HF_HOME": "/w"})


def test_a_volume_inside_the_cache_is_refused(plain: MakeDeployment) -> None:
    volumes = [
        {"name": name, "claimName": "c", "mountPath": path}
        for name, path in (("same", "/cache/"), ("below", "/cache/x"), ("beside", "/cache2"), ("above", "/"))
    ]
    wanted = parse_deployment(plain(model={"id": "o/m", "storage": {"volumes": volumes}}))
    cached = replace(CONTEXT, cache=ModelCache(claim="weights", mount_path="/cache"))
    found = list(pod_blockers(wanted, cached))
    assert [f.path for f in found] == [f"spec.model.storage.volumes[{i}].mountPath" for i in (0, 1)]
    assert "inside the model cache at /cache, which is read-only: choose another path" in found[0].message
    assert list(pod_blockers(wanted, CONTEXT)) == []


@pytest.mark.parametrize(
    ("spec", "helpers", "pods"),
    [
        ({}, 0, 1),
        ({}, 1, 2),
        ({"scaling": {"replicas": 3}}, 0, 3),
        ({"scaling": {"replicas": 0}}, 0, 1),
        (
            {
                "serving": {"mode": "disaggregated"},
                "scaling": {
                    "prefill": {"replicas": 3, "gpu": {"count": 1}},
                    "decode": {"replicas": 2, "gpu": {"count": 1}},
                },
            },
            1,
            6,
        ),
    ],
    ids=["a replica", "a helper", "replicas", "scaled to zero", "roles"],
)
def test_a16_how_many_pods_mount_the_cache(plain: MakeDeployment, spec: Resource, helpers: int, pods: int) -> None:
    assert cache_pods(parse_deployment(plain(**spec)), helpers=helpers) == pods


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteOncePod"])
def test_a16_a_claim_for_one_pod_is_refused_to_several(plain: MakeDeployment, mode: str) -> None:
    context = replace(CONTEXT, cache=ModelCache(claim="weights", access_mode=mode))
    assert list(pod_blockers(parse_deployment(plain()), context)) == []
    (found,) = pod_blockers(parse_deployment(plain(scaling={"replicas": 2})), context)
    assert (found.path, found.reason) == ("spec.model.cache.accessMode", "AccessModeConflict")
    assert f"2 pods would mount the model cache, and its access mode {mode} allows one" in found.message
    (found,) = pod_blockers(parse_deployment(plain()), context, mounts=4)
    assert "4 pods" in found.message


def test_claims_of_the_deployment_are_mounted_and_their_purpose_is_told(pod: Callable[..., Resource]) -> None:
    volumes = [
        {"name": "w", "claimName": "c", "mountPath": "/w", "purpose": "modelCache", "readOnly": True},
        {"name": "k", "claimName": "d", "mountPath": "/k", "purpose": "compilationCache"},
    ]
    found = pod(model={"id": "o/m", "storage": {"volumes": volumes}}, resources={})
    assert found["spec"]["volumes"] == [
        {"name": "w", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
        {"name": "k", "persistentVolumeClaim": {"claimName": "d"}},
    ]
    assert variables(found) == {"HF_HOME": "/w", "VLLM_CACHE_ROOT": "/k"}


def test_shared_memory_is_only_for_pods_with_gpus(pod: Callable[..., Resource]) -> None:
    shared = {"name": "airunway-dshm", "emptyDir": {"medium": "Memory"}}
    assert pod()["spec"]["volumes"] == [shared]
    assert "volumes" not in pod(resources={})["spec"]
    assert "volumes" not in pod(size=Sizing(gpu_type="nvidia.com/gpu", gpus=0))["spec"]


def test_an_upstream_that_completes_a_container_gets_it_by_its_name_and_without_what_it_mounts_itself(
    plain: MakeDeployment,
) -> None:
    deployment = parse_deployment(plain())
    how = launch(deployment, "vllm", port=8000, image="vllm/vllm-openai:v0.23.0")
    found = model_pod(deployment, CONTEXT, how, container="main", shared_memory=False)
    assert [container["name"] for container in found["spec"]["containers"]] == ["main"]
    assert "volumes" not in found["spec"]
    assert "volumeMounts" not in found["spec"]["containers"][0]


def test_labels_of_the_provider_win_and_reserved_ones_are_said_and_left_out(
    pod: Callable[..., Resource], plain: MakeDeployment
) -> None:
    labels = {"team": "a", "toy/role": "mine", "airunway.ai/model-deployment": "other", "role": "mine"}
    fields = {"podTemplate": {"metadata": {"labels": labels}}}
    found = pod(labels={"role": "head"}, reserved=("toy/",), **fields)
    assert found["metadata"]["labels"] == {"team": "a", "role": "head"}
    told = pod_findings(parse_deployment(plain(**fields)), reserved=("toy/",))
    assert [finding.path for finding in told] == [
        "spec.podTemplate.metadata.labels[toy/role]",
        "spec.podTemplate.metadata.labels[airunway.ai/model-deployment]",
    ]


def test_the_provider_s_node_labels_are_a_default(pod: Callable[..., Resource]) -> None:
    found = pod(node_selector={"gpu": "yes", "pool": "any"}, nodeSelector={"pool": "mine"})
    assert found["spec"]["nodeSelector"] == {"gpu": "yes", "pool": "mine"}


def test_what_the_launch_itself_needs_wins_over_the_user(plain: MakeDeployment) -> None:
    deployment = parse_deployment(plain(env=[{"name": "PORT", "value": "1"}, {"name": "A", "value": "b"}]))
    how = Launch(engine="x", image="i", port=80, env=({"name": "PORT", "value": "80"},))
    assert variables(model_pod(deployment, CONTEXT, how)) == {"PORT": "80", "A": "b"}


def test_a_worker_of_a_role_has_its_own_size(plain: MakeDeployment) -> None:
    scaling = {
        "prefill": {"replicas": 1, "gpu": {"count": 4}, "memory": "1Gi"},
        "decode": {"replicas": 2, "gpu": {"count": 1, "type": "amd.com/gpu"}},
    }
    deployment = parse_deployment(plain(serving={"mode": "disaggregated"}, scaling=scaling))
    assert sizing(deployment, "prefill") == Sizing(gpu_type="nvidia.com/gpu", gpus=4, memory="1Gi")
    assert sizing(deployment, "decode") == Sizing(gpu_type="amd.com/gpu", gpus=1)
    assert sizing(deployment) == Sizing(gpu_type="nvidia.com/gpu", gpus=1)


@pytest.mark.parametrize(
    "obj",
    [
        {"spec": {"containers": []}},
        {"spec": {"containers": "x"}},
        {"spec": {"containers": [{"image": "no name"}]}},
        {"spec": {"replicas": 3}},
        {"status": "x"},
        [],
        None,
        "text",
    ],
    ids=str,
)
def test_what_is_no_pod_is_not_taken_for_one(obj: object) -> None:
    assert list(pod_specs(obj)) == []


def test_a_pod_spec_outside_of_a_template_is_found_once() -> None:
    """KServe: bare pod specs beside their labels (review of an author, finding 4)."""
    template, worker = {"containers": [{"name": "main"}]}, {"containers": [{"name": "main"}]}
    obj = {"spec": {"template": template, "prefill": {"worker": worker}, "labels": {}}}
    assert [id(found) for found in pod_specs(obj)] == [id(template), id(worker)]
    assert list(pod_templates(obj)) == []


def test_a_pod_inside_of_a_template_is_found_once() -> None:
    obj = {"spec": {"template": {"spec": {"containers": [{"name": "main"}]}}}}
    assert list(pod_specs(obj)) == [obj["spec"]["template"]["spec"]]


# ---- a model that is named by a path


def path_warnings(model_id: str, *mounts: str, **engine: object) -> list[str]:
    volumes = [{"name": f"v{i}", "claimName": "c", "mountPath": mount} for i, mount in enumerate(mounts)]
    spec = {"model": {"id": model_id, "storage": {"volumes": volumes}}, "engine": engine}
    deployment = parse_deployment({"metadata": {"name": "m", "namespace": "n"}, "spec": spec})
    return [f"{each.path}: {each.message}" for each in pod_findings(deployment)]


@pytest.mark.parametrize(
    ("model_id", "mounts"),
    [("/data/m", ("/data",)), ("/data/m", ("/w", "/data/m/")), ("/data//m/f.gguf", ("/data/m",)), ("owner/model", ())],
)
def test_a_path_below_a_volume_gets_no_warning(model_id: str, mounts: tuple[str, ...]) -> None:
    assert path_warnings(model_id, *mounts) == []


@pytest.mark.parametrize(
    ("model_id", "mounts", "parent"), [("/data/m", (), "/data"), ("/data/m", ("/dat", "/data/m/x"), "/data")]
)
def test_a_path_that_no_volume_covers_is_named(model_id: str, mounts: tuple[str, ...], parent: str) -> None:
    (text,) = path_warnings(model_id, *mounts)
    assert text == (
        f"spec.model.id: no volume is mounted at {model_id} or above it, so that the image itself must have it: add a "
        f"volume to spec.model.storage.volumes with mountPath {parent}"
    )


def test_a_gguf_url_that_is_a_path_is_named_by_its_argument() -> None:
    (text,) = path_warnings("o/m", args={"ggufUrl": "file:///w/f.gguf"})
    assert text.startswith("spec.engine.args[ggufUrl]: no volume is mounted at /w/f.gguf")
