"""Time: a fault's beginning survives a restart, and what is debounced turns when its time is up, without any event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time
from airunway_testing.operator import install_definitions, running_core, running_provider, until
from airunway_testing.simulators import load_simulator

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")


@pytest.fixture
async def installed(client: Client) -> None:
    await install_definitions(client, load_simulator("kaito").custom_resource_definitions())


async def deploy(client: Client, key: ObjectKey) -> None:
    """A deployment of KAITO; nobody plays the upstream: the test writes what it needs."""
    spec = {
        "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
        "engine": {"type": "llamacpp"},
        "provider": {"name": "kaito"},
        "resources": {"memory": "16Gi", "cpu": "8"},
        "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
    }
    body = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": spec,
    }
    await client.create(MODEL_DEPLOYMENT, body)
    await until(client, key, lambda found: bool(dig(found, "status", "provider", "resourceName")), what="a Workspace")
    conditions = [
        {
            "type": type_,
            "status": "False",
            "reason": reason,
            "message": "Inference workload is not ready",
            "observedGeneration": 1,
            "lastTransitionTime": format_time(datetime.now(UTC)),
        }
        for type_, reason in (
            ("InferenceReady", "WorkspaceInferenceStatusPending"),
            ("WorkspaceSucceeded", "workspacePending"),
        )
    ]
    status = {"state": "Pending", "conditions": conditions}
    await client.merge_patch(WORKSPACE, key, {"status": status}, subresource="status")


async def pod_with(client: Client, key: ObjectKey, status: Resource) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{key.name}-0", "namespace": key.namespace, "labels": {"kaito.sh/workspace": key.name}},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "model", "image": "registry.example/model:1"}],
        },
    }
    await client.create(POD, pod)
    await client.merge_patch(POD, ObjectKey(key.namespace, f"{key.name}-0"), {"status": status}, subresource="status")


def phase_is(phase: str) -> Callable[[Resource], bool]:
    return lambda found: bool(dig(found, "status", "phase") == phase)


async def test_a_restart_writes_nothing_and_keeps_the_beginning(
    client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    key = ObjectKey(namespace, "waits")
    killed = {
        "name": "model",
        "image": "registry.example/model:1",
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    async with running_core(kubeconfig):
        async with running_provider(kubeconfig, kaito):
            await deploy(client, key)
            await pod_with(client, key, {"phase": "Running", "containerStatuses": [killed]})
            before = await until(client, key, lambda found: "rootCause" in (found.get("status") or {}))
        await asyncio.sleep(1.1)  # times are whole seconds: a beginning that was lost would show
        async with running_provider(kubeconfig, kaito) as provider:
            await asyncio.sleep(0.5)  # everything of it is looked at once at the start
            assert provider.unready() is None
            after = await client.get(MODEL_DEPLOYMENT, key)
            assert after["status"]["rootCause"] == before["status"]["rootCause"]
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
            await client.delete(MODEL_DEPLOYMENT, key)


@pytest.mark.slow
async def test_what_is_out_of_reach_degrades_when_its_grace_is_over(
    client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    key = ObjectKey(namespace, "unreachable")
    text = "dial tcp: lookup registry.example: no such host"
    waiting = {
        "name": "model",
        "image": "registry.example/model:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "ErrImagePull", "message": text}},
        "lastState": {},
    }
    async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
        await deploy(client, key)
        await pod_with(client, key, {"phase": "Pending", "containerStatuses": [waiting]})

        def told(found: Resource) -> bool:
            return (condition_of(found, "PodsReady") or {}).get("reason") == "DNSFailure"

        first = await until(client, key, told)
        assert first["status"]["phase"] == "Deploying"
        degraded = await until(client, key, phase_is("Degraded"), what="the end of the grace period")
        assert degraded["status"]["reason"] == "DNSFailure"
        assert "no such host" in degraded["status"]["message"]
        assert "rootCause" not in degraded["status"]  # the list of codes has none for it
        await client.delete(MODEL_DEPLOYMENT, key)
