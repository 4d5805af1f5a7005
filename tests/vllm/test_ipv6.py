"""A cluster whose Services and pods have addresses of IPv6 only: what is made there listens, and is found, by IPv6."""

from __future__ import annotations

from collections.abc import AsyncIterator
from ipaddress import IPv6Address

import pytest

from airunway.kube import DEPLOYMENT, NAMESPACE, SERVICE, Client, load_config
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, dig
from airunway.runtime.application import ProviderSettings
from airunway_testing.controlplane import ControlPlane
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    deployments,
    install_definitions,
    pods_of,
    running_core,
    running_provider,
    until,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with ControlPlane("cluster", ipv6=True, roomy=True) as running:
        yield running


async def test_a_server_of_an_ipv6_cluster_listens_and_is_found_by_ipv6(
    plane: ControlPlane, vllm: ProviderHost
) -> None:
    settings = ProviderSettings(values={"ipFamily": "IPv6"})
    async with Client(load_config(kubeconfig=plane.kubeconfig)) as client:
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        await install_definitions(client)
        base = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "resources": {"gpu": {"count": 1}}}
        async with (
            running_core(plane.kubeconfig),
            running_provider(plane.kubeconfig, vllm, settings=settings),
            deployments(client, "ml", base) as deploy,
        ):
            key = await deploy("llama")
            await until(client, key, running_at(1), what="a server")
            service = await client.get(SERVICE, key)
            assert dig(service, "spec", "ipFamilies") == ["IPv6"]
            assert IPv6Address(dig(service, "spec", "clusterIP"))
            (pod,) = await pods_of(client, key)
            assert IPv6Address(dig(pod, "status", "podIP"))
            made = await client.get(DEPLOYMENT, ObjectKey("ml", "llama"))
            (container,) = made["spec"]["template"]["spec"]["containers"]
            assert "--host ::" in " ".join(container["args"]).replace("--host=", "--host ")
            assert "host" not in dig(container, "readinessProbe", "httpGet")
