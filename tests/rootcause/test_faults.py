"""The worked faults on a cluster: real scheduler, quota and StatefulSet controller; what only a kubelet can write, the
test writes in its place. Pods with an outcome that the simulated nodes do not know are left alone by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, STATEFUL_SET, Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time, is_true, uid_of
from airunway.status.codes import CODES
from airunway.testing.controlplane.stages import OUTCOME
from airunway.testing.operator import install_definitions, running_core, running_provider, running_simulator, until
from airunway.testing.simulators import SIMULATORS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
BY_HAND = "ByHand"
IMAGE = "registry.example/team/vllm:1.0"

Deploy = Callable[..., Awaitable[ObjectKey]]


@pytest.fixture
async def operator(kubeconfig: Path, client: Client, kaito: ProviderHost) -> AsyncIterator[None]:
    await install_definitions(client, SIMULATORS["kaito"].custom_resource_definitions())
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="cluster"),
    ):
        yield


@pytest.fixture
async def deploy(operator: None, client: Client, namespace: str) -> AsyncIterator[Deploy]:
    """Creates a deployment of one pod; `by_hand`: the test plays that pod's kubelet. Deleted after the test."""
    made: list[ObjectKey] = []

    async def create(name: str, *, gpus: int = 1, by_hand: bool = True, **spec: Any) -> ObjectKey:
        template = {"podTemplate": {"metadata": {"annotations": {OUTCOME: BY_HAND}}}} if by_hand else {}
        body: Resource = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
                "engine": {"type": "vllm"},
                "provider": {"name": "kaito"},
                "image": IMAGE,
                "resources": {"gpu": {"count": gpus}},
                **template,
                **spec,
            },
        }
        await client.create(MODEL_DEPLOYMENT, body)
        made.append(ObjectKey(namespace, name))
        return made[-1]

    yield create
    for key in made:
        await client.delete(MODEL_DEPLOYMENT, key)
    async with asyncio.timeout(60):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await asyncio.sleep(0.1)


async def pod_of(client: Client, key: ObjectKey, *, scheduled: bool = True) -> Resource:
    """The deployment's pod, once it has a node."""
    async with asyncio.timeout(60):
        while True:
            try:
                pod = await client.get(POD, ObjectKey(key.namespace, f"{key.name}-0"))
            except NotFound:
                pod = {}
            if (
                pod
                and (dig(pod, "spec", "nodeName") or not scheduled)
                and not dig(pod, "metadata", "deletionTimestamp")
            ):
                return pod
            await asyncio.sleep(0.02)


async def play(
    client: Client, pod: Resource, *, state: Resource, last: Resource | None = None, **container: Any
) -> float:
    """Write the pod's status as its kubelet would; returns when the API server had it."""
    ready = bool(container.get("ready"))
    now = format_time(datetime.now(UTC))
    name = dig(pod, "spec", "containers")[0]["name"]
    status = {
        "phase": "Running" if ready or last else "Pending",
        "conditions": [
            {"type": type_, "status": "True" if ready else "False", "lastTransitionTime": now}
            for type_ in ("Ready", "ContainersReady")
        ],
        "containerStatuses": [
            {
                "name": name,
                "image": IMAGE,
                "imageID": "",
                "ready": ready,
                "restartCount": 1 if last else 0,
                "state": state,
                "lastState": last or {},
                **container,
            }
        ],
    }
    key = ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
    await client.merge_patch(POD, key, {"status": status}, subresource="status")
    return perf_counter()


def has_cause(code: str) -> Callable[[Resource], bool]:
    return lambda deployment: bool(dig(deployment, "status", "rootCause", "code") == code)


def is_clear(deployment: Resource) -> bool:
    status = deployment.get("status") or {}
    return status.get("phase") == "Running" and "rootCause" not in status


def tell(text: str) -> None:
    """Latencies are for the reader (``pytest -s``): machines differ, so that nothing is asserted about them."""
    print(f"\n{text}")  # noqa: T201


