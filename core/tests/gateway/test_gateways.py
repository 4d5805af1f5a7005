"""Which Gateway a route gets, and what the Gateway says of it."""

from __future__ import annotations

import pytest
from core.tests.gateway.ground import ASKED, Ground, running_part

from airunway.api import names
from airunway.gateway.caches import GATEWAY, HTTP_ROUTE
from airunway.kube import NAMESPACE, Client
from airunway.resource import ObjectKey, condition_of, dig
from airunway_testing.gatewayapi.binding import Fault
from airunway_testing.gatewayapi.controller import GatewayController
from airunway_testing.gatewayapi.kinds import gateway, listener

pytestmark = pytest.mark.apiserver

LABELS = {names.INFERENCE_GATEWAY: "true"}


async def test_r15_which_gateway_is_taken_follows_the_gateways(ground: Ground) -> None:
    """None, one, more of them beside a route that exists, one with the label, two."""
    for name in ("llama", "later"):
        await ground.service(name)
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.deploy(gateway={"enabled": True})
        await ground.until("NoGateway")
        await ground.open_gateway("b")
        await ground.until_used("b")
        await ground.open_gateway("d", labels=LABELS)
        await ground.deploy("later", gateway={"enabled": True}, model="a/later")
        await ground.until_used("d", "later")
        await ground.open_gateway("c", labels=LABELS)
        await ground.eventually(lambda: part.at_rest)
        for name, used in (("llama", "b"), ("later", "d")):  # a route that exists keeps its Gateway
            assert dig(await ground.get(name), "status", "gateway", "gatewayName") == used
        await ground.client.delete(GATEWAY, ObjectKey(ground.namespace, "b"))
        await ground.until("AmbiguousGateway")
        await ground.client.delete(GATEWAY, ObjectKey(ground.namespace, "c"))
        await ground.until_used("d")


async def test_h1_a_labelled_gateway_of_a_tenant_draws_no_route_until_an_administrator_allows_its_namespace(
    ground: Ground, client: Client
) -> None:
    """Mallory may write Gateways in her namespace; a namespace's own label is not hers to set."""
    hers = f"{ground.namespace}-hers"[-60:].lstrip("-")
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hers}})
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace) as part:
        made = gateway("mine", hers, labels=LABELS)
        await client.create(GATEWAY, made)
        await ground.deploy(gateway={"enabled": True})
        await ground.until("NoGateway")
        assert f"kubectl label namespace {hers} airunway.ai/gateways=allowed" in await ground.message()
        await ground.open_gateway()
        await ground.until_used("inference")
        labels = {"metadata": {"labels": {names.GATEWAY_NAMESPACE: "allowed"}}}
        await client.merge_patch(NAMESPACE, ObjectKey("", hers), labels)
        await ground.eventually(lambda: hers in part.application._foreign.gateway_namespaces())
        await ground.eventually(lambda: part.at_rest)
        assert dig(await ground.get(), "status", "gateway", "gatewayName") == "inference"
        await client.delete(GATEWAY, ObjectKey(ground.namespace, "inference"))
        await ground.until_used("mine")
    await client.delete(GATEWAY, ObjectKey(hers, "mine"))


async def test_a_gateway_that_loses_its_address_is_a_warning_and_then_a_fault(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    await ground.config(statusPolicy={"dependencyGracePeriod": "3s"})
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("RouteAccepted")
        route = await ground.route()
        await ground.fault(GATEWAY, "inference", Fault.NO_ADDRESS)

        async def warned() -> bool:
            live = await ground.get()
            warnings = dig(live, "status", "gateway", "warnings", default=[])
            ready = (condition_of(live, "GatewayReady") or {}).get("status")
            return bool(warnings) and "AddressNotAssigned" in warnings[0] and ready == "True"

        await ground.eventually(warned)
        await ground.until("GatewayNotProgrammed")
        assert "AddressNotAssigned: Gateway has no address yet" in await ground.message()
        assert dig(await ground.route(), "metadata", "uid") == dig(route, "metadata", "uid")
        await ground.fault(GATEWAY, "inference", Fault.NONE)
        await ground.until("RouteAccepted")
        assert "warnings" not in (await ground.get())["status"]["gateway"]


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
