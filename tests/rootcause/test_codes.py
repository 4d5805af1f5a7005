"""The codes beside the seven worked faults, each reached in a run: what only a kubelet can write the test writes, all
else is the scheduler's, the volume controller's and the API server's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from tests.support.faults import (
    BACK_OFF,
    ended,
    has_cause,
    healed,
    is_clear,
    parents_are_fine,
    pod_of,
    running,
    waiting,
    write_pod,
)

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, NAMESPACE, PERSISTENT_VOLUME_CLAIM, Client, Kind, Reflector
from airunway.resource import ObjectKey, Resource, dig, is_true
from airunway.status.reasons import CODES
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
PERSISTENT_VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
IMAGE = "registry.example/team/vllm:1.0"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a kubelet writes, and what must be said of it."""

    code: str
    phase: str
    says: str
    state: Resource
    later: str = ""
    """The phase after the grace of a dependency that cannot be reached, which a loaded machine may show first."""
    died: str = ""
    """The last words of a container that ended."""


TOLD = {
    "rate-limited": Told(
        code="ImagePull.RateLimited",
        phase="Deploying",
        says="429 Too Many Requests",
        state=waiting("ErrImagePull", f'failed to pull and unpack image "{IMAGE}": 429 Too Many Requests'),
    ),
    "no-such-model": Told(
        code="Model.NotFound",
        phase="Failed",
        says="org/nosuch",
        state=BACK_OFF,
        died=(
            "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-2)\n\n"
            "Repository Not Found for url: https://huggingface.co/api/models/org/nosuch.\n"
            "If you are trying to access a private or gated repo, make sure you are authenticated.\n"
        ),
    ),
    "no-way-to-the-hub": Told(
        code="Model.DownloadStalled",
        phase="Deploying",
        later="Degraded",
        says="huggingface.co",
        state=BACK_OFF,
        died="(MaxRetryError: HTTPSConnectionPool(host='huggingface.co'): Temporary failure in name resolution)",
    ),
    "disk-full": Told(
        code="Storage.Full",
        phase="Failed",
        says="No space left on device",
        state=BACK_OFF,
        died="OSError: [Errno 28] No space left on device: '/models/x'",
    ),
}


@pytest.mark.parametrize("name", TOLD)
async def test_what_a_kubelet_reports(name: str, deploy: Deploy, client: Client) -> None:
    told = TOLD[name]
    key = await deploy(name)
    last = ended(1, "Error", told.died) if told.died else None
    await write_pod(client, await pod_of(client, key), state=told.state, last=last)
    found = await until(client, key, has_cause(told.code), what=told.code)
    status = found["status"]
    assert status["phase"] in (told.phase, told.later or told.phase)
    assert status["rootCause"]["object"] == f"Pod/{key.namespace}/{name}-0"
    assert told.says in status["message"]
    assert status["message"] == status["rootCause"]["message"]
    assert status["message"].endswith(CODES[told.code].remedy_for(status["rootCause"]["object"]))
    recovered = await healed(client, key)
    assert recovered["status"]["message"] == f"All replicas are ready: Workspace {name}"


async def test_a_probe_that_fails_after_it_was_ready(deploy: Deploy, client: Client) -> None:
    key = await deploy("hangs")
    pod = await pod_of(client, key)
    await write_pod(client, pod, state=running(), ready=True)
    await until(client, key, is_clear, what="a start")
    await client.create(EVENT, event_about(pod, "Unhealthy", "Readiness probe failed: context deadline exceeded"))
    started = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    await write_pod(client, pod, state=started)
    found = await until(client, key, has_cause("Probe.Timeout"))
    assert found["status"]["phase"] == "Degraded"
    assert "context deadline exceeded" in found["status"]["message"]
    assert f"kubectl logs hangs-0 -n {key.namespace}" in found["status"]["message"]
    await write_pod(client, pod, state=started, ready=True)
    await until(client, key, is_clear, what="recovery")
    await until(client, key, parents_are_fine)


async def test_one_fault_in_two_words_is_written_once(deploy: Deploy, client: Client) -> None:
    """Kubernetes alternates between ErrImagePull and ImagePullBackOff: the status does not."""
    key = await deploy("alternates")
    pod = await pod_of(client, key)
    cause = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": {IMAGE}: not found'
    states = [
        waiting("ErrImagePull", f"rpc error: code = NotFound desc = {cause}"),
        waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {cause}'),
    ]
    await write_pod(client, pod, state=states[0])
    first = await until(client, key, has_cause("ImagePull.NotFound"))
    await until(client, key, lambda found: not is_true(found, "ConfigValid"), what="the parent to follow")
    versions: list[Resource] = []
    watched = Reflector(client, MODEL_DEPLOYMENT, namespace=key.namespace)
    watching = asyncio.create_task(watched.run())
    await watched.synced.wait()
    watched.add_handler(lambda _key, _old, new: versions.append(new or {}))
    for state in (states[1], states[0], states[1]):
        await write_pod(client, pod, state=state)
    await write_pod(client, pod, state=waiting("ErrImagePull", "429 Too Many Requests"))
    await until(client, key, has_cause("ImagePull.RateLimited"))
    watching.cancel()
    before = [version["status"] for version in versions if not has_cause("ImagePull.RateLimited")(version)]
    assert before
    for status in before:
        assert (status["phase"], status["rootCause"]) == ("Failed", first["status"]["rootCause"])
        assert status["message"] == first["status"]["message"]
    await healed(client, key)


