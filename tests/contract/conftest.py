"""The stage of the contract's tests: the toy upstream, and every component of ours under an account of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, SERVICE, Client
from airunway.resource import key_of
from airunway_testing.controlplane import Cluster
from airunway_testing.operator import install_definitions, remove_leftovers
from airunway_testing.simulators import load_simulator
from airunway_testing.stage import Stage, staged
from airunway_testing.toy.names import PART, TOY, TOY_BOX


@pytest.fixture
async def stage(control_plane: Cluster, client: Client, namespace: str, audit_log: Path) -> AsyncIterator[Stage]:
    """The core runs; providers come with ``await stage.provider(host)``.

    After every test: nothing is written at rest, whatever the objects of the deployments are touched with; nobody was
    refused a right; the deployments go.
    """
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    await remove_leftovers(client)

    async def clean() -> None:
        assert await found.at_rest(TOY, TOY_BOX, PART, SERVICE, CONFIG_MAP) == [], "at rest nothing is written"
        for deployment in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await client.delete(MODEL_DEPLOYMENT, key_of(deployment))
        async with asyncio.timeout(20):
            while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                await asyncio.sleep(0.05)

    async with staged(control_plane, client, namespace=namespace, audit_log=audit_log, clean=clean) as found:
        yield found
