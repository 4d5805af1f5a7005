"""llm-d's provider is killed (SIGKILL) at any of its writes: whoever comes next finds its way, and nothing is twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.llmd.conftest import APART, installed
from tests.llmd.test_life import made
from tests.support.audit import AuditReader
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.operator_process import provider_process

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import gone, running_core, running_provider, running_simulator, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WRITTEN = ("services", "serviceaccounts", "roles", "rolebindings", "configmaps", "inferencepools", "deployments")


@pytest.mark.parametrize("resource", WRITTEN)
async def test_a_provider_killed_at_any_write_is_taken_up_where_it_was(
    resource: str,
    client: Client,
    kubeconfig: Path,
    llmd: ProviderHost,
    namespace: str,
    audit_log: Path,
    tmp_path: Path,
) -> None:
    await installed(client)
    key, audit = ObjectKey(namespace, "llama"), AuditReader(audit_log)
    body = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": key.name, "namespace": namespace},
        "spec": {"model": {"id": "o/m"}, "provider": {"name": "llmd"}, **APART},
    }
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_simulator(kubeconfig, llmd, level="cluster"),
    ):
        fault = Fault(
            "lose-answer",
            verb="apply",
            resource=resource,
            where=lambda request: request.namespace == namespace,
            count=None,
        )
        proxy.inject(fault)
        async with provider_process("llmd", proxy.kubeconfig, tmp_path) as process:
            await client.create(MODEL_DEPLOYMENT, body)
            async with asyncio.timeout(PATIENCE):
                while not any(request.fault for request in proxy.requests):
                    await asyncio.sleep(0.005)
            process.kill()
            assert await asyncio.to_thread(process.wait) == -9
        async with running_provider(kubeconfig, llmd):
            await until(client, key, running_at(1))
            assert len(await made(client, namespace)) == 10
            twice = [
                f"{r.resource} {r.name}"
                for r in audit.read()
                if r.namespace == namespace and r.resource in WRITTEN and r.code == 201 and not r.dry_run
            ]
            ours = [name for name in twice if "llama" in name]
            assert len(ours) == len(set(ours))
            await client.delete(MODEL_DEPLOYMENT, key)
            await gone(client, MODEL_DEPLOYMENT, key)
