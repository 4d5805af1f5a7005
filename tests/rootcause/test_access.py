"""The provider with exactly the rights that are listed for it, and without those for root causes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.audit import AuditReader
from tests.support.faults import failed_create
from tests.support.rights import granted

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, POD, Client
from airunway.plugins.host import ProviderHost
from airunway.rbac.rights import Rights, provider_rights
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway.status.evidence import event_facts
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE, eventually
from airunway_testing.operator import running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]

KAITO: Resource = {"name": "kaito"}


def crashing_pod(namespace: str, name: str, *, labels: dict[str, str]) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "model", "image": "registry.example/model:1"}],
        },
    }


CRASHED = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "model",
            "image": "registry.example/model:1",
            "imageID": "",
            "ready": False,
            "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }
    ],
}


@asynccontextmanager
async def allowed(client: Client, cluster: Cluster, rights: Rights) -> AsyncIterator[tuple[str, Path]]:
    """A user who may do what `rights` say: name and kubeconfig."""
    user = f"provider-{uuid4().hex[:8]}"
    async with granted(client, rights, user=user, namespace="default"):
        yield user, cluster.kubeconfig_for(user)


async def crash(client: Client, key: ObjectKey) -> None:
    """A pod of the Workspace that was killed for its memory."""
    pod = ObjectKey(key.namespace, f"{key.name}-0")
    await client.create(POD, crashing_pod(pod.namespace, pod.name, labels={"kaito.sh/workspace": key.name}))
    await client.merge_patch(POD, pod, {"status": CRASHED}, subresource="status")


async def test_the_listed_rights_are_enough(
    manifest: Make,
    client: Client,
    control_plane: Cluster,
    audit_log: Path,
    kubeconfig: Path,
    namespace: str,
    installed: None,
    kaito: ProviderHost,
) -> None:
    key = ObjectKey(namespace, "gemma")
    async with (
        allowed(client, control_plane, provider_rights(kaito.manifest)) as (user, theirs),
        running_core(kubeconfig),
        running_simulator(kubeconfig, kaito, level="api"),
        running_provider(theirs, kaito),
    ):
        audit = AuditReader(audit_log)
        await client.create(MODEL_DEPLOYMENT, manifest("gemma", provider=KAITO))
        await until(client, key, lambda found: dig(found, "status", "phase") == "Running")
        await crash(client, key)
        await until(client, key, lambda found: dig(found, "status", "rootCause", "code") == "Engine.OutOfMemory")
        await client.create(EVENT, failed_create(ObjectKey(namespace, "gemma"), "StatefulSet"))
        await client.delete(MODEL_DEPLOYMENT, key)
        async with asyncio.timeout(PATIENCE):
            while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                await asyncio.sleep(0.05)
        # Not what other tests left behind: a namespace that is being terminated answers 403 too.
        ours = ("", namespace)
        requests = [request for request in audit.read() if request.user == user and request.namespace in ours]
    assert requests
    assert [f"{r.verb} {r.resource}" for r in requests if r.code == 403] == []


async def test_without_the_rights_for_root_causes_the_upstream_s_words_count(
    manifest: Make,
    client: Client,
    control_plane: Cluster,
    kubeconfig: Path,
    namespace: str,
    installed: None,
    kaito: ProviderHost,
) -> None:
    key = ObjectKey(namespace, "blind")
    full = provider_rights(kaito.manifest)
    evidence = {"pods", "jobs", "statefulsets", "events"}
    blind = replace(full, watched=tuple(rule for rule in full.watched if not evidence & set(rule["resources"])))
    async with (
        allowed(client, control_plane, blind) as (_, theirs),
        running_core(kubeconfig),
        running_simulator(kubeconfig, kaito, level="api"),
        running_provider(theirs, kaito),
    ):
        await client.create(MODEL_DEPLOYMENT, manifest("blind", provider=KAITO))
        await crash(client, key)
        deployment = await until(client, key, lambda found: dig(found, "status", "phase") == "Running")
        assert condition_of(deployment, "PodsReady") is None
        assert "rootCause" not in deployment["status"]
        await client.delete(MODEL_DEPLOYMENT, key)
        async with asyncio.timeout(PATIENCE):
            while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                await asyncio.sleep(0.05)


async def test_what_is_none_of_ours_is_dropped_when_it_is_decoded(
    manifest: Make, client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    key = ObjectKey(namespace, "gemma")
    async with (
        running_core(kubeconfig),
        running_simulator(kubeconfig, kaito, level="api"),
        running_provider(kubeconfig, kaito) as provider,
    ):
        await client.create(MODEL_DEPLOYMENT, manifest("gemma", provider=KAITO))
        await until(client, key, lambda found: dig(found, "status", "phase") == "Running")
        for number in range(5):
            await client.create(POD, crashing_pod(namespace, f"other-{number}", labels={"app": "other"}))
            await client.create(EVENT, failed_create(ObjectKey(namespace, f"other-{number}"), "StatefulSet"))
            # Begins as ours does, and is another's: kept as a candidate, and not believed.
            await client.create(EVENT, failed_create(ObjectKey(namespace, f"gemma-{number}"), "StatefulSet"))
        await crash(client, key)
        found = await until(client, key, lambda deployment: "rootCause" in deployment["status"])
        assert found["status"]["rootCause"]["code"] == "Engine.OutOfMemory"
        pods, _, _, events, *_ = provider.evidence.reflectors
        ours = {name.name for name in pods.keys() if name.namespace == namespace}  # noqa: SIM118 - not a dict
        assert ours == {"gemma-0"}
        kept = {event["facts"].name for event in events.values() if event["facts"].namespace == namespace}
        assert kept == {f"gemma-{number}" for number in range(5)}
        await client.delete(POD, ObjectKey(namespace, "gemma-0"), grace_seconds=0)
        await until(client, key, lambda deployment: "rootCause" not in deployment["status"])
        await client.delete(MODEL_DEPLOYMENT, key)
        async with asyncio.timeout(PATIENCE):
            while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                await asyncio.sleep(0.05)


async def test_the_oldest_event_s_workload_is_read_where_newer_ones_are_about_more_than_one_pass_reads(
    manifest: Make, client: Client, kubeconfig: Path, namespace: str, installed: None, kaito: ProviderHost
) -> None:
    key = ObjectKey(namespace, "gemma")
    async with running_core(kubeconfig), running_simulator(kubeconfig, kaito, level="api"):
        async with running_provider(kubeconfig, kaito):
            await client.create(MODEL_DEPLOYMENT, manifest("gemma", provider=KAITO))
            await until(client, key, lambda found: dig(found, "status", "phase") == "Running")
        oldest = failed_create(key, "StatefulSet")
        invented = [failed_create(ObjectKey(namespace, f"gemma-{number}"), "StatefulSet") for number in range(250)]
        for number, event in enumerate(invented):
            event["regarding"]["uid"] = f"invented-{number}"
        for event in (oldest, *invented):
            await client.create(EVENT, event)
        async with running_provider(kubeconfig, kaito) as provider:
            await eventually(lambda: provider.evidence.workloads.knows(event_facts(oldest)))
            await client.delete(MODEL_DEPLOYMENT, key)
            async with asyncio.timeout(PATIENCE):
                while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                    await asyncio.sleep(0.05)
