"""The fault proxy does what it says, and nothing to what it was not told to touch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import aiohttp
import orjson
import pytest
from core.tests.kube.objects import config_map
from tests.support.faultproxy import Action, Fault, FaultProxy

from airunway.kube import CONFIG_MAP, NAMESPACE, Client, ConnectionFailed, RequestTimedOut, ServerError, load_config
from airunway.resource import ObjectKey
from airunway_testing.eventually import Eventually

pytestmark = pytest.mark.apiserver


async def test_without_faults_it_is_not_there(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str
) -> None:
    key = ObjectKey(namespace, "a")
    created = await proxied.apply(CONFIG_MAP, config_map(namespace, "a", k="x" * 900_000), manager="m")
    assert created == await client.get(CONFIG_MAP, key) == await proxied.get(CONFIG_MAP, key)
    assert await proxied.list_all(CONFIG_MAP, namespace=namespace) == await client.list_all(
        CONFIG_MAP, namespace=namespace
    )
    await proxied.merge_patch(CONFIG_MAP, key, {"data": {"k": "y"}})
    await proxied.replace(CONFIG_MAP, (await client.get(CONFIG_MAP, key)) | {"data": {}})
    await proxied.delete(CONFIG_MAP, key)
    proxy.inject(Fault("status", status=503))
    with pytest.raises(ServerError):
        await proxied.get_path("/version")
    seen = [(r.verb, r.resource, r.namespace, r.name, r.code, r.fault) for r in proxy.requests]
    assert seen == [
        ("apply", "configmaps", namespace, "a", 201, ""),
        ("get", "configmaps", namespace, "a", 200, ""),
        ("list", "configmaps", namespace, "", 200, ""),
        ("patch", "configmaps", namespace, "a", 200, ""),
        ("update", "configmaps", namespace, "a", 200, ""),
        ("delete", "configmaps", namespace, "a", 200, ""),
        ("list", "", "", "", 503, "status"),
    ]
    assert proxy.requests[0].method == "PATCH"
    assert proxy.requests[0].query == {"fieldManager": "m", "fieldValidation": "Strict"}
    assert proxy.count() == 7
    assert proxy.count("list", "configmaps") == 1


async def test_rules_match_skip_and_wear_out(proxied: Client, proxy: FaultProxy, namespace: str) -> None:
    proxy.inject(
        Fault("status", verb="get", resource="namespaces", name=namespace, skip=1, count=2, status=500),
        Fault("status", where=lambda r: r.query.get("limit") == "7", status=503, count=None),
    )

    async def outcome(call: Awaitable[object]) -> int:
        try:
            await call
        except ServerError as error:
            return error.status
        return 200

    key = ObjectKey("", namespace)
    assert [await outcome(proxied.get(NAMESPACE, key)) for _ in range(4)] == [200, 500, 500, 200]
    assert await outcome(proxied.get(NAMESPACE, ObjectKey("", "default"))) == 200
    assert proxy.pending == []
    for _ in range(3):
        with pytest.raises(ServerError):
            async for _page in proxied.pages(NAMESPACE, limit=7):
                pass
    proxy.clear()
    assert await proxied.list_all(NAMESPACE)


async def test_a_lost_answer_is_a_write_that_happened(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str
) -> None:
    proxy.inject(Fault("lose-answer"), Fault("reset", verb="patch"))
    with pytest.raises(ConnectionFailed):
        await proxied.create(CONFIG_MAP, config_map(namespace, "a", k="1"))
    with pytest.raises(ConnectionFailed):
        await proxied.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"data": {"k": "2"}})
    live = await client.get(CONFIG_MAP, ObjectKey(namespace, "a"))
    assert live["data"] == {"k": "1"}, "the first arrived, the second did not"


async def test_hanging_and_slow_answers(proxied: Client, proxy: FaultProxy) -> None:
    proxy.inject(Fault("hang"), Fault("slow", seconds=0.1))
    with pytest.raises(RequestTimedOut):
        await proxied.get_path("/version")
    assert proxy.requests[-1].code == 0
    assert await proxied.get_path("/version")
    assert proxy.requests[-1].fault == "slow"


async def raw_watch(proxy: FaultProxy, namespace: str, version: str) -> tuple[bytes, str]:
    """All bytes of a watch of one second, and how it ended."""
    url = f"{proxy.url}/api/v1/namespaces/{namespace}/configmaps"
    params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "1"}
    got = b""
    async with aiohttp.ClientSession() as session, session.get(url, params=params) as response:
        try:
            async with asyncio.timeout(2):
                async for chunk in response.content.iter_any():
                    got += chunk
        except TimeoutError:
            return got, "silence"
        except aiohttp.ClientError:
            return got, "reset"
    return got, "end"


def names(data: bytes) -> list[str]:
    """What each line is: the name of the object, an error's code, or a part of a line."""
    seen = []
    for line in data.split(b"\n"):
        if not line:
            continue
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            seen.append("part")
            continue
        seen.append(str(event["object"]["code"]) if event["type"] == "ERROR" else event["object"]["metadata"]["name"])
    return seen


