"""A life in which every write of the provider is the last of its process (SIGKILL): nothing is lost or made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.kuberay.conftest import RAY_SERVICE
from tests.support.faultproxy import Fault, FaultProxy, ProxiedRequest
from tests.support.operator_process import provider_process

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import install_definitions, remove_leftovers, running_core, running_simulator
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

MOST = 20
"""Processes that one step of the life may cost."""


async def lived(proxy: FaultProxy, namespace: str, folder: Path, reached: Callable[[], Awaitable[bool]]) -> int:
    """One process after the other, each killed once it has written, until that is reached: how many have written.

    The answer to its first write is lost; whatever else it writes until it is killed does not arrive.
    """

    def writes(request: ProxiedRequest) -> bool:
        verbs = ("create", "update", "patch", "apply", "delete")
        return request.namespace == namespace and request.verb in verbs and request.resource != "events"

    for number in range(MOST):
        proxy.clear()
        proxy.inject(Fault("lose-answer", where=writes), Fault("reset", where=writes, count=None))
        own = folder / str(number)
        own.mkdir(parents=True)
        async with provider_process("kuberay", proxy.kubeconfig, own) as process:
            async with asyncio.timeout(PATIENCE):
                while not (done := await reached()) and proxy.pending:
                    await asyncio.sleep(0.01)
            process.kill()
            assert await asyncio.to_thread(process.wait) == -9
        if done:
            return number + (not proxy.pending)
    raise AssertionError(f"not reached by {MOST} processes")


async def test_every_write_of_a_life_is_the_last_of_its_process(
    client: Client, kubeconfig: Path, kuberay: ProviderHost, namespace: str, tmp_path: Path
) -> None:
    await install_definitions(client, load_simulator("kuberay").custom_resource_definitions())
    await remove_leftovers(client)
    key = ObjectKey(namespace, "llama")
    spec = {"model": {"id": "o/m"}, "provider": {"name": "kuberay"}, "resources": {"gpu": {"count": 1}}}

    async def runs() -> bool:
        found = await client.get(MODEL_DEPLOYMENT, key)
        return running_at(found["metadata"]["generation"])(found)

    async def has_gone() -> bool:
        try:
            await client.get(MODEL_DEPLOYMENT, key)
        except NotFound:
            return True
        return False

    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_simulator(kubeconfig, kuberay, level="api"),
    ):
        body = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind}
        await client.create(
            MODEL_DEPLOYMENT, {**body, "metadata": {"name": "llama", "namespace": namespace}, "spec": spec}
        )
        assert await lived(proxy, namespace, tmp_path / "start", runs) >= 3, "finalizer, RayService, status"
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"engine": {"contextLength": 4096}}})
        assert await lived(proxy, namespace, tmp_path / "edit", runs) >= 2
        (service,) = await client.list_all(RAY_SERVICE, namespace=namespace)
        assert service["metadata"]["generation"] == 2, "made once, changed once"
        await client.delete(MODEL_DEPLOYMENT, key)
        assert await lived(proxy, namespace, tmp_path / "end", has_gone) >= 2
        assert await client.list_all(RAY_SERVICE, namespace=namespace) == []
