"""The RayService that a deployment becomes: head, workers, and what both of them need."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airunway.plugins.contract import ModelCache, RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig


def cluster(service: Resource) -> Resource:
    found: Resource = service["spec"]["rayClusterConfig"]
    return found


def templates(service: Resource) -> list[Resource]:
    """Of the head first."""
    config = cluster(service)
    return [config["headGroupSpec"]["template"], *(group["template"] for group in config["workerGroupSpecs"])]


def main(template: Resource) -> Resource:
    (container,) = template["spec"]["containers"]
    found: Resource = container
    return found


def test_a_rayservice_has_a_head_and_as_many_workers_as_replicas(deployment: Any, context: Any, service: Any) -> None:
    made = service(deployment(scaling={"replicas": 3}, resources={"gpu": {"count": 4}, "cpu": "8"}), context())
    assert (made["apiVersion"], made["kind"], made["metadata"]["name"]) == ("ray.io/v1", "RayService", "llama-8b")
    (group,) = cluster(made)["workerGroupSpecs"]
    assert (group["groupName"], group["replicas"], group["minReplicas"]) == ("gpu-workers", 3, 0)
    assert group["maxReplicas"] >= 32
    resources = main(group["template"])["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "4", "memory": "32Gi"}
    assert resources["requests"]["cpu"] == "8"
    head = main(templates(made)[0])
    assert head["resources"] == {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"memory": "16Gi"}}


def test_what_kuberay_needs_to_take_it_is_there(deployment: Any, context: Any, service: Any) -> None:
    """A port called ``serve`` (else no Service), a list that stays ours, a head that runs no model."""
    config = cluster(service(deployment(), context()))
    ports = {port["name"]: port["containerPort"] for port in main(config["headGroupSpec"]["template"])["ports"]}
    assert ports == {"gcs": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}
    assert config["headGroupSpec"]["rayStartParams"] == {"dashboard-host": "0.0.0.0", "num-cpus": "0", "num-gpus": "0"}
    assert [group["scaleStrategy"] for group in config["workerGroupSpecs"]] == [{}]
    assert config["enableInTreeAutoscaling"] is True
    assert config["rayVersion"] == "2.56.0"


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"gpu": {"count": 1}}, {"num-cpus": "8", "num-gpus": "1"}),
        ({"gpu": {"count": 4}, "cpu": "500m"}, {"num-cpus": "8", "num-gpus": "4"}),
        ({"gpu": {"count": 8}, "cpu": "30500m"}, {"num-cpus": "31", "num-gpus": "8"}),
        ({"gpu": {"count": 1, "type": "nvidia.com/mig-1g.5gb"}}, {"num-cpus": "8", "num-gpus": "1"}),
    ],
)
def test_ray_is_told_what_a_worker_has(
    deployment: Any, context: Any, service: Any, resources: Resource, told: Resource
) -> None:
    """Else its autoscaler ends, and the head with it; or starts workers for the parts that only take requests."""
    wanted = deployment(resources=resources, image="r/ray-llm:2.56.0")
    (group,) = cluster(service(wanted, context()))["workerGroupSpecs"]
    assert group["rayStartParams"] == told
    asked = main(group["template"])["resources"]["requests"].get("cpu")
    assert asked == resources.get("cpu"), "nothing more is asked of Kubernetes"


def test_prefill_and_decode_have_workers_of_their_own(split: Any, context: Any, service: Any) -> None:
    groups = {g["groupName"]: g for g in cluster(service(split(), context()))["workerGroupSpecs"]}
    assert {name: group["replicas"] for name, group in groups.items()} == {"prefill-workers": 2, "decode-workers": 4}
    limits = {name: main(group["template"])["resources"]["limits"] for name, group in groups.items()}
    assert limits["prefill-workers"] == {"nvidia.com/gpu": "2", "memory": "64Gi"}
    assert limits["decode-workers"] == {"nvidia.com/gpu": "4", "memory": "32Gi"}


def test_token_and_variables_reach_head_and_workers(split: Any, context: Any, service: Any) -> None:
    runtime = RuntimeSettings(
        env=({"name": "HTTPS_PROXY", "value": "http://proxy"},),
        token="site",
        labels={"a": "b"},
    )
    wanted = split(
        env=[{"name": "A", "value": "1"}],
        secrets={"huggingFaceToken": "mine"},
        podTemplate={"metadata": {"labels": {"team": "x", "ray.io/group": "mine"}, "annotations": {"note": "y"}}},
        nodeSelector={"pool": "gpu"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        imagePullSecrets=[{"name": "pull"}],
        priorityClassName="high",
    )
    for template in templates(service(wanted, context(runtime=runtime))):
        env = {entry["name"]: entry for entry in main(template)["env"]}
        assert env["A"]["value"] == "1"
        assert env["HTTPS_PROXY"]["value"] == "http://proxy"
        assert main(template)["envFrom"] == [{"secretRef": {"name": "mine"}}], "every key is a variable"
        assert template["metadata"] == {"labels": {"a": "b", "team": "x"}, "annotations": {"note": "y"}}
        assert template["spec"]["nodeSelector"] == {"pool": "gpu"}
        assert template["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
        assert template["spec"]["imagePullSecrets"] == [{"name": "pull"}]
        assert template["spec"]["priorityClassName"] == "high"


def test_c22_a_runtime_config_reaches_head_and_workers(deployment: Any, context: Any, service: Any) -> None:
    runtime = RuntimeSettings(
        labels={"org.example/team": "x"},
        image_pull_secrets=("shared",),
        token="config-token",
    )
    found = list(templates(service(deployment(), context(runtime=runtime))))
    assert len(found) == 2
    for template in found:
        assert main(template)["envFrom"] == [{"secretRef": {"name": "config-token"}}]
        assert template["spec"]["imagePullSecrets"] == [{"name": "shared"}]
        assert template["metadata"]["labels"] == {"org.example/team": "x"}


def test_without_a_cache_the_head_mounts_nothing(deployment: Any, context: Any, service: Any) -> None:
    volume = {"name": "w", "claimName": "pvc", "mountPath": "/w", "purpose": "modelCache"}
    head, _ = templates(service(deployment(model={"id": "o/m", "storage": {"volumes": [volume]}}), context()))
    assert "volumes" not in head["spec"], "a claim for one node would keep the head from all others"
    assert "volumeMounts" not in main(head)


def test_a45_ray_loads_the_path_under_the_served_name(deployment: Any, context: Any, service: Any) -> None:
    wanted = deployment(model={"id": "org/name"})
    for cache, source in ((None, "org/name"), (ModelCache(claim="c", path="/model-cache/$x"), "/model-cache/$x")):
        config = json.loads(service(wanted, context(cache=cache))["spec"]["serveConfigV2"])
        (model,) = config["applications"][0]["args"]["llm_configs"]
        assert model["model_loading_config"] == {"model_id": "name", "model_source": source}


def test_weights_are_mounted_where_they_are_loaded(deployment: Any, context: Any, service: Any) -> None:
    volume = {"name": "w", "claimName": "pvc", "mountPath": "/w", "purpose": "modelCache"}
    wanted = deployment(model={"id": "o/m", "storage": {"volumes": [volume]}, "cache": {"mode": "Shared"}})
    head, worker = templates(service(wanted, context(cache=ModelCache(claim="cache"))))
    assert [each["name"] for each in head["spec"]["volumes"]] == ["airunway-model-cache"], "no claim for one node"
    cached = {"name": "airunway-model-cache", "mountPath": "/model-cache", "readOnly": True}
    assert main(head)["volumeMounts"] == [cached], "Ray reads the model's configuration there"
    for template in (head, worker):
        env = {entry["name"]: entry.get("value") for entry in main(template)["env"]}
        assert (env["HF_HUB_OFFLINE"], env["TRANSFORMERS_OFFLINE"]) == ("1", "1")
    assert cached in main(worker)["volumeMounts"]
    mounts = {mount["mountPath"] for mount in main(worker)["volumeMounts"]}
    assert mounts == {"/dev/shm", "/w", "/model-cache"}
    assert {volume["name"] for volume in worker["spec"]["volumes"]} >= {"w"}


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("rayproject/ray-llm:2.52.0-py311-cu128", "2.52.0"),
        ("registry.example:5000/team/ray-llm:2.49.1", "2.49.1"),
        ("r.example/ray-llm:v2.50.0@sha256:" + "a" * 64, "2.50.0"),
        ("registry.example/team/vllm:1.0", None),
        ("ray-llm:latest", None),
        ("ray-llm", None),
        ("registry.example:2.56.0/ray-llm", None),
    ],
)
def test_the_version_of_ray_is_that_of_the_image(
    host: ProviderHost, deployment: Any, context: Any, service: Any, image: str, version: str | None
) -> None:
    made = cluster(service(deployment(image=image), context()))
    assert made.get("rayVersion") == version
    warned = [w.reason for w in host.can_handle(deployment(image=image), context()).warnings]
    assert ("RayVersionUnknown" in warned) == (version is None)
    said = deployment(image=image, provider={"overrides": {"rayVersion": "2.55.0"}})
    assert cluster(service(said, context()))["rayVersion"] == "2.55.0"
    assert host.can_handle(said, context()).warnings == ()


def test_overrides_of_the_head(deployment: Any, context: Any, service: Any) -> None:
    head = {"resources": {"cpu": 2, "memory": "8Gi"}, "rayStartParams": {"num-cpus": "1", "object-store-memory": "1"}}
    made = cluster(service(deployment(provider={"overrides": {"head": head}}), context()))["headGroupSpec"]
    assert main(made["template"])["resources"]["requests"] == {"cpu": "2", "memory": "8Gi"}
    assert made["rayStartParams"]["num-cpus"] == "1"
    assert made["rayStartParams"]["dashboard-host"] == "0.0.0.0"


def test_settings_of_the_provider(host: ProviderHost, deployment: Any, context: Any, service: Any) -> None:
    settings = {"image": "r.example/ray:2.53.0", "headCpu": "1", "headMemory": "2Gi", "workerMemory": ""}
    made = service(deployment(), context(**settings, initializingTimeout="2h"))
    head, worker = templates(made)
    assert main(head)["image"] == main(worker)["image"] == "r.example/ray:2.53.0"
    assert main(head)["resources"]["requests"] == {"cpu": "1", "memory": "2Gi"}
    assert main(worker)["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert made["metadata"]["annotations"] == {"ray.io/initializing-timeout": "2h"}


def test_a_change_of_pods_makes_a_second_cluster_or_a_new_object(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    def digest(image: str, upgrade: str, replicas: int = 1) -> object:
        wanted = deployment(image=f"r/ray:{image}", scaling={"replicas": replicas})
        return host.translate_spec(wanted, context(upgrade=upgrade)).replace_on

    assert digest("2.56.0", "NewCluster") == digest("2.57.0", "NewCluster") == {}
    assert digest("2.56.0", "Recreate") != digest("2.57.0", "Recreate")
    assert digest("2.56.0", "Recreate", 1) == digest("2.56.0", "Recreate", 3), "scaling never needs a new one"


def test_zero_replicas_stop_the_rayservice_and_keep_all_else(deployment: Any, context: Any, service: Any) -> None:
    one, none = (service(deployment(scaling={"replicas": n}), context()) for n in (1, 0))
    assert none["spec"].pop("suspend") is True
    assert none["spec"] == one["spec"], "so that nothing but the suspension changes"


def test_zero_with_an_autoscaler_is_left_to_ray(deployment: Any, context: Any, service: Any) -> None:
    wanted = deployment(scaling={"replicas": 0}, provider={"overrides": {"autoscaling": {"maxReplicas": 2}}})
    made = service(wanted, context(release="1.1"))
    assert "suspend" not in made["spec"]
    assert '"min_replicas": 0' in made["spec"]["serveConfigV2"]
    assert dig(cluster(made)["workerGroupSpecs"][0], "minReplicas") == 0


VOLUMES = [
    {"name": "weights", "claimName": "w", "mountPath": "/models", "purpose": "modelCache"},
    {"name": "kernels", "claimName": "k", "mountPath": "/compiled", "purpose": "compilationCache"},
]


@pytest.mark.parametrize("cache", [None, ModelCache(claim="c", mount_path="/cache")], ids=["no cache", "cache"])
@pytest.mark.parametrize("volumes", [[], VOLUMES, [{"name": "t", "claimName": "t", "mountPath": "/tmp"}]])
def test_a_head_with_a_read_only_root_can_write_to_tmp(
    deployment: Any, context: Any, service: Any, volumes: list[Any], cache: ModelCache | None
) -> None:
    """Ray writes to ``/tmp``. The volumes of the deployment stay the workers'."""
    fields: Resource = {"securityContext": {"readOnlyRootFilesystem": True}}
    wanted = deployment(model={"id": "m", "storage": {"volumes": volumes}}, **fields)
    head, _ = templates(service(wanted, context(cache=cache)))
    (main,) = head["spec"]["containers"]
    assert main["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {mount["mountPath"]: mount["name"] for mount in main["volumeMounts"]}
    assert mounts.keys() == {"/tmp", *(["/cache"] if cache else [])}
    assert {"name": mounts["/tmp"], "emptyDir": {}} in head["spec"]["volumes"]
    assert {volume["name"] for volume in head["spec"]["volumes"]} == {*mounts.values()}


def test_a_head_has_no_variables_of_volumes_that_it_does_not_mount(deployment: Any, context: Any, service: Any) -> None:
    wanted = deployment(model={"id": "m", "storage": {"volumes": VOLUMES}}, env=[{"name": "A", "value": "b"}])
    found = {}
    for first in (True, False):
        head, worker = (pod["spec"]["containers"][0] for pod in templates(service(wanted, context(first=first))))
        assert "volumeMounts" not in head
        assert {mount["mountPath"] for mount in worker["volumeMounts"]} >= {"/models", "/compiled"}
        head_env, worker_env = ({entry["name"]: entry["value"] for entry in pod["env"]} for pod in (head, worker))
        assert (worker_env["HF_HOME"], worker_env["VLLM_CACHE_ROOT"]) == ("/models", "/compiled")
        assert head_env["A"] == "b"
        found[first] = head_env.keys() & {"HF_HOME", "VLLM_CACHE_ROOT"}
    assert found == {True: {"HF_HOME", "VLLM_CACHE_ROOT"}, False: set()}, "what is released goes on as it was"
    own = deployment(model={"id": "m", "storage": {"volumes": VOLUMES}}, env=[{"name": "HF_HOME", "value": "/h"}])
    head, _ = templates(service(own, context()))
    assert {"name": "HF_HOME", "value": "/h"} in head["spec"]["containers"][0]["env"], "the user's own stays"


def test_labels_by_which_kuberay_selects_are_not_the_users(
    host: ProviderHost, deployment: Any, context: Any, service: Any
) -> None:
    """All of the manifest's, in the pods and in the warnings; what is released goes on as it was."""
    asked = {"app.kubernetes.io/name": "mine", "app.kubernetes.io/created-by": "me", "ray.io/x": "y", "team": "a"}
    wanted = deployment(podTemplate={"metadata": {"labels": asked}})
    for first, left_out in ((False, set(asked) - {"team"}), (True, {"ray.io/x"})):
        for pod in templates(service(wanted, context(first=first))):
            assert asked.keys() & pod["metadata"]["labels"].keys() == set(asked) - left_out
        warned = {f.path for f in host.can_handle(wanted, context(first=first)).warnings if f.reason == "FieldIgnored"}
        assert warned == {f"spec.podTemplate.metadata.labels[{key}]" for key in left_out}
