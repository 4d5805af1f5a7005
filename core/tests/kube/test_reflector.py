"""What a reflector does when nothing is broken, and in the cases that no fault of the proxy stands for."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from airunway.kube import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    EVENT,
    Backoff,
    Client,
    ClusterConfig,
    Kind,
    NotFound,
    Reflector,
    load_config,
    strip_managed_fields,
    wait_until_synced,
)
from airunway.resource import ObjectKey, Resource, key_of, labels_of
from airunway_testing.faultproxy import Action, Fault, FaultProxy

Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


def config_map(namespace: str, name: str, *, labels: dict[str, str] | None = None, **data: str) -> Resource:
    metadata: Resource = {"namespace": namespace, "name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@asynccontextmanager
async def running(reflector: Reflector) -> AsyncIterator[Reflector]:
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        await asyncio.wait({task})


def quick() -> Backoff:
    return Backoff(base=0.02, cap=0.1)


@pytest.mark.apiserver
async def test_it_follows_a_selection(client: Client, namespace: str, eventually: Eventually) -> None:
    await client.create(CONFIG_MAP, config_map(namespace, "a", labels={"app": "x"}, k="1"))
    await client.create(CONFIG_MAP, config_map(namespace, "other"))
    seen: list[tuple[str, str | None, str | None]] = []

    def handler(key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        before, after = (None if obj is None else str(obj["data"]["k"]) for obj in (old, new))
        seen.append((key.name, before, after))

    reflector = Reflector(client, CONFIG_MAP, namespace=namespace, label_selector="app=x")
    reflector.add_handler(handler)
    async with running(reflector):
        await wait_until_synced([reflector], timeout=10)
        key = ObjectKey(namespace, "a")
        found = reflector.get(key)
        assert found is not None
        assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap"), "a typed list names the kind once only"
        assert (len(reflector), key in reflector, list(reflector), reflector.keys()) == (1, True, [key], [key])
        assert reflector.values() == [found]
        await client.merge_patch(CONFIG_MAP, key, {"data": {"k": "2"}})
        await eventually(lambda: len(seen) == 2)
        await client.merge_patch(CONFIG_MAP, key, {"metadata": {"labels": {"app": "y"}}})  # leaves the selection
        await eventually(lambda: len(seen) == 3)
        assert seen == [("a", None, "1"), ("a", "1", "2"), ("a", "2", None)]
        assert len(reflector) == 0


@pytest.mark.apiserver
async def test_indexes_and_late_handlers(client: Client, namespace: str, eventually: Eventually) -> None:
    reflector = Reflector(client, CONFIG_MAP, namespace=namespace)
    by_team = reflector.add_index(lambda obj: [team] if (team := labels_of(obj).get("team")) else [])
    async with running(reflector):
        await reflector.synced.wait()
        for name, team in (("a", "red"), ("b", "red"), ("c", "blue")):
            await client.create(CONFIG_MAP, config_map(namespace, name, labels={"team": team}))
        await eventually(lambda: len(reflector) == 3)
        assert {key_of(o).name for o in by_team.get("red")} == {"a", "b"}
        late: list[str] = []
        reflector.add_handler(lambda key, old, new: late.append(key.name))
        assert sorted(late) == ["a", "b", "c"], "a handler that comes late hears of what is there"
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"metadata": {"labels": {"team": "blue"}}})
        await client.delete(CONFIG_MAP, ObjectKey(namespace, "b"))
        await eventually(lambda: by_team.get("red") == [])
        assert by_team.keys() == ["blue"]
        assert {key_of(o).name for o in by_team.get("blue")} == {"a", "c"}
        assert all(o["metadata"]["labels"]["team"] == "blue" for o in by_team.get("blue"))


@pytest.mark.apiserver
async def test_a_failing_handler_or_projection_stops_nothing(
    client: Client, namespace: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    def project(obj: Resource) -> Resource:
        if obj["metadata"]["name"] == "bad":
            raise LookupError("no projection for bad")
        return obj

    def handler(key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        raise ArithmeticError(f"handler dislikes {key.name}")

    seen: list[str] = []
    reflector = Reflector(client, CONFIG_MAP, namespace=namespace, project=project)
    reflector.add_handler(handler)
    reflector.add_handler(lambda key, old, new: seen.append(key.name))
    with caplog.at_level(logging.ERROR):
        async with running(reflector):
            await reflector.synced.wait()
            await client.create(CONFIG_MAP, config_map(namespace, "bad"))
            await client.create(CONFIG_MAP, config_map(namespace, "good"))
            await eventually(lambda: seen == ["bad", "good"])
    assert {ObjectKey(namespace, "bad"), ObjectKey(namespace, "good")} == set(reflector)
    logged = [(record.getMessage(), record.exc_info) for record in caplog.records]
    assert all(info is not None for _, info in logged), "each with its traceback"
    assert sum("a handler failed" in text for text, _ in logged) == 2
    assert sum("projecting" in text for text, _ in logged) == 1


@pytest.mark.apiserver
async def test_objects_of_no_interest_are_not_kept(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    def project(obj: Resource) -> Resource | None:
        return obj if labels_of(obj).get("mine") == "yes" else None

    for name, mine in (("a", "yes"), ("b", "no")):
        await client.create(CONFIG_MAP, config_map(namespace, name, labels={"mine": mine}))
    seen: list[tuple[str, bool]] = []
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, project=project, backoff=quick())
    reflector.add_handler(lambda key, old, new: seen.append((key.name, new is not None)))
    async with running(reflector):
        await reflector.synced.wait()
        assert seen == [("a", True)]
        # An event from when it was still of interest comes after the one that says it no longer is.
        outage = True
        proxy.inject(Fault("status", status=503, count=None, where=lambda _: outage), Fault("reorder", verb="watch"))
        proxy.cut_all()
        await eventually(lambda: proxy.count("watch") > 1)
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"data": {"k": "2"}})
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"metadata": {"labels": {"mine": "no"}}})
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "b"), {"metadata": {"labels": {"mine": "yes"}}})
        outage = False
        await eventually(lambda: ObjectKey(namespace, "b") in reflector)
        assert seen == [("a", True), ("a", False), ("b", True)]
        assert reflector.keys() == [ObjectKey(namespace, "b")]


@pytest.mark.apiserver
async def test_objects_larger_than_any_buffer(client: Client, namespace: str, eventually: Eventually) -> None:
    reflector = Reflector(client, CONFIG_MAP, namespace=namespace)
    async with running(reflector):
        await reflector.synced.wait()
        text = "x" * 1_000_000
        for name in ("a", "b"):
            await client.create(CONFIG_MAP, config_map(namespace, name, k=text))
        await eventually(lambda: len(reflector) == 2)
        assert reflector.restarts == 0
        assert all(obj["data"]["k"] == text for obj in reflector.values())


@pytest.mark.apiserver
async def test_a_crd_that_comes_goes_and_comes_back(
    client: Client, namespace: str, eventually: Eventually, install: Callable[[Client, Kind], Awaitable[None]]
) -> None:
    kind = Kind("coming.tests.airunway.ai", "v1", "Guest", "guests")
    crd_key = ObjectKey("", f"{kind.plural}.{kind.group}")
    gone: list[str] = []
    reflector = Reflector(client, kind, namespace=namespace, backoff=quick())
    reflector.add_handler(lambda key, old, new: gone.append(key.name) if new is None else None)
    async with running(reflector):
        await eventually(lambda: reflector.missing)
        assert not reflector.synced.is_set()
        await install(client, kind)
        await eventually(reflector.synced.is_set)
        assert not reflector.missing
        guest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"namespace": namespace, "name": "g"}}
        await client.create(kind, guest)
        await eventually(lambda: len(reflector) == 1)

        await client.delete(CUSTOM_RESOURCE_DEFINITION, crd_key)
        await eventually(lambda: reflector.missing)
        for _ in range(500):
            try:
                await client.get(CUSTOM_RESOURCE_DEFINITION, crd_key)
            except NotFound:
                break
            await asyncio.sleep(0.02)
        await install(client, kind)
        await eventually(lambda: not reflector.missing)
        await eventually(lambda: gone == ["g"])
        assert len(reflector) == 0
        await client.create(kind, guest)
        await eventually(lambda: len(reflector) == 1)
    await client.delete(CUSTOM_RESOURCE_DEFINITION, crd_key)


@pytest.mark.apiserver
async def test_retry_now_ends_the_wait(
    proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    proxy.inject(Fault("status", status=404, verb="list"))
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=Backoff(base=3600, cap=3600))
    async with running(reflector):
        await eventually(lambda: reflector.missing)
        reflector.retry_now()
        await eventually(reflector.synced.is_set)


@pytest.mark.apiserver
@pytest.mark.parametrize("action", ["reorder", "repeat-late"])
async def test_a_late_event_does_not_bring_a_deleted_object_back(
    action: Action, client: Client, proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    await client.create(CONFIG_MAP, config_map(namespace, "a", k="1"))
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=quick())
    async with running(reflector):
        await reflector.synced.wait()
        outage = True
        proxy.inject(Fault("status", status=503, count=None, where=lambda _: outage))
        proxy.inject(Fault(action, verb="watch"))
        proxy.cut_all()
        await eventually(lambda: proxy.count("watch") > 1)
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"data": {"k": "2"}})
        await client.delete(CONFIG_MAP, ObjectKey(namespace, "a"))
        outage = False
        await client.create(CONFIG_MAP, config_map(namespace, "last"))
        await eventually(lambda: ObjectKey(namespace, "last") in reflector)
        assert ObjectKey(namespace, "a") not in reflector
        # A new object of that name is no ghost.
        await client.create(CONFIG_MAP, config_map(namespace, "a", k="3"))
        await eventually(lambda: ObjectKey(namespace, "a") in reflector)


@pytest.mark.apiserver
@pytest.mark.parametrize("action", ["duplicate", "reorder", "repeat-late"])
async def test_a_late_event_does_not_bring_an_old_state_back(
    action: Action, client: Client, proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    await client.create(CONFIG_MAP, config_map(namespace, "a", k="1"))
    seen: list[str] = []
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=quick())
    reflector.add_handler(lambda key, old, new: seen.append(new["data"]["k"]) if new else None)
    async with running(reflector):
        await reflector.synced.wait()
        outage = True
        proxy.inject(Fault("status", status=503, count=None, where=lambda _: outage), Fault(action, verb="watch"))
        proxy.cut_all()
        await eventually(lambda: proxy.count("watch") > 1)
        for value in "23":
            await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"data": {"k": value}})
        outage = False
        await client.create(CONFIG_MAP, config_map(namespace, "last", k="last"))
        await eventually(lambda: ObjectKey(namespace, "last") in reflector)
        assert reflector.values()[0]["data"]["k"] == "3"
        assert seen == ["1", "3", "last"] if action == "reorder" else ["1", "2", "3", "last"]


@pytest.mark.apiserver
async def test_retry_after_is_a_lower_bound(
    proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    proxy.inject(Fault("status", status=429, retry_after=3600, verb="list"))
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=quick())
    async with running(reflector):
        await eventually(lambda: reflector.restarts == 1)
        await asyncio.sleep(0.5)  # five times what the backoff alone would wait
        assert proxy.count("list") == 1
        reflector.retry_now()
        await eventually(reflector.synced.is_set)


def test_strip_managed_fields_keeps_only_what_was_asked_for() -> None:
    entry = {"manager": "me", "operation": "Apply", "fieldsV1": {}}
    obj = {
        "metadata": {
            "name": "a",
            "managedFields": [entry, {"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        }
    }
    assert strip_managed_fields(keep="me")(obj) == {"metadata": {"name": "a", "managedFields": [entry]}}
    assert strip_managed_fields()(obj) == {"metadata": {"name": "a"}}
    assert strip_managed_fields(keep="me")({"metadata": None}) == {"metadata": None}


@asynccontextmanager
async def scripted_server(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[Client]:
    """A server that says what no healthy API server says; for what the real one cannot be made to do."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with Client(ClusterConfig(server=f"http://{host}:{port}"), timeout=2, watch_inactivity=2) as client:
            yield client
    finally:
        await runner.cleanup()


