"""Faults, kills and restarts of the part, and how many requests it makes."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from core.tests.gateway.ground import ASKED, Ground, running_part
from tests.support.faultproxy import FaultProxy, ProxiedRequest

from airunway.gateway.caches import HTTP_ROUTE, INFERENCE_POOL, PICKER_KINDS
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, Client, Conflict, NotFound, load_config
from airunway.resource import ObjectKey, condition_of, dig
from airunway_testing.gatewayapi.binding import Fault
from airunway_testing.gatewayapi.kinds import GATEWAY

pytestmark = pytest.mark.apiserver

OBJECTS = (HTTP_ROUTE, INFERENCE_POOL, *PICKER_KINDS)
_WRITES = ("create", "update", "patch", "apply", "delete")


@asynccontextmanager
async def proxied(kubeconfig: Path) -> AsyncIterator[tuple[FaultProxy, Client]]:
    """A proxy through which only the part speaks to the API server."""
    async with FaultProxy(kubeconfig) as proxy, Client(load_config(kubeconfig=proxy.kubeconfig)) as client:
        yield proxy, client


def writes(requests: list[ProxiedRequest]) -> list[ProxiedRequest]:
    return [each for each in requests if each.verb in _WRITES and each.resource != "events"]


async def pooled(ground: Ground) -> None:
    await ground.provide(endpointPicker={})
    await ground.picker_role()
    await ground.open_gateway()
    await ground.config(
        labelPropagation={"enabled": True, "match": ["team"]}, routing={"pathTemplate": "/{.metadata.name}/a"}
    )


def selector(name: str) -> str:
    return f"airunway.ai/model-deployment={name},airunway.ai/component=server"


@asynccontextmanager
async def running_pickers(ground: Ground) -> AsyncIterator[None]:
    """Every picker becomes ready, in each of its generations, as where the Deployments' controller runs."""

    async def play() -> None:
        while True:
            for live in await ground.client.list_all(DEPLOYMENT, namespace=ground.namespace):
                seen = dig(live, "status", "observedGeneration")
                if seen != live["metadata"]["generation"]:
                    with suppress(NotFound, Conflict):
                        await ground.picker_runs(live["metadata"]["name"].removesuffix("-epp"))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(play())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def life(ground: Ground, name: str) -> None:
    """Routed by pool, path moved, suspended, resumed, label edited."""
    await ground.service(name)
    await ground.deploy(name, gateway=ASKED, model=f"org/{name}", labels={"team": "a"}, selector=selector(name))
    await ground.until("RouteAccepted", name)
    await ground.edit(name, gateway={"pathTemplate": "/{.metadata.name}/b"})
    await ground.until_paths(f"/{name}/b", "/", name=name)
    await ground.edit(name, suspend=True)
    await ground.until("Suspended", name)
    await ground.until_gone(DEPLOYMENT, f"{name}-epp")
    await ground.edit(name, suspend=False)
    await ground.annotate(name, labels={"team": "b"})
    await ground.until("RouteAccepted", name)


async def labelled(ground: Ground, name: str) -> bool:
    """Whether the last edit of a `life` has reached route and picker."""
    found = [await ground.route(name), await ground.client.find(DEPLOYMENT, _key(ground, f"{name}-epp"))]
    return all(dig(obj, "metadata", "labels", "team") == "b" for obj in found)


async def end_state(ground: Ground, name: str) -> dict[str, Any]:
    """All that is there of a deployment in the end, without what differs by time and name."""
    live = await ground.get(name)
    uid = live["metadata"]["uid"]
    found: dict[str, Any] = {}
    for kind in OBJECTS:
        for obj in await ground.client.list_all(kind, namespace=ground.namespace):
            owners = dig(obj, "metadata", "ownerReferences", default=[])
            if any(owner["uid"] == uid for owner in owners):
                metadata = {key: obj["metadata"].get(key) for key in ("name", "labels", "annotations")}
                kept = {key: obj[key] for key in ("spec", "data", "roleRef", "subjects") if key in obj}
                found[kind.plural] = _without({**kept, "metadata": metadata, "owners": owners})
    condition = {**(condition_of(live, "GatewayReady") or {})}
    for key in ("lastTransitionTime", "observedGeneration"):
        condition.pop(key, None)
    found["status"] = {"gateway": live["status"]["gateway"], "condition": condition, "phase": live["status"]["phase"]}
    text = orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode()
    answer: dict[str, Any] = orjson.loads(text.replace(uid, "UID").replace(name, "NAME"))
    return answer


