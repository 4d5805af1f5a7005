"""A cluster without the Inference Extension, which is installed later: nothing that serves restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.llmd.conftest import APART, POOL, installed
from tests.support.rights import granted

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, POD, Client
from airunway.plugins.host import ProviderHost
from airunway.rbac.rights import provider_rights
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, uid_of
from airunway_testing.controlplane import Cluster
from airunway_testing.expectations import condition_is, running_at
from airunway_testing.operator import (
    gone,
    install_definitions,
    remove_definition,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
async def extension(client: Client) -> AsyncIterator[Resource]:
    """The CRD of InferencePools, not installed."""
    await installed(client)
    (crd,) = load_simulator("llmd").custom_resource_definitions()
    await remove_definition(client, key_of(crd).name)
    yield crd
    await install_definitions(client, [crd])


async def servers(client: Client, namespace: str) -> dict[str, str]:
    """The pods that serve, by name, with their uid."""
    label = "airunway.ai/inference-pool"
    found = await client.list_all(POD, namespace=namespace, label_selector=label)
    return {key_of(pod).name: uid_of(pod) for pod in found}


async def test_pool_and_picker_appear_and_nothing_that_serves_restarts(
    extension: Resource,
    kubeconfig: Path,
    client: Client,
    cluster: Cluster,
    llmd: ProviderHost,
    namespace: str,
    account: str,
) -> None:
    specs: dict[str, Resource] = {"plain": {"resources": {"gpu": {"count": 1}}}, "apart": APART}
    async with (
        granted(client, provider_rights(llmd.manifest), user=account, namespace=namespace),
        running_core(kubeconfig),
        running_provider(cluster.kubeconfig_for(account), llmd),
        running_simulator(kubeconfig, llmd, level="cluster"),
    ):
        for name, spec in specs.items():
            body = {
                "apiVersion": MODEL_DEPLOYMENT.api_version,
                "kind": MODEL_DEPLOYMENT.kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"model": {"id": "o/m"}, "provider": {"name": "llmd"}, **spec},
            }
            await client.create(MODEL_DEPLOYMENT, body)
        for name in specs:
            running = await until(client, ObjectKey(namespace, name), running_at(1))
            (warning,) = running["status"]["warnings"]
            assert "plain Service" in warning
            assert condition_of(running, "PickerReady") is None
        before = await servers(client, namespace)
        assert len(before) == 3

        await install_definitions(client, [extension])
        for name in specs:
            key = ObjectKey(namespace, name)
            live = await until(client, key, condition_is("PickerReady", "True"), what="a picker")
            assert "warnings" not in live["status"]
            await until(client, key, running_at(1))
            assert dig(await client.get(POOL, key), "spec", "selector", "matchLabels") == {
                "airunway.ai/inference-pool": name
            }
        assert await servers(client, namespace) == before
        await client.get(DEPLOYMENT, ObjectKey(namespace, "plain-epp"))
        for name in specs:
            await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, name))
            await gone(client, MODEL_DEPLOYMENT, ObjectKey(namespace, name))