def line(type_: str, name: str, version: str) -> bytes:
    obj = {"metadata": {"name": name, "namespace": "n", "resourceVersion": version}}
    return orjson.dumps({"type": type_, "object": obj}) + b"\n"


async def test_a_restored_server_is_listed_again(eventually: Eventually) -> None:
    """After a restore from backup the server's versions start lower: watching on would wait for the past to pass."""
    lists = 0

    async def serve(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            version = "1000" if lists == 1 else "500"
            # One object of another life has the very version that we know.
            names = {"a": version, "b": "400"}
            items = [
                {"metadata": {"name": name, "namespace": "n", "resourceVersion": number, "uid": f"{lists}"}}
                for name, number in names.items()
            ]
            return web.json_response({"metadata": {"resourceVersion": version}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("BOOKMARK", "", "501"))
        await asyncio.Event().wait()
        return response

    async with scripted_server(serve) as client:
        reflector = Reflector(client, CONFIG_MAP, backoff=quick())
        async with running(reflector):
            await eventually(lambda: lists == 2)
            await eventually(lambda: {obj["metadata"]["uid"] for obj in reflector.values()} == {"2"})
            assert [obj["metadata"]["resourceVersion"] for obj in reflector.values()] == ["500", "400"]


async def test_s1_a_restored_server_reuses_versions_for_other_content(eventually: Eventually) -> None:
    lists = 0

    async def serve(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            metadata = {"name": "a", "namespace": "n", "resourceVersion": "450", "uid": "same"}
            item = {"metadata": metadata, "data": {"life": str(lists)}}
            return web.json_response(
                {"metadata": {"resourceVersion": "1000" if lists == 1 else "500"}, "items": [item]}
            )
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("BOOKMARK", "", "501"))
        await asyncio.Event().wait()
        return response

    async with scripted_server(serve) as client:
        told: list[str] = []
        reflector = Reflector(client, CONFIG_MAP, backoff=quick())
        reflector.add_handler(lambda _key, _old, new: told.append("" if new is None else new["data"]["life"]))
        async with running(reflector):
            await eventually(lambda: lists == 2)
            await eventually(lambda: [obj["data"] for obj in reflector.values()] == [{"life": "2"}])
        assert told == ["1", "2"]


async def test_objects_without_a_name_and_versions_that_are_no_numbers(eventually: Eventually) -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = [{"metadata": {}}, {"metadata": {"name": "a", "namespace": "n", "resourceVersion": "x1"}}]
            return web.json_response({"metadata": {"resourceVersion": "x1"}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'\n{"type": "ADDED", "object": {"metadata": {"resourceVersion": "x2"}}}\n')
        await response.write(line("MODIFIED", "a", "w9") + line("ADDED", "b", "9") + line("DELETED", "b", "x"))
        await response.write(line("DELETED", "never-seen", "7") + line("ADDED", "c", "8"))
        await asyncio.Event().wait()
        return response

    async with scripted_server(serve) as client:
        reflector = Reflector(client, CONFIG_MAP, backoff=quick())
        async with running(reflector):
            await eventually(lambda: ObjectKey("n", "c") in reflector)
            found = reflector.get(ObjectKey("n", "a"))
            assert found is not None
            assert found["metadata"]["resourceVersion"] == "w9", (
                "what cannot be compared is taken in the order it comes"
            )
            assert set(reflector) == {ObjectKey("n", "a"), ObjectKey("n", "c")}


async def test_a_server_that_closes_every_stream_is_not_hammered() -> None:
    """Streams that bring one event and close reset the backoff each time; there is a wait between them all the same."""
    opened: list[float] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        opened.append(asyncio.get_running_loop().time())
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", "a", str(len(opened) + 1)))
        return response

    async with scripted_server(serve) as client:
        reflector = Reflector(client, CONFIG_MAP, backoff=Backoff(base=0.05, cap=1))
        async with running(reflector):
            for _ in range(1000):
                if len(opened) >= 5:
                    break
                await asyncio.sleep(0.01)
    gaps = [after - before for before, after in itertools.pairwise(opened)]
    assert len(gaps) >= 4
    assert min(gaps) >= 0.05, "the shortest backoff, by the loop's own clock"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"items": {}}',
        b'{"items": [1], "metadata": {}}',
        b'{"items": [], "metadata": 7}',
        b"\xff",
        b"",
        b'{"items": [{"metadata": 3}], "metadata": {"resourceVersion": 5}}',
    ],
)
async def test_any_answer_to_a_list_is_survived(body: bytes, eventually: Eventually) -> None:
    lists = 0

    async def serve(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" in request.query:
            return web.Response(status=410)
        lists += 1
        if lists <= 3:
            return web.Response(body=body, content_type="application/json")
        item = {"metadata": {"name": "a", "namespace": "n", "resourceVersion": "1"}}
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [item]})

    async with scripted_server(serve) as client:
        reflector = Reflector(client, CONFIG_MAP, backoff=quick())
        async with running(reflector):
            await eventually(lambda: ObjectKey("n", "a") in reflector)


@pytest.mark.apiserver
async def test_a_quiet_watch_of_events_is_no_dead_one(kubeconfig: Path, namespace: str) -> None:
    """Of events the API server has no cache, and sends no bookmarks: nothing comes for as long as nothing happens."""
    async with FaultProxy(kubeconfig) as proxy:
        config = load_config(kubeconfig=proxy.kubeconfig)
        async with Client(config, user_agent="airunway-tests", watch_inactivity=1.5) as client:
            async with running(Reflector(client, EVENT, namespace=namespace)) as events:
                async with asyncio.timeout(60):
                    while sum(1 for request in proxy.requests if request.verb == "watch") < 3:
                        await asyncio.sleep(0.05)
            assert events.restarts == 0
