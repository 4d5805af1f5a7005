"""What KAITO says next to what the pods show, on a cluster: outdated words, and readiness that comes too early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.faults import has_cause, healed, is_clear, parents_are_fine, pod_of, running, waiting, write_pod

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, STATEFUL_SET, Client, Kind
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = "registry.example/team/vllm:1.0"


async def test_an_upstream_s_outdated_word_does_not_count(deploy: Deploy, client: Client) -> None:
    """KAITO reads pods at moments of its own, and leaves standing what it read (recordings, fact 5)."""
    workspace = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")
    key = await deploy("stale")
    pod = await pod_of(client, key)
    await write_pod(client, pod, state=waiting("ErrImagePull", f"{IMAGE}: not found"))
    await until(client, key, has_cause("ImagePull.NotFound"))
    await client.merge_patch(workspace, key, {"metadata": {"annotations": {"poke": "1"}}})

    def upstream_says(reason: str) -> Callable[[Resource], bool]:
        return lambda found: (condition_of(found, "ProviderResourceReady") or {}).get("reason") == reason

    await until(client, key, upstream_says("ImageNotFound"), what="KAITO to have seen it too")
    await at_rest(client, workspace, key)  # a pass of it under way would read the pod that runs
    await write_pod(client, pod, state=running())
    deployment = await until(client, key, lambda found: "rootCause" not in found["status"], what="the pod's own state")
    live = condition_of(await client.get(workspace, key), "InferenceReady") or {}
    assert live["reason"] == "ImagePullError"  # it still says so
    assert deployment["status"]["phase"] == "Deploying"
    assert upstream_says("Progressing")(deployment)
    await until(client, key, parents_are_fine, what="ConfigValid to come back")
    await healed(client, key)


async def at_rest(client: Client, kind: Kind, key: ObjectKey) -> None:
    """Wait until an upstream object has not been written for two seconds. Raises TimeoutError."""
    version, calm = "", 0
    async with asyncio.timeout(PATIENCE):
        while calm < 20:
            live = str(dig(await client.get(kind, key), "metadata", "resourceVersion"))
            version, calm = live, calm + 1 if live == version else 0
            await asyncio.sleep(0.1)


async def test_after_an_edit_the_old_pod_does_not_count(cluster_operator: None, client: Client, namespace: str) -> None:
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
    workspaces = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")
    await at_rest(client, workspaces, key)  # a pass of it under way would claim the new generation
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"engine": {"contextLength": 8192}}})
    waiting_for = "Pods of the newest revision are not there yet"

    def waits(found: Resource) -> bool:
        return bool(dig(found, "status", "message") == waiting_for)

    deployment = await until(client, key, waits, what="the old pod to be noticed")
    assert (deployment["status"]["phase"], deployment["status"]["observedGeneration"]) == ("Deploying", 2)
    assert is_true(deployment, "PodsReady")
    workspace = await client.get(workspaces, key)
    succeeded = condition_of(workspace, "WorkspaceSucceeded") or {}
    assert (succeeded["status"], succeeded["observedGeneration"]) == ("True", 2)
    await client.delete(POD, pod, grace_seconds=0)
    await until(client, key, is_clear, what="the new pod")
    assert uid_of(await client.get(POD, pod)) != old
    await client.delete(MODEL_DEPLOYMENT, key)
    async with asyncio.timeout(PATIENCE):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await asyncio.sleep(0.1)