def _without(obj: Any) -> Any:
    """Without the addresses that the API server assigns to Services, and without hashes over names."""
    assigned = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "sessionAffinity")
    if isinstance(obj, dict):
        return {key: _without(value) for key, value in obj.items() if key not in assigned and not key.endswith("hash")}
    return [_without(each) for each in obj] if isinstance(obj, list) else obj


async def settled(ground: Ground, name: str, expected: dict[str, Any]) -> None:
    async def same() -> bool:
        return await end_state(ground, name) == expected

    try:
        await ground.eventually(same)
    except AssertionError:
        assert await end_state(ground, name) == expected


@pytest.mark.slow
async def test_x1_faults_of_the_api_server_change_nothing_in_the_end(ground: Ground, kubeconfig: Path) -> None:
    await pooled(ground)
    async with running_pickers(ground), running_part(ground.client, namespace=ground.namespace):
        await life(ground, "calm-one")
        await ground.eventually(lambda: labelled(ground, "calm-one"))
        await ground.until("RouteAccepted", "calm-one")
        expected = await end_state(ground, "calm-one")
    async with proxied(kubeconfig) as (proxy, client):
        proxy.unleash(seed=1, rate=0.2)
        async with running_pickers(ground), running_part(client, namespace=ground.namespace):
            await life(ground, "faulty-1")
            await settled(ground, "faulty-1", expected)
        assert any(each.fault for each in proxy.requests)


@pytest.mark.slow
async def test_x2_killed_after_every_write_it_ends_the_same(ground: Ground, kubeconfig: Path) -> None:
    await pooled(ground)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.service("calm-one")
        await _made(ground, "calm-one")
        await ground.picker_runs("calm-one")
        await ground.until("RouteAccepted", "calm-one")
        expected = await end_state(ground, "calm-one")
    total = 0
    for number in range(1, 8):
        name = f"killed-{number}"
        await ground.service(name)
        async with proxied(kubeconfig) as (proxy, client), running_part(client, namespace=ground.namespace):
            await _made(ground, name)
            # With a picker that is not ready yet, nothing is left to be done once that is reported.
            while len(done := [each for each in writes(proxy.requests) if each.code]) < number:
                if await ground.condition(name):
                    break
            total = max(total, len(done))
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.picker_runs(name)
            await ground.until("RouteAccepted", name)
            await settled(ground, name, expected)
    assert total >= 7  # pool, five objects of the picker, route


def _key(ground: Ground, name: str) -> ObjectKey:
    return ObjectKey(ground.namespace, name)


async def _made(ground: Ground, name: str) -> None:
    await ground.deploy(name, gateway=ASKED, model=f"org/{name}", labels={"team": "a"}, selector=selector(name))


async def _many(ground: Ground, number: int) -> list[str]:
    named = [f"d{index:04}" for index in range(number)]
    room = asyncio.Semaphore(16)

    async def one(name: str) -> None:
        async with room:
            await ground.service(name)
            await ground.deploy(name, gateway=ASKED, model=f"org/{name}")

    await asyncio.gather(*map(one, named))
    for name in named:
        await ground.until("RouteAccepted", name)
    return named


@pytest.mark.parametrize("number", [20, pytest.param(1000, marks=pytest.mark.soak)])
async def test_x4_a_restart_writes_nothing_and_costs_no_request_for_each_route(
    ground: Ground, kubeconfig: Path, number: int
) -> None:
    await ground.open_gateway()
    await ground.until_programmed()
    async with proxied(kubeconfig) as (proxy, client):
        async with running_part(client, namespace=ground.namespace, clock=_no_time_passes()) as part:
            named = await _many(ground, number)
            await ground.eventually(lambda: part.at_rest)
        # The budget of a route on a Service: the route and the status. What is late for seconds adds a status.
        written = Counter((each.name, each.resource) for each in writes(proxy.requests))
        assert {name: count for name in named if (count := written[name, "httproutes"]) != 1} == {}
        assert {name: count for name in named if (count := written[name, "modeldeployments"]) != 1} == {}
    before = await ground.versions(HTTP_ROUTE, MODEL_DEPLOYMENT)
    async with proxied(kubeconfig) as (proxy, client):
        async with running_part(client, namespace=ground.namespace) as part:
            await ground.eventually(lambda: part.at_rest)
            assert len(part.passes) == number
        assert writes(proxy.requests) == []
        assert len(proxy.requests) < 60
    assert await ground.versions(HTTP_ROUTE, MODEL_DEPLOYMENT) == before