async def healed(client: Client, key: ObjectKey) -> Resource:
    """The deployment after the simulated node takes the pod over and makes it ready: nothing of the fault is left."""
    pod = ObjectKey(key.namespace, f"{key.name}-0")
    await client.merge_patch(POD, pod, {"metadata": {"annotations": {OUTCOME: None}}})
    deployment = await until(client, key, is_clear, what="recovery")
    assert deployment["status"]["message"] == f"Workspace {key.name} is ready"
    for type_ in ("Ready", "PodsReady", "ProviderResourceReady"):
        assert is_true(deployment, type_), type_
    await until(client, key, parents_are_fine, what="the core's parents to follow")
    return deployment


def parents_are_fine(deployment: Resource) -> bool:
    return all(is_true(deployment, parent) for parent in ("ConfigValid", "AuthValid", "DependenciesReachable"))


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a kubelet writes, and what must be said of it. `says` must all be in the message."""

    code: str
    reason: str
    phase: str
    says: tuple[str, ...]
    state: Resource
    last: Resource | None = None
    parent: str = ""


def waiting(reason: str, message: str) -> Resource:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str, message: str = "") -> Resource:
    moment = format_time(datetime.now(UTC))
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "startedAt": moment,
            "finishedAt": moment,
        }
    }


BACK_OFF = waiting("CrashLoopBackOff", "back-off 10s restarting failed container=model pod=x-0")
GATED = """Traceback (most recent call last):
huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-2)

