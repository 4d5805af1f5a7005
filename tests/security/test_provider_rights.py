"""KAITO's provider as its own service account, with the rights and the guard that are listed for it (H4, M7)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.audit import AuditReader, Request
from tests.support.faults import failed_create
from tests.support.rights import applied, granted, unused

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, EVENT, POD, SERVICE, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.rbac.admission_policies import core_guard, provider_guard, status_guard
from airunway.rbac.rights import core_rights, provider_rights
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is, phase_is, running_at
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import gone, running_core, running_simulator, until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

Make = Callable[..., Resource]

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
INFERENCE_SET = Kind(group="kaito.sh", version="v1beta1", kind="InferenceSet", plural="inferencesets", namespaced=True)

RARE = {
    **{
        (verb, "scaledobjects"): "only where KEDA is installed (tests/vllm/test_autoscaling.py)"
        for verb in ("create", "get", "list", "watch", "patch", "update", "delete")
    },
    ("update", "modeldeployments/finalizers"): "asked for inside the API server, by the admission plugin for owners",
}
"""Rights that are needed, and that the audit log cannot show."""


@contextmanager
def provider_process(kubeconfig: Path, *, own: str, watched: str, folder: Path) -> Iterator[Path]:
    """`airunway provider run kaito` as one replica of several; gives the file that says that it is ready."""
    ready, log = folder / "provider.ready", folder / "provider.log"
    command = [sys.executable, "-m", "airunway", "provider", "run", "kaito", "--kubeconfig", str(kubeconfig)]
    command += ["--set", "inferenceSet=WhenScaled"]  # one replica is a Workspace
    command += ["--leader-elect", "--watch-namespaces", watched, "--ready-file", str(ready), "--log-format", "text"]
    environment = {**os.environ, "POD_NAMESPACE": own, "POD_NAME": "kaito-0"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            yield ready
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            process.wait(30)
    assert "Traceback" not in log.read_text()


async def test_h4_the_provider_uses_all_that_it_is_granted_and_needs_no_more(
    manifest: Make,
    client: Client,
    control_plane: Cluster,
    audit_log: Path,
    kubeconfig: Path,
    kubectl: Kubectl,
    namespace: str,
    installed: None,
    kaito: ProviderHost,
    tmp_path: Path,
) -> None:
    own = namespace.replace("test-", "own-")
    kubectl("create", "namespace", own)
    user = f"system:serviceaccount:{own}:airunway-provider-kaito"
    core = f"system:serviceaccount:{own}:{names.CORE_MANAGER}"
    rights, name = provider_rights(kaito.manifest), f"guard-{namespace}"
    guard = [
        *core_guard(core, name=name),
        *provider_guard(kaito.manifest, user, own=own, name=name),
        *status_guard([core, user], namespaces=[namespace], name=name),
    ]
    async with (
        applied(client, guard),
        granted(client, core_rights(), user=core, namespace=own),
        granted(client, rights, user=user, namespace=own, watched=[namespace]),
        running_core(control_plane.kubeconfig_for(core), settings=CoreSettings(guard_parameters=own)),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        audit = AuditReader(audit_log)
        with provider_process(control_plane.kubeconfig_for(user), own=own, watched=namespace, folder=tmp_path) as ready:
            async with asyncio.timeout(PATIENCE):
                while not ready.exists():
                    await asyncio.sleep(0.05)
            await lived_through(client, manifest, namespace)
            seen: list[Request] = []
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):  # repetitions of an event are written after ten seconds
                    while unused(rights, of(user, seen), rare=RARE):
                        seen += audit.read(watches=True)
                        await asyncio.sleep(0.2)
        seen += audit.read(watches=True)
    kubectl("delete", "namespace", own, "--wait=false")
    assert unused(rights, of(user, seen), rare=RARE) == []
    # Not what other tests left behind: a namespace that is being terminated answers 403 too.
    ours = [request for request in of(user, seen) + of(core, seen) if request.namespace in ("", own, namespace)]
    refused = [request for request in ours if request.code == 403]
    assert [f"{r.user}: {r.verb} {r.resource} {r.namespace}/{r.name}" for r in refused] == []


def of(user: str, requests: Sequence[Request]) -> list[Request]:
    return [request for request in requests if request.user == user]


async def lived_through(client: Client, manifest: Make, namespace: str) -> None:
    """A life of a provider: it runs models, reverts, explains, plans, makes anew and lets go."""
    gemma, llama, several = (ObjectKey(namespace, name) for name in ("gemma", "llama", "several"))
    kaito = {"name": "kaito"}
    await client.create(MODEL_DEPLOYMENT, manifest(provider=kaito))
    await client.create(MODEL_DEPLOYMENT, manifest("several", provider=kaito, scaling={"replicas": 2}))
    await client.create(
        MODEL_DEPLOYMENT,
        {
            **manifest("llama"),
            "spec": {
                "model": {"id": "microsoft/Phi-4-mini-instruct"},
                "engine": {"type": "vllm", "contextLength": 4096},
                "provider": kaito,
                "resources": {"gpu": {"count": 1}},
            },
        },
    )
    for key in (gemma, llama, several):
        await until(client, key, phase_is("Running"), what="Running")
    for kind, key in ((WORKSPACE, gemma), (WORKSPACE, gemma), (INFERENCE_SET, several), (SERVICE, several)):
        await drift(client, kind, key)
    await crash(client, gemma)

    await client.merge_patch(MODEL_DEPLOYMENT, gemma, {"metadata": {"annotations": {names.DRY_RUN: "true"}}})
    await until(client, gemma, condition_is("DryRun", "True"))
    plan = ObjectKey(namespace, "gemma-airunway-plan")
    before = await client.get(CONFIG_MAP, plan)
    await client.merge_patch(MODEL_DEPLOYMENT, gemma, {"spec": {"resources": {"memory": "20Gi"}}})
    async with asyncio.timeout(PATIENCE):
        while (await client.get(CONFIG_MAP, plan))["data"] == before["data"]:
            await asyncio.sleep(0.05)
    await client.merge_patch(MODEL_DEPLOYMENT, gemma, {"metadata": {"annotations": {names.DRY_RUN: None}}})
    await gone(client, CONFIG_MAP, plan)
    await until(client, gemma, running_at(2))

    for key in (gemma, llama, several):
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)


async def drift(client: Client, kind: Kind, key: ObjectKey) -> None:
    """Change what the provider says; wait until it says it again and has told of it."""
    await client.merge_patch(
        kind, key, {"metadata": {"labels": {names.MODEL_DEPLOYMENT: "another"}}}, manager="kubectl-edit"
    )
    async with asyncio.timeout(PATIENCE):
        while dig(await client.get(kind, key), "metadata", "labels", names.MODEL_DEPLOYMENT) != key.name:
            await asyncio.sleep(0.05)
        while not any(
            event.get("reason") == "DriftDetected" and dig(event, "related", "kind") == kind.kind
            for event in await client.list_all(EVENT, namespace=key.namespace)
        ):
            await asyncio.sleep(0.05)


async def crash(client: Client, key: ObjectKey) -> None:
    """A pod that was killed for its memory, and workloads of all kinds that may not make theirs."""
    pod = ObjectKey(key.namespace, f"{key.name}-0")
    container = {"name": "model", "image": "registry.example/model:1"}
    await client.create(
        POD,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": {"kaito.sh/workspace": key.name}},
            "spec": {"automountServiceAccountToken": False, "containers": [container]},
        },
    )
    died = {
        **container,
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    await client.merge_patch(
        POD, pod, {"status": {"phase": "Running", "containerStatuses": [died]}}, subresource="status"
    )
    await until(client, key, lambda found: dig(found, "status", "rootCause", "code") == "Engine.OutOfMemory")
    for kind in ("StatefulSet", "ReplicaSet", "Deployment", "Job"):
        await client.create(EVENT, failed_create(key, kind))
    await client.delete(POD, pod, grace_seconds=0)
    await until(client, key, lambda found: "rootCause" not in found["status"])
