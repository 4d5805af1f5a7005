"""Processes that are killed (SIGKILL) in the middle of a write: no farewell, nothing flushed, nothing cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.audit import AuditReader
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.operator_process import provider_process

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make = Callable[..., Resource]


@pytest.mark.parametrize("action", ["hang", "lose-answer"], ids=["before it arrives", "after it arrived"])
async def test_45_a_provider_killed_while_it_writes_is_taken_up_where_it_was(
    action: str,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    namespace: str,
    audit_log: Path,
    tmp_path: Path,
) -> None:
    key, audit = ObjectKey(namespace, "gemma"), AuditReader(audit_log)
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        fault = Fault(
            "hang" if action == "hang" else "lose-answer",
            verb="apply",
            resource="workspaces",
            where=lambda request: request.namespace == namespace,
            count=None,
        )
        proxy.inject(fault)
        async with provider_process("kaito", proxy.kubeconfig, tmp_path, "--set", "inferenceSet=WhenScaled") as process:
            await client.create(MODEL_DEPLOYMENT, manifest())
            async with asyncio.timeout(PATIENCE):
                while not any(request.fault for request in proxy.requests):
                    await asyncio.sleep(0.001)
            before = ""
            if action == "lose-answer":
                async with asyncio.timeout(PATIENCE):
                    while not before:
                        try:
                            before = uid_of(await client.get(WORKSPACE, key))
                        except NotFound:
                            await asyncio.sleep(0.001)
            process.kill()
            assert await asyncio.to_thread(process.wait) == -9
        held = await client.get(MODEL_DEPLOYMENT, key)
        assert held["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
        async with running_provider(kubeconfig, kaito):
            await until(client, key, running_at(1))
    (workspace,) = await client.list_all(WORKSPACE, namespace=namespace)
    assert before in ("", uid_of(workspace))
    assert workspace["metadata"]["generation"] == 1
    made = [r for r in audit.read() if r.namespace == namespace and r.resource == "workspaces" and r.code == 201]
    assert len([r for r in made if not r.dry_run]) == 1
