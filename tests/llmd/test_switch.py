"""A live deployment goes from plain Deployments to llm-d and back: both name their workload alike."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.llmd.conftest import installed
from tests.llmd.test_life import made
from tests.support.deployed_operator import edit

from airunway.kube import DEPLOYMENT, Client
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, dig, labels_of, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import deployments, running_core, running_provider, running_simulator, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def test_from_vllm_to_llmd_and_back(kubeconfig: Path, client: Client, llmd: ProviderHost, namespace: str) -> None:
    await installed(client)
    base = {"model": {"id": "o/m"}, "provider": {"name": "vllm"}, "resources": {"gpu": {"count": 1}}}
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, load("vllm")),
        running_provider(kubeconfig, llmd),
        running_simulator(kubeconfig, llmd, level="cluster"),
        deployments(client, namespace, base) as create,
    ):
        key: ObjectKey = await create()
        await until(client, key, running_at(1))
        uids = {uid_of(await client.get(DEPLOYMENT, key))}
        for provider in ("llmd", "vllm"):
            generation = await edit(client, key, {"provider": {"name": provider}})
            running = await until(client, key, running_at(generation), what=f"Running with {provider}")
            assert dig(running, "status", "provider", "name") == provider
            live = await client.get(DEPLOYMENT, key)
            assert labels_of(live)["airunway.ai/provider"] == provider
            assert uid_of(live) not in uids, "made anew: nobody takes over what another made"
            uids.add(uid_of(live))
        async with asyncio.timeout(PATIENCE):
            while await made(client, namespace):
                await asyncio.sleep(0.1)
