"""Requests through a real Envoy to deployments of a group (``-m gateway``, docs/side-by-side.md)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from core.tests.gateway.ground import Ground, running_part
from core.tests.gateway.test_groups import CHAT, until_refs, until_share
from core.tests.gateway.test_groups import serve as provide
from core.tests.gateway.test_traffic import BODY, ground, serve, traffic
from tests.support.gatewayapi.traffic import Answer
from tests.support.gatewayapi.traffic import Ground as Traffic

from airunway.gateway.caches import HTTP_ROUTE
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import SERVICE
from airunway.resource import ObjectKey

__all__ = ["ground", "traffic"]

pytestmark = [pytest.mark.apiserver, pytest.mark.gateway, pytest.mark.slow]

URL = "/ml/chat/v1/completions"
REQUESTS = 10_000


async def member(ground: Ground, traffic: Traffic, name: str, weight: int) -> None:
    """A deployment of the group `chat` with a model server."""
    await serve(ground, traffic, name)
    model = {"id": "org/Chat", "servedName": "chat"}
    await ground.deploy(name, gateway={**CHAT, "weight": weight}, model=model)
    await provide(ground, name, target=traffic.model_port)


async def asked(traffic: Traffic, number: int) -> Counter[str]:
    """So many requests, by the server that answered; every one is answered with 200."""
    found: Counter[str] = Counter()

    async def ask() -> None:
        while sum(found.values()) < number:
            answer = await traffic.post(URL, BODY)
            assert answer.status == 200
            found[answer.server] += 1

    await asyncio.gather(*(ask() for _ in range(8)))
    return found


async def test_two_pools_are_split_and_each_has_its_own_picker(ground: Ground, traffic: Traffic) -> None:
    """``routing.split: Pool``, on a gateway that takes several pools in one rule."""
    await ground.provide(endpointPicker={})
    await ground.config(routing={"split": "Pool"})
    traffic.picker_port = 9002  # the port of the picker's container; each played one has an address of its own
    async with running_part(ground.client, namespace=ground.namespace), AsyncExitStack() as stack:
        pickers = {}
        for name, weight in (("v1", 9), ("v2", 1)):
            await member(ground, traffic, name, weight)
            await ground.picker_runs(name)
            service = await ground.client.get(SERVICE, ObjectKey(ground.namespace, f"{name}-epp"))
            picker = traffic.picker(name, labels=service["spec"]["selector"])
            pickers[name] = await stack.enter_async_context(picker)
        await until_refs(ground, "v1", ("v1", 9), ("v2", 1), kind="InferencePool")
        await ground.until("RouteAccepted", "v2")
        assert "several InferencePools, as routing.split says" in (await ground.condition("v2"))["message"]
        await traffic.accepted("v1")
        for name in pickers:
            await traffic.endpoints(name, 1)

        async def both_are_asked() -> bool:
            await traffic.post(URL, BODY)
            return all(picker.requests for picker in pickers.values())

        await ground.eventually(both_are_asked)
        before = Counter({f"{name}-0": len(picker.requests) for name, picker in pickers.items()})
        found = await asked(traffic, 1000)
        seen = Counter({f"{name}-0": len(picker.requests) for name, picker in pickers.items()})
        assert seen - before == found, "each picker was asked for its own pool, and for nothing else"
        assert 60 < found["v2-0"] < 140


@asynccontextmanager
async def load(traffic: Traffic) -> AsyncIterator[list[Answer]]:
    """Requests one after the other, four at a time, until the context ends; none may fail."""
    answers: list[Answer] = []
    done = asyncio.Event()

    async def ask() -> None:
        while not done.is_set():
            answers.append(await traffic.post(URL, BODY))

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    try:
        yield answers
    finally:
        done.set()
        await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200}


async def test_ten_thousand_requests_are_shared_as_the_weights_say(ground: Ground, traffic: Traffic) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await member(ground, traffic, "v1", 9)
        await ground.until("RouteAccepted", "v1")
        await member(ground, traffic, "v2", 1)
        for weights in ((9, 1), (1, 1), (0, 1)):
            for name, weight in zip(("v1", "v2"), weights, strict=True):
                await ground.edit(name, gateway={"weight": weight})
            wanted = [(name, weight) for name, weight in zip(("v1", "v2"), weights, strict=True) if weight]
            await until_refs(ground, "v1", *wanted)
            await traffic.accepted("v1")
            found = await asked(traffic, REQUESTS)
            part = 100 * found["v1-0"] / sum(found.values())
            assert abs(part - 100 * weights[0] / sum(weights)) <= 1.5, (weights, found)


async def three(ground: Ground, traffic: Traffic) -> None:
    """Three deployments that share everything."""
    for name, weight in (("v1", 9), ("v2", 1), ("v3", 1)):
        await member(ground, traffic, name, weight)
    await until_refs(ground, "v1", ("v1", 9), ("v2", 1), ("v3", 1))
    await traffic.accepted("v1")


async def test_no_request_fails_while_weights_are_edited_and_a_member_drains(ground: Ground, traffic: Traffic) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await three(ground, traffic)
        async with load(traffic) as answers:
            for weight in (5, 0, 1):
                await ground.edit("v1", gateway={"weight": weight})
                await until_share(ground, "v1", {5: 72, 0: 0, 1: 34}[weight])
                await traffic.accepted("v1")
            await provide(ground, "v3", ready=0)  # as a provider says it of a pod that is about to go
            await until_refs(ground, "v1", ("v1", 1), ("v2", 1))
            await traffic.accepted("v1")
            await traffic.unready("v3-0")
            seen = len(answers)
            await ground.eventually(lambda: len(answers) > seen + 100)
    assert {answer.server for answer in answers} == {"v1-0", "v2-0", "v3-0"}


async def test_a_member_that_is_killed_gets_no_request_once_its_provider_says_so(
    ground: Ground, traffic: Traffic
) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await three(ground, traffic)
        await traffic.unready("v3-0")  # its endpoint goes before anything is said of it
        await provide(ground, "v3", ready=0)
        await until_refs(ground, "v1", ("v1", 9), ("v2", 1))
        await traffic.accepted("v1")
        assert set(await asked(traffic, 200)) <= {"v1-0", "v2-0"}


async def test_no_request_fails_while_the_holder_changes_its_group(ground: Ground, traffic: Traffic) -> None:
    """The holder leaves with the part restarted in between, and comes back as an ordinary member."""
    async with running_part(ground.client, namespace=ground.namespace):
        await three(ground, traffic)
    async with load(traffic) as answers, running_part(ground.client, namespace=ground.namespace):
        await ground.edit("v1", gateway={"group": "other"})
        await until_refs(ground, "v2", ("v2", 1), ("v3", 1))
        await ground.until_gone(HTTP_ROUTE, "v1")
        await traffic.accepted("v2")
        await ground.edit("v1", gateway={"group": "chat"})
        await until_refs(ground, "v2", ("v1", 9), ("v2", 1), ("v3", 1))
        await traffic.accepted("v2")
        seen = len(answers)
        await ground.eventually(lambda: len(answers) > seen + 50)


async def test_no_request_fails_while_a_version_is_replaced_by_another_provider_and_put_back(
    ground: Ground, traffic: Traffic
) -> None:
    """The way of the page, to another provider and back: beside, wait, weights, delete the one before, which holds."""
    async with running_part(ground.client, namespace=ground.namespace):
        await member(ground, traffic, "v1", 1)
        await ground.until("RouteAccepted", "v1")
        await traffic.accepted("v1")
    first = ground.provider
    async with load(traffic) as answers:
        for before, name, provider in (("v1", "v2", f"{first}-b"), ("v2", "v3", first)):
            async with running_part(ground.client, namespace=ground.namespace):  # and a restart in between
                ground.provider = provider
                await ground.provide()
                await member(ground, traffic, name, 0)
                await until_share(ground, name, 0, holder=before)
                await ground.edit(name, gateway={"weight": 1})
                await until_refs(ground, before, (before, 1), (name, 1))
                await ground.edit(before, gateway={"weight": 0})
                await until_refs(ground, before, (name, 1))
                await traffic.accepted(before)
                await ground.annotate(before, finalizers=["testing.airunway.ai/provider"])
                await ground.delete(before)
                await until_refs(ground, name, (name, 1))
                await ground.until_gone(HTTP_ROUTE, before)
                await ground.annotate(before, finalizers=None)
                await traffic.accepted(name)
        await ground.eventually(lambda: answers[-1].server == "v3-0")
    await ground.client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", f"{first}-b"))
    assert {answer.server for answer in answers} == {"v1-0", "v2-0", "v3-0"}