Cannot access gated repo for url https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/resolve/main/config.json.
Access to model meta-llama/Llama-3.1-8B-Instruct is restricted and you are not in the authorized list.
"""

FAULTS = {
    "image-not-found": Fault(
        code="ImagePull.NotFound",
        reason="ImageNotFound",
        phase="Failed",
        parent="ConfigValid",
        says=(IMAGE, "not found"),
        state=waiting(
            "ErrImagePull",
            f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": {IMAGE}: not found',
        ),
    ),
    "private-image": Fault(
        code="ImagePull.Auth",
        reason="ImagePullAuthFailure",
        phase="Degraded",
        parent="AuthValid",
        says=(IMAGE, "401 Unauthorized", "pull secret"),
        state=waiting(
            "ImagePullBackOff",
            f'Back-off pulling image "{IMAGE}": ErrImagePull: failed to pull and unpack image "{IMAGE}": failed to '
            f'resolve reference "{IMAGE}": unexpected status from HEAD request to '
            "https://registry.example/v2/team/vllm/manifests/1.0: 401 Unauthorized",
        ),
    ),
    "gated-model": Fault(
        code="Model.AuthGated",
        reason="GatedModel",
        phase="Degraded",
        parent="AuthValid",
        says=("meta-llama/Llama-3.1-8B-Instruct", "restricted", "token"),
        state=BACK_OFF,
        last=ended(1, "Error", GATED),
    ),
    "out-of-memory": Fault(
        code="Engine.OutOfMemory",
        reason="PodOOMKilled",
        phase="Failed",
        says=("memory", "exit code 137"),
        state=BACK_OFF,
        last=ended(137, "OOMKilled"),
    ),
    "crash-loop": Fault(
        code="Engine.CrashLoop",
        reason="CrashLoopBackOff",
        phase="Failed",
        says=("exit code 1", "CUDA driver version is insufficient", "kubectl logs --previous"),
        state=BACK_OFF,
        last=ended(1, "Error", "RuntimeError: CUDA driver version is insufficient for CUDA runtime version\n"),
    ),
    "bad-arguments": Fault(
        code="Engine.BadArgs",
        reason="BadArguments",
        phase="Failed",
        parent="ConfigValid",
        says=("unrecognized arguments: --no-such-flag",),
        state=BACK_OFF,
        last=ended(
            2, "Error", "usage: vllm serve [options]\nvllm serve: error: unrecognized arguments: --no-such-flag\n"
        ),
    ),
    "secret-missing": Fault(
        code="Secret.NotFound",
        reason="SecretNotFound",
        phase="Degraded",
        parent="AuthValid",
        says=('secret "hf-token" not found',),
        state=waiting("CreateContainerConfigError", 'secret "hf-token" not found'),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_what_a_kubelet_reports(name: str, deploy: Deploy, client: Client) -> None:
    fault = FAULTS[name]
    spec: Resource = {"secrets": {"huggingFaceToken": "hf-token"}} if name == "secret-missing" else {}
    key = await deploy(name, **spec)
    pod = await pod_of(client, key)
    begun = await play(client, pod, state=fault.state, last=fault.last)
    deployment = await until(client, key, has_cause(fault.code), what=fault.code)
    tell(f"{name}: {1000 * (perf_counter() - begun):.0f} ms from the pod's status to {fault.code}")

    cause = deployment["status"]["rootCause"]
    assert cause["object"] == f"Pod/{key.namespace}/{name}-0"
    for text in (f"{name}-0", "container model", *fault.says):
        assert text in cause["message"]
    assert CODES[fault.code].link in cause["message"]
    assert cause.get("field", "") == ("spec.secrets.huggingFaceToken" if spec else CODES[fault.code].field)
    pods = condition_of(deployment, "PodsReady") or {}
    assert (pods["status"], pods["reason"]) == ("False", fault.reason)
    assert f"{name}-0" in pods["message"]
    assert deployment["status"]["phase"] == fault.phase
    assert deployment["status"]["message"] == cause["message"]
    assert (condition_of(deployment, "Ready") or {})["message"] == cause["message"]
    assert (condition_of(deployment, "Stalled") or {})["status"] == ("True" if fault.phase == "Failed" else "False")
    if fault.parent:

        def parent_is_false(found: Resource) -> bool:
            condition = condition_of(found, fault.parent) or {}
            return (condition.get("status"), condition.get("reason")) == ("False", fault.reason)

        await until(client, key, parent_is_false, what=f"{fault.parent}=False")
    await healed(client, key)


async def test_too_many_gpus(deploy: Deploy, client: Client) -> None:
    key = await deploy("huge", gpus=16, by_hand=False)
    await pod_of(client, key, scheduled=False)
    begun = perf_counter()
    deployment = await until(client, key, has_cause("Unschedulable.InsufficientGPU"))
    tell(f"too many GPUs: seen {1000 * (perf_counter() - begun):.0f} ms after the pod")
    cause = deployment["status"]["rootCause"]
    assert cause["object"] == f"Pod/{key.namespace}/huge-0"
    assert cause["field"] == "spec.resources.gpu.count"
    assert "Insufficient nvidia.com/gpu" in cause["message"]
    assert deployment["status"]["phase"] == "Deploying"
    assert deployment["status"]["reason"] == "InsufficientCapacity"
    assert is_true(deployment, "Reconciling")
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"resources": {"gpu": {"count": 1}}}})
    recovered = await until(client, key, is_clear, what="recovery with fewer GPUs")
    assert recovered["status"]["observedGeneration"] == recovered["metadata"]["generation"]


async def test_quota_forbids_the_pod(deploy: Deploy, client: Client, namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-gpus", "namespace": namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
    }
    await client.create(RESOURCE_QUOTA, quota)
    async with asyncio.timeout(60):
        while not dig(await client.get(RESOURCE_QUOTA, ObjectKey(namespace, "no-gpus")), "status", "hard"):
            await asyncio.sleep(0.05)
    key = await deploy("poor", by_hand=False)
    async with asyncio.timeout(60):
        while not await client.list_all(STATEFUL_SET, namespace=namespace):
            await asyncio.sleep(0.02)
    begun = perf_counter()
    deployment = await until(client, key, has_cause("Unschedulable.Quota"))
    tell(f"quota: seen {1000 * (perf_counter() - begun):.0f} ms after the StatefulSet")
    cause = deployment["status"]["rootCause"]
    assert cause["object"] == f"StatefulSet/{namespace}/poor"
    assert "exceeded quota: no-gpus" in cause["message"]
    assert "poor-0" in cause["message"]
    assert (deployment["status"]["phase"], deployment["status"]["reason"]) == ("Deploying", "QuotaExceeded")
    assert (condition_of(deployment, "PodsReady") or {})["reason"] == "QuotaExceeded"
    await client.delete(RESOURCE_QUOTA, ObjectKey(namespace, "no-gpus"))
    await until(client, key, is_clear, what="recovery without the quota")


async def test_an_upstream_s_outdated_word_does_not_count(deploy: Deploy, client: Client) -> None:
    """KAITO reads pods at moments of its own, and leaves standing what it read (recordings, fact 5)."""
    workspace = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")
    key = await deploy("stale")
    pod = await pod_of(client, key)
    fault = FAULTS["image-not-found"]
    await play(client, pod, state=fault.state)
    await until(client, key, has_cause(fault.code))
    await client.merge_patch(workspace, key, {"metadata": {"annotations": {"poke": "1"}}})

    def upstream_says(reason: str) -> Callable[[Resource], bool]:
        return lambda found: (condition_of(found, "ProviderResourceReady") or {}).get("reason") == reason

    await until(client, key, upstream_says("ImageNotFound"), what="KAITO to have seen it too")
    await play(client, pod, state={"running": {"startedAt": format_time(datetime.now(UTC))}})
    deployment = await until(client, key, lambda found: "rootCause" not in found["status"], what="the pod's own state")
    live = condition_of(await client.get(workspace, key), "InferenceReady") or {}
    assert live["reason"] == "ImagePullError"  # it still says so
    assert deployment["status"]["phase"] == "Deploying"
    assert upstream_says("Progressing")(deployment)
    await until(client, key, parents_are_fine, what="ConfigValid to come back")
    await healed(client, key)


async def test_after_an_edit_the_old_pod_does_not_count(operator: None, client: Client, namespace: str) -> None:
    """KAITO calls itself ready for the new generation while the old pod still runs (recordings, fact 3)."""
    body = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": "roll", "namespace": namespace},
        "spec": {
            "model": {"id": "microsoft/Phi-4-mini-instruct"},
            "engine": {"type": "vllm", "contextLength": 4096},
            "provider": {"name": "kaito"},
            "resources": {"gpu": {"count": 8}},
        },
    }
    key = ObjectKey(namespace, "roll")
    await client.create(MODEL_DEPLOYMENT, body)
    await until(client, key, is_clear)
    pod = ObjectKey(namespace, "roll-0")
    old = uid_of(await client.get(POD, pod))
    # The old pod stays until somebody deletes it: what lasts for milliseconds otherwise can be looked at.
    await client.merge_patch(
        STATEFUL_SET, key, {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    )
    await asyncio.sleep(1)  # until the simulated upstream is at rest: a pass under way would claim the new generation
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"engine": {"contextLength": 8192}}})
    waiting_for = "Pods of the newest revision are not there yet"

    def waits(found: Resource) -> bool:
        return bool(dig(found, "status", "message") == waiting_for)

    deployment = await until(client, key, waits, what="the old pod to be noticed")
    assert (deployment["status"]["phase"], deployment["status"]["observedGeneration"]) == ("Deploying", 2)
    assert is_true(deployment, "PodsReady")
    workspace = await client.get(Kind("kaito.sh", "v1beta1", "Workspace", "workspaces"), key)
    succeeded = condition_of(workspace, "WorkspaceSucceeded") or {}
    assert (succeeded["status"], succeeded["observedGeneration"]) == ("True", 2)
    await client.delete(POD, pod, grace_seconds=0)
    await until(client, key, is_clear, what="the new pod")
    assert uid_of(await client.get(POD, pod)) != old
    await client.delete(MODEL_DEPLOYMENT, key)
    async with asyncio.timeout(60):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await asyncio.sleep(0.1)
