"""Which Gateway a route gets, and what the Gateway says of it."""

from __future__ import annotations

import pytest
from core.tests.gateway.ground import ASKED, Ground, running_part

from airunway.api import names
from airunway.gateway.caches import GATEWAY, HTTP_ROUTE
from airunway.resource import ObjectKey, dig
from airunway_testing.gatewayapi.binding import Fault
from airunway_testing.gatewayapi.controller import GatewayController
from airunway_testing.gatewayapi.kinds import listener

pytestmark = pytest.mark.apiserver

LABELS = {names.INFERENCE_GATEWAY: "true"}


async def test_r15_which_gateway_is_taken_follows_the_gateways(ground: Ground) -> None:
    """None, one, three without a label, two with it. (Gateways of the whole cluster count.)"""
    await ground.service()

    async def uses(name: str) -> None:
        await ground.until_used(name)

    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={"enabled": True})
        await ground.until("NoGateway")
        await ground.open_gateway("b")
        await ground.until("RouteAccepted")
        await uses("b")
        await ground.open_gateway("d", labels=LABELS)
        await uses("d")
        await ground.open_gateway("c", labels=LABELS)
        await uses("c")
        for name in ("c", "d"):
            await ground.client.delete(GATEWAY, ObjectKey(ground.namespace, name))
        await uses("b")
        await ground.open_gateway("e")
        await ground.until("NoGateway")


async def test_r15_a_gateway_that_is_named_and_comes_later(ground: Ground) -> None:
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("NoGateway")
        assert "inference" in await ground.message()
        assert await ground.route() is None
        await ground.open_gateway()
        await ground.until("RouteAccepted")


async def test_r16_a_gateway_of_no_controller(ground: Ground) -> None:
    await ground.open_gateway(class_name="nothing-of-that-kind")
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("WaitingForGateway")
        # The words of the CRD's default.
        assert "Waiting for controller" in await ground.message()


async def test_r17_a_listener_that_does_not_admit_the_namespace(ground: Ground) -> None:
    await ground.client.create(
        GATEWAY,
        {
            "apiVersion": GATEWAY.api_version,
            "kind": GATEWAY.kind,
            "metadata": {"name": ground.namespace, "namespace": "default"},
            "spec": {"gatewayClassName": "airunway-testing", "listeners": [listener(admits="Same")]},
        },
    )
    key = ObjectKey("default", ground.namespace)
    try:
        await ground.service()
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.deploy(gateway={"enabled": True, "gatewayRef": {"name": key.name, "namespace": "default"}})
            await ground.until("RouteNotAccepted")
            message = await ground.message()
            assert "spec.listeners[http].allowedRoutes" in message
            assert ground.namespace in message
            assert (await ground.client.get(GATEWAY, key))["metadata"]["generation"] == 1
            # The platform team follows the message.
            spec = {"listeners": [listener(admits="All")]}
            await ground.client.merge_patch(GATEWAY, key, {"spec": spec})
            await ground.until("RouteAccepted")
    finally:
        await ground.client.delete(GATEWAY, key)


async def test_r18_acceptance_of_an_older_generation_is_no_acceptance(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={**ASKED, "pathTemplate": "/one"})
        await ground.until("RouteAccepted")
        await ground.fault(HTTP_ROUTE, "llama", Fault.SILENT)
        await ground.edit(gateway={"pathTemplate": "/two"})
        live = await ground.until("WaitingForGateway")
        assert dig(live, "status", "gateway", "ready") is False
        await ground.fault(HTTP_ROUTE, "llama", Fault.NONE)
        await ground.until("RouteAccepted")


async def test_r18_of_two_parents_the_one_that_rejects_is_named(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.open_gateway("closed", fault=Fault.CLOSED)
    await ground.service()
    rule = {"backendRefs": [{"name": "llama", "port": 8000}]}
    theirs = {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": {"name": "theirs", "namespace": ground.namespace},
        "spec": {"parentRefs": [{"name": "inference"}, {"name": "closed"}], "rules": [rule]},
    }
    await ground.client.create(HTTP_ROUTE, theirs)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={"enabled": True, "httpRouteRef": "theirs"})
        await ground.until("RouteNotAccepted")
        assert f"Gateway {ground.namespace}/closed" in await ground.message()


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (Fault.NO_REWRITE, "RouteNotAccepted", "UnsupportedValue"),
        (Fault.CLOSED, "RouteNotAccepted", "NotAllowedByListeners"),
        (Fault.SILENT, "WaitingForGateway", ""),
        (Fault.PARTIAL, "WaitingForGateway", "ResolvedRefs"),
    ],
)
async def test_r19_what_a_gateway_refuses_is_said_in_its_words_and_heals(
    ground: Ground, fault: Fault, reason: str, words: str
) -> None:
    await ground.open_gateway(fault=fault)
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until(reason)
        assert words in await ground.message()
        await ground.fault(GATEWAY, "inference", Fault.NONE)
        await ground.until("RouteAccepted")


async def test_a_flapping_gateway_costs_status_writes_and_no_route(
    ground: Ground, controller: GatewayController
) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("RouteAccepted")
        generation = dig(await ground.route(), "metadata", "generation")
        await ground.fault(GATEWAY, "inference", Fault.FLAPPING)
        for _ in range(3):
            live = await ground.until_not("RouteAccepted")
            assert dig(live, "status", "gateway", "ready") is False
            await ground.until("RouteAccepted")
        await ground.fault(GATEWAY, "inference", Fault.NONE)
        assert dig(await ground.route(), "metadata", "generation") == generation
