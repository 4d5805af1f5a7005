"""A backup that is restored has no status: what serves is neither deleted nor made anew."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import Resource, uid_of
from airunway_testing.audit import AuditReader
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    deployments,
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator
from airunway_testing.toy.names import TOY
from airunway_testing.toy.variants import toy_host

pytestmark = [pytest.mark.apiserver]

MODEL: Resource = {
    "model": {"id": "org/model"},
    "engine": {"type": "vllm"},
    "provider": {"name": "toy"},
    "resources": {"gpu": {"count": 1}},
}


async def test_a_lost_status_deletes_nothing_while_the_core_is_away_or_back(
    kubeconfig: Path, client: Client, namespace: str, audit_log: Path
) -> None:
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    await remove_leftovers(client)
    host = toy_host()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running_simulator(kubeconfig, host, level="api"))
        core = await stack.enter_async_context(AsyncExitStack())
        await core.enter_async_context(running_core(kubeconfig))
        provider = await stack.enter_async_context(AsyncExitStack())
        await provider.enter_async_context(running_provider(kubeconfig, host))
        create = await stack.enter_async_context(deployments(client, namespace, {}))
        keys = [await create(f"model-{number}", **MODEL) for number in range(3)]
        for key in keys:
            await until(client, key, running_at(1))
        made = {key: uid_of(await client.get(TOY, key)) for key in keys}
        log = AuditReader(audit_log)

        async def lose() -> None:
            for key in keys:
                body = {"status": None}
                await client.merge_patch(MODEL_DEPLOYMENT, key, body, subresource="status", manager="restore")

        await core.aclose()
        await lose()
        await provider.aclose()  # what it would have deleted, it has by now
        await provider.enter_async_context(running_provider(kubeconfig, host))
        await core.enter_async_context(running_core(kubeconfig))
        for key in keys:
            await until(client, key, running_at(1))
        await lose()
        for key in keys:
            await until(client, key, running_at(1))
        assert {key: uid_of(await client.get(TOY, key)) for key in keys} == made
        deleted = [each for each in log.read() if each.verb == "delete" and each.namespace == namespace]
        assert [f"{each.agent}: {each.name}" for each in deleted if each.resource == "toys"] == []
