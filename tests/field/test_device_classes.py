"""GPUs of a device class: who asks for them by Dynamic Resource Allocation, who refuses, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.field.test_pod_fields import allowed, pods, refusal, rendered

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Upstream
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway.runtime.crd_versions import detect
from airunway.sdk.workloads import RESOURCE_CLAIM_TEMPLATE
from airunway.sizing.workload import roles_of
from airunway.validation import validate
from airunway.validation.policy import parse_policy
from airunway_testing.conformance.cases import Base, context_of

_TEMPLATES = ("vllm", "llmd", "kuberay")
_ROLES: Resource = {
    "serving": {"mode": "disaggregated"},
    "scaling": {
        "prefill": {"gpu": {"count": 1, "deviceClass": "gpu.nvidia.com"}, "memory": "64Gi"},
        "decode": {"gpu": {"count": 2, "deviceClass": "gpu.nvidia.com"}, "memory": "64Gi"},
    },
}


def asking(count: int = 2, device_class: str = "gpu.nvidia.com", **more: object) -> Resource:
    gpu = {"count": count, "deviceClass": device_class}
    return {"model": {"id": "o/m"}, "engine": {"type": "vllm"}, "resources": {"gpu": gpu, "memory": "64Gi"}, **more}


def templates(objects: tuple[Resource, ...]) -> dict[str, Resource]:
    """What each ResourceClaimTemplate asks for."""
    found = [each for each in objects if each["kind"] == "ResourceClaimTemplate"]
    return {each["metadata"]["name"]: each["spec"]["spec"]["devices"] for each in found}


@pytest.mark.parametrize("provider", _TEMPLATES)
def test_pods_claim_gpus_of_a_class_by_a_template_beside_them(provider: str) -> None:
    found = rendered(provider, asking())
    ((name, devices),) = templates(found.objects).items()
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": 2}
    assert devices == {"requests": [{"name": "gpus", "exactly": exactly}]}
    claiming = [pod for pod in pods(found, of_model=False) if "resourceClaims" in pod]
    assert [pod["resourceClaims"] for pod in claiming] == [[{"name": "gpus", "resourceClaimTemplateName": name}]]
    (server,) = claiming[0]["containers"]
    assert server["resources"]["claims"] == [{"name": "gpus"}]
    assert set(server["resources"]["limits"]) == {"memory"}, "nothing is asked for twice"
    assert list(pods(found, of_model=True)) == []
    assert "tensor" in str(found.objects), "both GPUs run the model"


@pytest.mark.parametrize("provider", ["llmd", "kuberay"])
def test_each_role_claims_its_own_number(provider: str) -> None:
    given = {"model": {"id": "o/m"}, "engine": {"type": "vllm"}, **_ROLES}
    image = {"image": "rayproject/ray-llm:2.56.0-py312-cu130"} if provider == "kuberay" else {}
    found = rendered(provider, {**given, **image})
    assert found.blockers == ()
    asked = {name: each["requests"][0]["exactly"]["count"] for name, each in templates(found.objects).items()}
    claims = [pod["resourceClaims"][0] for pod in pods(found, of_model=False) if "resourceClaims" in pod]
    assert sorted(asked[each["resourceClaimTemplateName"]] for each in claims) == [1, 2]


def test_pods_of_a_group_claim_their_share() -> None:
    found = rendered("vllm", asking(16))
    (devices,) = templates(found.objects).values()
    assert devices["requests"][0]["exactly"]["count"] == 8


def test_another_number_or_class_is_another_template() -> None:
    names = {next(iter(templates(rendered("vllm", each).objects))) for each in (asking(1), asking(2))}
    other = rendered("vllm", asking(2, "gold.example.com", image="o/i:1"))
    assert len(names | set(templates(other.objects))) == 3


@pytest.mark.parametrize(("provider", "who"), [("kaito", "KAITO"), ("dynamo", "Dynamo")])
def test_providers_whose_upstream_knows_resource_names_only_refuse_by_name(provider: str, who: str) -> None:
    words = refusal(rendered(provider, asking()))
    assert words.startswith(f"spec.resources.gpu.deviceClass: deviceClass is not honoured by {who}: ")
    assert "(gpu.type)" in words


@pytest.mark.parametrize("provider", _TEMPLATES)
def test_an_older_kubernetes_is_named_with_the_other_way(provider: str) -> None:
    host = load(provider)
    context = context_of(host, Base(name="asked", engine="vllm", spec=asking()))
    served: dict[str, Upstream] = {k: v for k, v in context.served.items() if k != RESOURCE_CLAIM_TEMPLATE.key}
    words = refusal(rendered(provider, asking(), served=served, kubernetes=(1, 33)))
    assert words == (
        "spec.resources.gpu.deviceClass: deviceClass needs Kubernetes 1.34 (ResourceClaimTemplates of "
        "resource.k8s.io/v1), and this is 1.33: ask for GPUs by their resource name (gpu.type)"
    )
    without = asking()
    del without["resources"]["gpu"]["deviceClass"]
    assert rendered(provider, without, served=served, kubernetes=(1, 33)).blockers == ()


def test_a_builtin_kind_is_served_from_its_version_on() -> None:
    old = detect(RESOURCE_CLAIM_TEMPLATE, [], None, kubernetes=(1, 33))
    assert (old.upstream, old.served) == (None, ())
    assert old.message == "ResourceClaimTemplate is part of Kubernetes 1.34; this is 1.33"
    for version in ((1, 34), (2, 0), None):
        found = detect(RESOURCE_CLAIM_TEMPLATE, [], None, kubernetes=version).upstream
        assert found is not None
        assert found.api_version == "resource.k8s.io/v1"
    always = replace(RESOURCE_CLAIM_TEMPLATE, since=(0, 0))
    assert detect(always, [], None, kubernetes=(1, 33)).upstream is not None


@pytest.mark.parametrize("provider", _TEMPLATES)
def test_a_class_of_an_unknown_vendor_needs_an_image(provider: str) -> None:
    words = refusal(rendered(provider, asking(1, "gpu.amd.com")))
    assert words.startswith("spec.resources.gpu.deviceClass: the default image ")
    assert words.endswith("set spec.image for gpu.amd.com")
    assert "set spec.image for gold" in refusal(rendered(provider, asking(1, "gold")))
    image = "rayproject/ray-llm:2.56.0-py312-cu130" if provider == "kuberay" else "o/i:1"
    assert templates(rendered(provider, asking(1, "gold", image=image)).objects)


def test_two_slices_of_a_class_do_not_run_one_model() -> None:
    assert "2 slices of GPUs" in refusal(rendered("vllm", asking(2, "mig.nvidia.com")))
    assert templates(rendered("vllm", asking(1, "mig.nvidia.com")).objects)


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({"type": "amd.com/gpu", "deviceClass": "gpu.amd.com"}, "set one of them"),
        ({"deviceClass": "GPU"}, "deviceClass is the name of a DeviceClass"),
        ({"deviceClass": "a..b"}, "deviceClass is the name of a DeviceClass"),
        ({"deviceClass": "a/b"}, "deviceClass is the name of a DeviceClass"),
        ({"type": "nvidia.com/gpu", "deviceClass": "gpu.nvidia.com"}, ""),
        ({"deviceClass": ""}, ""),
    ],
)
def test_a_class_excludes_a_type_and_has_the_name_of_an_object(gpu: Resource, words: str) -> None:
    metadata = {"name": "m", "namespace": "default"}
    spec = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1, **gpu}}}
    given = {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": metadata, "spec": spec}
    found = [str(each) for each in validate(given)]
    assert [words in each for each in found] == ([True] if words else [])


def test_a_policy_that_lists_gpu_types_lists_classes_too() -> None:
    (refused,) = allowed(asking(), parse_policy(str({"rules": [{"gpuTypes": ["nvidia.com/gpu"]}]})))
    device = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    assert refused.startswith(f"spec.resources.gpu.deviceClass: GPU type '{device}' is not allowed")
    listed = parse_policy(str({"rules": [{"gpuTypes": ["deviceclass.resource.kubernetes.io/gpu.*"]}]}))
    assert allowed(asking(), listed) == []
    split = {"model": {"id": "o/m"}, **_ROLES}
    assert len(allowed(split, parse_policy(str({"rules": [{"gpuTypes": ["nvidia.com/gpu"]}]})))) == 2


def test_sizing_takes_no_node_with_a_resource_of_that_name_for_the_class() -> None:
    deployment = ModelDeployment.model_validate({"metadata": {"name": "m"}, "spec": asking()})
    (role,) = roles_of(deployment, engine="vllm")
    assert role.workload.resource == "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