async def test_a_route_with_pool_and_picker_takes_nine_writes(ground: Ground, kubeconfig: Path) -> None:
    await pooled(ground)
    await ground.until_programmed()
    await ground.service("llama")
    async with proxied(kubeconfig) as (proxy, client):
        async with running_part(client, namespace=ground.namespace, clock=_no_time_passes()) as part:
            await _made(ground, "llama")
            await ground.picker_runs()
            await ground.until("RouteAccepted")
            await ground.eventually(lambda: part.at_rest)
        found = [(each.verb, each.resource, each.subresource) for each in writes(proxy.requests)]
        # Five objects of the picker, pool and route; the status while the picker is not ready, and once it is.
        assert len(found) <= 9, found


async def test_a_status_is_about_the_route_that_its_own_pass_has_written(ground: Ground, kubeconfig: Path) -> None:
    """Without a second status that only corrects the first: a Gateway may need long for its answer."""
    await ground.open_gateway()
    await ground.until_programmed()
    await ground.service()
    start, calls = datetime.now(UTC), itertools.count()
    async with (
        proxied(kubeconfig) as (proxy, client),
        running_part(client, namespace=ground.namespace, clock=lambda: start + timedelta(seconds=3 * next(calls))),
    ):

        def statuses() -> int:
            return sum(each.resource == "modeldeployments" for each in writes(proxy.requests))

        async def said(text: str) -> None:
            async def look() -> bool:
                return text in await ground.message()

            await ground.eventually(look)

        await ground.fault(GATEWAY, "inference", Fault.SILENT)
        await ground.deploy(gateway=ASKED, endpoint={})
        await ground.annotate(annotations={"another": "pass"})
        await ground.until_not("")
        before = statuses()
        await ground.serve()
        await said("has not answered about the route yet")
        assert statuses() == before + 1

        await ground.fault(GATEWAY, "inference", Fault.NONE)
        await ground.until("RouteAccepted")
        await ground.fault(GATEWAY, "inference", Fault.SILENT)
        before = statuses()
        await ground.config(routing={"pathTemplate": "/{.metadata.name}/b"})
        await said("has not answered about generation 2 of the route yet")
        assert statuses() == before + 1


def _no_time_passes() -> Callable[[], datetime]:
    """A clock that stands: what is late on a slow machine is not late for the part."""
    now = datetime.now(UTC)
    return lambda: now


async def test_x6_three_writers_of_one_status_lose_nothing(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace) as part:
        made = await ground.deploy(gateway=ASKED)

        async def core() -> None:
            for _ in range(20):
                await ground.validate(await ground.get())

        async def provider() -> None:
            for port in range(8000, 8020):
                await ground.serve(endpoint={"service": "llama", "port": 8000, "targetPort": port})

        async def user() -> None:
            for number in range(10):
                await ground.edit(gateway={"pathTemplate": f"/p{number}"})

        await asyncio.gather(core(), provider(), user())
        await ground.validate(await ground.get())
        await ground.until_paths("/p9", "/")
        await ground.until("RouteAccepted")
        await ground.eventually(lambda: part.at_rest)
    live = await ground.get()
    assert live["metadata"]["uid"] == made["metadata"]["uid"]
    assert dig(live, "status", "endpoint", "targetPort") == 8019
    assert dig(live, "status", "gateway", "path") == "/p9"
    assert {each["type"] for each in live["status"]["conditions"]} >= {"Validated", "GatewayReady"}
    assert dig(live, "status", "engine", "type") == "vllm"


async def test_x7_no_secret_of_a_config_is_shown(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    canary = "hf_canary0123456789"
    await pooled(ground)
    await ground.config(env=[{"name": "TOKEN", "value": canary}])
    await ground.service("llama")
    async with running_part(ground.client, namespace=ground.namespace):
        await _made(ground, "llama")
        await ground.picker_runs()
        await ground.until("RouteAccepted")
    shown = [await ground.get(), *(await ground.client.list_all(HTTP_ROUTE, namespace=ground.namespace))]
    for kind in OBJECTS:
        shown += await ground.client.list_all(kind, namespace=ground.namespace)
    for reason in ("ResourceCreated", "ResourceUpdated"):
        assert canary not in str(await ground.events(reason))
    assert canary not in str(shown)
    assert canary not in caplog.text
