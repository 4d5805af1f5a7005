"""The level "cluster": workload controllers, the real scheduler, simulated GPU nodes."""

import json
from typing import Any

import pytest

from airunway_testing.controlplane import Cluster
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.fixtures import Kubectl

pytestmark = pytest.mark.cluster


def pod(
    name: str,
    *,
    gpus: int = 0,
    annotations: dict[str, str] | None = None,
    image: str = "example.test/model",
    **metadata: object,
) -> str:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {"name": "main", "image": image, "resources": resources}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations or {}, **metadata},
            "spec": {"containers": [container], "initContainers": [{"name": "first", "image": "example.test/first"}]},
        }
    )


def shown(kubectl: Kubectl, *what: str) -> Any:
    return json.loads(kubectl("get", *what, "-o", "json").stdout)


def test_nodes_are_ready_and_offer_what_was_asked_for(cluster: Cluster, kubectl: Kubectl) -> None:
    nodes = {node["metadata"]["name"]: node for node in shown(kubectl, "nodes")["items"]}
    gpus = {name: node["status"]["allocatable"].get("nvidia.com/gpu") for name, node in nodes.items()}
    assert gpus == {"gpu-0": "8", "gpu-1": "8", "cpu-0": None}
    assert nodes["gpu-0"]["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"
    assert "nvidia.com/gpu.present" not in nodes["cpu-0"]["metadata"]["labels"]
    for node in nodes.values():
        assert "taints" not in node["spec"]


def test_deployment_gets_ready_pods(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "deployment", "web", "--image=example.test/web", "--replicas=3", "-n", namespace)
    kubectl("rollout", "status", "deployment/web", "-n", namespace, "--timeout=60s")
    pods = shown(kubectl, "pods", "-l", "app=web", "-n", namespace)["items"]
    assert {item["spec"]["nodeName"] for item in pods} <= {"gpu-0", "gpu-1", "cpu-0"}
    assert len({item["status"]["podIP"] for item in pods}) == 3


def test_statefulset_names_its_pods_in_order(kubectl: Kubectl, namespace: str) -> None:
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "db", "image": "example.test/db"}]},
    }
    spec = {"serviceName": "db", "replicas": 2, "selector": {"matchLabels": {"app": "db"}}, "template": template}
    manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
    kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(manifest))
    kubectl("rollout", "status", "statefulset/db", "-n", namespace, "--timeout=60s")
    assert [item["metadata"]["name"] for item in shown(kubectl, "pods", "-n", namespace)["items"]] == ["db-0", "db-1"]


def test_job_completes(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "job", "load", "--image=example.test/load", "-n", namespace)
    kubectl("wait", "--for=condition=complete", "job/load", "-n", namespace, "--timeout=60s")


def test_pod_that_fits_nowhere_is_unschedulable_with_the_schedulers_reason(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", stdin=pod("huge", gpus=16))
    kubectl("wait", "--for=condition=PodScheduled=False", "pod/huge", "-n", namespace, "--timeout=60s")
    condition = next(
        condition
        for condition in shown(kubectl, "pod", "huge", "-n", namespace)["status"]["conditions"]
        if condition["type"] == "PodScheduled"
    )
    assert condition["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in condition["message"]


def test_running_pod_breaks_and_heals_with_its_annotation(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", stdin=pod("fickle", gpus=1))
    kubectl("wait", "--for=condition=Ready", "pod/fickle", "-n", namespace, "--timeout=60s")
    address = shown(kubectl, "pod", "fickle", "-n", namespace)["status"]["podIP"]

    kubectl("annotate", "pod", "fickle", f"{OUTCOME}=NotReady", "-n", namespace)
    kubectl("wait", "--for=condition=Ready=False", "pod/fickle", "-n", namespace, "--timeout=60s")
    kubectl("annotate", "pod", "fickle", f"{OUTCOME}-", "-n", namespace)
    kubectl("wait", "--for=condition=Ready", "pod/fickle", "-n", namespace, "--timeout=60s")
    assert shown(kubectl, "pod", "fickle", "-n", namespace)["status"]["podIP"] == address


@pytest.mark.parametrize(
    ("outcome", "path", "value"),
    [
        ("ImagePullBackOff", "{.status.containerStatuses[0].state.waiting.reason}", "ImagePullBackOff"),
        ("CrashLoopBackOff", "{.status.containerStatuses[0].state.waiting.reason}", "CrashLoopBackOff"),
        ("OOMKilled", "{.status.containerStatuses[0].lastState.terminated.reason}", "OOMKilled"),
        ("Failed", "{.status.phase}", "Failed"),
    ],
)
def test_pod_fares_as_its_annotation_says(
    kubectl: Kubectl, namespace: str, outcome: str, path: str, value: str
) -> None:
    kubectl("create", "-n", namespace, "-f", "-", stdin=pod("doomed", annotations={OUTCOME: outcome}))
    kubectl("wait", f"--for=jsonpath={path}={value}", "pod/doomed", "-n", namespace, "--timeout=60s")


def test_an_image_called_no_such_image_cannot_be_pulled(kubectl: Kubectl, namespace: str) -> None:
    images = ("no-such-image", "no-such-image:v1", "example.test/no-such-image", "example.test:5000/a/no-such-image:v1")
    for number, image in enumerate(images):
        kubectl("create", "-n", namespace, "-f", "-", stdin=pod(f"absent-{number}", image=image))
    for number, image in enumerate(("example.test/no-such-image-but-this", "no-such-image/model")):
        kubectl("create", "-n", namespace, "-f", "-", stdin=pod(f"there-{number}", image=image))
    path = "{.status.containerStatuses[0].state.waiting.reason}"
    for number in range(len(images)):
        what = (f"--for=jsonpath={path}=ImagePullBackOff", f"pod/absent-{number}")
        kubectl("wait", *what, "-n", namespace, "--timeout=60s")
    for number in range(2):
        kubectl("wait", "--for=condition=Ready", f"pod/there-{number}", "-n", namespace, "--timeout=60s")


def test_deleted_pod_stays_until_its_finalizer_is_gone(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", stdin=pod("guarded", finalizers=["example.test/guard"]))
    kubectl("wait", "--for=condition=Ready", "pod/guarded", "-n", namespace, "--timeout=60s")
    kubectl("delete", "pod", "guarded", "-n", namespace, "--wait=false")
    kubectl("wait", "--for=jsonpath={.metadata.deletionTimestamp}", "pod/guarded", "-n", namespace, "--timeout=60s")
    kubectl("patch", "pod", "guarded", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("wait", "--for=delete", "pod/guarded", "-n", namespace, "--timeout=60s")
