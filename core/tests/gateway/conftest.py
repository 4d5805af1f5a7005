"""A control plane with the kinds of the Gateway API, and a ground in a namespace of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from core.tests.gateway.ground import Ground

from airunway.api.crds import custom_resource_definitions
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import Client
from airunway.resource import ObjectKey, key_of
from airunway_testing.eventually import Eventually
from airunway_testing.gatewayapi.controller import GatewayController, running_gateway_controller
from airunway_testing.gatewayapi.kinds import CLASS_NAME, GATEWAY, GATEWAY_CLASS, definitions, gateway_class
from airunway_testing.operator import install_definitions


@pytest.fixture
async def controller(client: Client, kubeconfig: Path) -> AsyncIterator[GatewayController]:
    await install_definitions(client, [*custom_resource_definitions(), *definitions()])
    if await client.find(GATEWAY_CLASS, ObjectKey("", CLASS_NAME)) is None:
        await client.create(GATEWAY_CLASS, gateway_class())
    async with running_gateway_controller(kubeconfig) as running:
        yield running


@pytest.fixture
async def ground(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> AsyncIterator[Ground]:
    # No namespace controller runs beside the API server: the Gateways of earlier tests are still there, and would be
    # detected.
    for gateway in await client.list_all(GATEWAY):
        await client.delete(GATEWAY, key_of(gateway))
    found = Ground(
        client=client, namespace=namespace, eventually=eventually, provider=f"p-{namespace}"[:40].rstrip("-")
    )
    await found.provide()
    yield found
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", found.provider))
