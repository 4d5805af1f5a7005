"""Played model servers behind simulated pods, through a real API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.served import LABEL, create_deployment, write_status

from airunway.kube import ENDPOINT_SLICE, POD, SERVICE, ApiError, Client, Kind, TransportError, load_config
from airunway.resource import ObjectKey, dig, is_true
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import Eventually
from airunway_testing.modelservers.pods import PlayedServers, pods_answer
from airunway_testing.operator import install_definitions

pytestmark = pytest.mark.cluster

LLAMA = ObjectKey("default", "llama-0")
CHAT = {"model": "Llama-3.1-8B-Instruct", "messages": [{"role": "user", "content": "one two three"}]}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane("cluster", egress=True) as started:
        yield started


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(load_config(kubeconfig=plane.kubeconfig)) as connected:
        yield connected


@pytest.fixture
async def servers(plane: ControlPlane, client: Client, tmp_path: Path) -> AsyncIterator[PlayedServers]:
    """With a deployment called `llama` that vLLM serves."""
    await install_definitions(client)
    await create_deployment(client, ObjectKey("default", "llama"))
    await write_status(client, ObjectKey("default", "llama"), engine={"type": "vllm"})
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes" / "default-download-0.log").write_text("fetched\n")
    assert plane.egress_socket is not None
    async with pods_answer(
        plane.kubeconfig, plane.egress_socket, tmp_path / "servers", processes=[tmp_path / "processes"]
    ) as running:
        yield running


async def add_pod(client: Client, name: str, *, label: str = "llama", **labels: str) -> None:
    """A pod that the simulated nodes make Ready."""
    container = {"name": "model", "image": "registry.example/engine:1", "ports": [{"containerPort": 8000}]}
    metadata = {"name": name, "namespace": "default", "labels": {LABEL: label, **labels}}
    sidecar = {"name": "sidecar", "image": "registry.example/sidecar:1"}
    await client.create(POD, {"metadata": metadata, "spec": {"containers": [container, sidecar]}})


async def text(client: Client, kind: Kind, key: ObjectKey, path: str, *, body: object = None) -> str:
    method, port = ("GET" if body is None else "POST"), (8000 if kind is POD else 80)
    lines = client.proxied(kind, key, port=port, path=path, method=method, body=body)
    return "\n".join([line async for line in lines])


async def log(client: Client, key: ObjectKey, container: str = "model", *, previous: bool = False) -> list[str]:
    return [line async for line in client.logs(key, container=container, previous=previous)]


async def test_pods_of_a_deployment_answer_report_and_write_logs(
    client: Client, servers: PlayedServers, eventually: Eventually
) -> None:
    await add_pod(client, LLAMA.name, **{"airunway.ai/component": "server"})
    await add_pod(client, "stranger", label="unknown")
    await add_pod(client, "llama-picker", **{"airunway.ai/component": "picker"})
    port = {"name": "http", "port": 80, "targetPort": 8000}
    selector = {LABEL: "llama", "airunway.ai/component": "server"}
    metadata = {"name": "llama", "namespace": "default"}
    await client.create(SERVICE, {"metadata": metadata, "spec": {"selector": selector, "ports": [port]}})

    async def ready() -> bool:
        pods = await client.list_all(POD, namespace="default")
        slices = await client.list_all(ENDPOINT_SLICE, label_selector="kubernetes.io/service-name=llama")
        return all(is_true(pod, "Ready") for pod in pods) and any(dig(each, "endpoints") for each in slices)

    await eventually(ready)
    before = await text(client, POD, LLAMA, "/metrics")
    assert 'vllm:generation_tokens_total{model_name="Llama-3.1-8B-Instruct"} 0' in before
    answered = json.loads(await text(client, SERVICE, ObjectKey("default", "llama"), "/v1/chat/completions", body=CHAT))
    assert answered["choices"][0]["message"]["content"] == "three two one"
    after = await text(client, POD, LLAMA, "/metrics")
    assert 'vllm:generation_tokens_total{model_name="Llama-3.1-8B-Instruct"} 3' in after
    written = await log(client, LLAMA)
    assert "played vllm serves Llama-3.1-8B-Instruct" in written[0]
    assert written[1] == 'INFO: "POST /v1/chat/completions HTTP/1.1" 200'
    assert await log(client, LLAMA, "sidecar") == []
    for name in ("stranger", "llama-picker"):
        assert await log(client, ObjectKey("default", name)) == []
        with pytest.raises((ApiError, TransportError)):
            await text(client, POD, ObjectKey("default", name), "/v1/models")

    # A pod that is broken answers no more, and one that comes after it has a server of its own.
    await client.merge_patch(POD, LLAMA, {"metadata": {"annotations": {OUTCOME: "CrashLoopBackOff"}}})

    async def broken() -> bool:
        return not is_true(await client.get(POD, LLAMA), "Ready") and await servers.find(*await address()) is None

    async def address() -> tuple[str, int]:
        return str(dig(await client.get(POD, LLAMA), "status", "podIP")), 8000

    await eventually(broken)
    assert "ended with exit code 1 (Error)" in (await log(client, LLAMA, previous=True))[0]
    with pytest.raises(ApiError, match="not found"):
        await log(client, LLAMA)
    await client.delete(POD, LLAMA, grace_seconds=0)
    await add_pod(client, "llama-1")

    async def empty() -> bool:
        try:
            found = await text(client, POD, ObjectKey("default", "llama-1"), "/metrics")
        except (ApiError, TransportError):
            return False
        return 'generation_tokens_total{model_name="Llama-3.1-8B-Instruct"} 0' in found

    await eventually(empty)
    await add_pod(client, "download-0", label="")

    async def runs() -> bool:
        return is_true(await client.get(POD, ObjectKey("default", "download-0")), "Ready")

    await eventually(runs)
    assert await log(client, ObjectKey("default", "download-0")) == ["fetched"]


async def test_other_addresses_are_reached_as_they_are(servers: PlayedServers) -> None:
    assert await servers.find("192.0.2.9", 443) == ("192.0.2.9", 443)
    assert await servers.find("webhook.example", 443) == ("webhook.example", 443)
    assert await servers.find("10.244.200.1", 8000) is None
    assert await servers.find("gpu-0", 8080) == ("gpu-0", 8080)
    assert await servers.find("gpu-0", 10250) == servers.kubelets["gpu-0"]