@pytest.mark.parametrize(
    ("action", "after", "expected", "ending"),
    [
        ("duplicate", 0, ["a", "a", "b", "c"], "end"),
        ("duplicate", 1, ["a", "b", "b", "c"], "end"),
        ("reorder", 0, ["b", "a", "c"], "end"),
        ("reorder", 1, ["a", "c", "b"], "end"),
        ("reorder", 2, ["a", "b", "c"], "end"),
        ("repeat-late", 0, ["a", "b", "a", "c"], "end"),
        ("repeat-late", 1, ["a", "b", "c", "b"], "end"),
        ("delay", 1, ["a", "b", "c"], "end"),
        ("error-event", 0, ["410"], "end"),
        ("error-event", 2, ["a", "b", "410"], "end"),
        ("close", 0, [], "end"),
        ("close", 2, ["a", "b"], "end"),
        ("cut", 1, ["a"], "reset"),
        ("truncate", 0, ["part"], "end"),
        ("truncate", 2, ["a", "b", "part"], "end"),
        ("freeze", 2, ["a", "b"], "silence"),
        ("cut", 99, ["a", "b", "c"], "end"),
    ],
)
async def test_streams(
    action: Action, after: int, expected: list[str], ending: str, client: Client, proxy: FaultProxy, namespace: str
) -> None:
    pages = [page async for page in client.pages(CONFIG_MAP, namespace=namespace)]
    for name in "abc":
        await client.create(CONFIG_MAP, config_map(namespace, name))
    proxy.inject(Fault(action, after_events=after, status=410, seconds=0.01))
    data, end = await raw_watch(proxy, namespace, pages[-1].resource_version)
    assert (names(data), end) == (expected, ending)


async def test_the_same_seed_brings_the_same_faults(kubeconfig: Path, namespace: str) -> None:
    async def faults(seed: int, order: list[str]) -> dict[str, list[str]]:
        async with FaultProxy(kubeconfig) as proxy:
            quick = (Fault("status", status=500), Fault("slow", seconds=0.0), Fault("garbage"), Fault("reset"))
            proxy.unleash(seed=seed, rate=0.5, faults=quick)
            async with aiohttp.ClientSession() as session:
                for name in order:
                    try:
                        async with session.post(f"{proxy.url}/api/v1/namespaces/{namespace}/pods/{name}") as response:
                            await response.read()
                    except aiohttp.ClientError:
                        continue
            seen: dict[str, list[str]] = {}
            for request in proxy.requests:
                seen.setdefault(request.name, []).append(request.fault)
            return seen

    order = [f"p{number % 8}" for number in range(80)]
    first = await faults(1, order)
    assert await faults(1, sorted(order)) == first, "whatever the order in which different requests come"
    assert await faults(2, order) != first
    assert {fault for struck in first.values() for fault in struck} == {"", "status", "slow", "garbage", "reset"}


async def test_cutting_all_connections(
    proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    async def watch() -> None:
        async for _ in proxied.watch(CONFIG_MAP, resource_version="", namespace=namespace):
            pass

    task = asyncio.create_task(watch())
    await eventually(lambda: proxy.count("watch") == 1 and proxy.requests[-1].code == 200)
    proxy.cut_all()
    await asyncio.wait({task})
    assert isinstance(task.exception(), ConnectionFailed)


async def test_a_server_that_is_away(tmp_path: Path) -> None:
    upstream = tmp_path / "upstream"
    upstream.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    async with FaultProxy(upstream) as proxy, Client(load_config(kubeconfig=proxy.kubeconfig)) as client:
        with pytest.raises(ConnectionFailed):
            await client.get_path("/version")