def event_about(obj: Resource, reason: str, note: str) -> Resource:
    """A Warning event of now."""
    metadata = obj["metadata"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{metadata['name']}.{uuid4().hex[:8]}", "namespace": metadata["namespace"]},
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": "Warning",
        "reason": reason,
        "action": "Probe",
        "note": note,
        "eventTime": now,
        "reportingController": "tests",
        "reportingInstance": "tests",
    }


# ------------------------------------------------------------------------------------------ what Kubernetes says itself


@asynccontextmanager
async def tainted(client: Client, taint: Resource) -> AsyncIterator[None]:
    """Every node has one more taint."""
    before = {node["metadata"]["name"]: dig(node, "spec", "taints") for node in await client.list_all(NODE)}
    try:
        for name, taints in before.items():
            await client.merge_patch(NODE, ObjectKey("", name), {"spec": {"taints": [*(taints or []), taint]}})
        yield
    finally:
        for name, taints in before.items():
            await client.merge_patch(NODE, ObjectKey("", name), {"spec": {"taints": taints}})


async def test_taints_keep_the_pod_away(deploy: Deploy, client: Client) -> None:
    async with tainted(client, {"key": "team", "value": "other", "effect": "NoSchedule"}):
        key = await deploy("kept-away", by_hand=False)
        found = await until(client, key, has_cause("Unschedulable.TaintOrSelector"))
        assert (found["status"]["phase"], found["status"]["reason"]) == ("Deploying", "FailedScheduling")
        assert "untolerated taint" in found["status"]["message"]
        assert "preemption" not in found["status"]["message"]
        assert found["status"]["rootCause"]["field"] == "spec.tolerations"
    await until(client, key, is_clear, what="recovery without the taint")


async def test_a_policy_of_the_namespace_refuses_the_pods(deploy: Deploy, client: Client, namespace: str) -> None:
    label = "pod-security.kubernetes.io/enforce"
    await client.merge_patch(NAMESPACE, ObjectKey("", namespace), {"metadata": {"labels": {label: "restricted"}}})
    key = await deploy("refused", by_hand=False)
    found = await until(client, key, has_cause("Provider.Rejected"))
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "InvalidSpec")
    assert found["status"]["rootCause"]["object"] == f"StatefulSet/{namespace}/refused"
    assert 'violates PodSecurity "restricted' in found["status"]["message"]
    await client.merge_patch(NAMESPACE, ObjectKey("", namespace), {"metadata": {"labels": {label: None}}})
    await until(client, key, is_clear, what="recovery without the policy")
    await until(client, key, parents_are_fine)


@asynccontextmanager
async def volume(client: Client, claim: ObjectKey, storage_class: str) -> AsyncIterator[None]:
    """A volume for the claim is there, of its class."""
    name = f"{claim.namespace}-{claim.name}"
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": claim.namespace, "name": claim.name},
        },
    }
    await client.create(PERSISTENT_VOLUME, body)
    try:
        yield
    finally:
        await client.delete(PERSISTENT_VOLUME, ObjectKey("", name))


@pytest.mark.parametrize(
    ("exists", "code", "phase"),
    [(False, "Storage.ClassMissing", "Failed"), (True, "Storage.PvcPending", "Deploying")],
    ids=["no such class", "nobody provisions"],
)
async def test_a_claim_without_a_volume(
    exists: bool, code: str, phase: str, deploy: Deploy, client: Client, namespace: str
) -> None:
    class_ = f"class-{namespace}"
    if exists:
        body = {
            "apiVersion": STORAGE_CLASS.api_version,
            "kind": STORAGE_CLASS.kind,
            "metadata": {"name": class_},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "Immediate",
        }
        await client.create(STORAGE_CLASS, body)
    claim = ObjectKey(namespace, "weights")
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim.name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await client.create(PERSISTENT_VOLUME_CLAIM, body)
    mount = {"name": "weights", "claimName": claim.name, "mountPath": "/models"}
    key = await deploy("stores", by_hand=False, model={"id": "org/model", "storage": {"volumes": [mount]}})
    named = f"PersistentVolumeClaim/{namespace}/{claim.name}"
    found = await until(client, key, lambda d: has_cause(code)(d) and d["status"]["rootCause"]["object"] == named)
    assert found["status"]["phase"] == phase
    assert found["status"]["rootCause"]["field"] == "spec.model.storage.volumes"
    async with volume(client, claim, class_):
        await until(client, key, is_clear, what="recovery with a volume")
        await until(client, key, parents_are_fine)
    if exists:
        await client.delete(STORAGE_CLASS, ObjectKey("", class_))
