"""The reflector and what no healthy API server says: versions of another history, streams that close, any JSON."""

from __future__ import annotations

import asyncio
import itertools

import orjson
import pytest
from aiohttp import web
from core.tests.kube.reflectors import quick
from core.tests.kube.running import running
from core.tests.kube.servers import scripted_server

from airunway.kube import CONFIG_MAP, Backoff, Reflector
from airunway.resource import ObjectKey
from airunway_testing.eventually import Eventually


def line(type_: str, name: str, version: str) -> bytes:
    obj = {"metadata": {"name": name, "namespace": "n", "resourceVersion": version}}
    return orjson.dumps({"type": type_, "object": obj}) + b"\n"


async def open_watch(request: web.Request, *chunks: bytes) -> web.StreamResponse:
    """A watch that brings these and stays open."""
    response = web.StreamResponse()
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
    await asyncio.Event().wait()
    return response


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
        return await open_watch(request, line("BOOKMARK", "", "501"))

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
        return await open_watch(request, line("BOOKMARK", "", "501"))

    async with scripted_server(serve) as client:
        told: list[str] = []
        reflector = Reflector(client, CONFIG_MAP, backoff=quick())
        reflector.add_handler(lambda _key, _old, new: told.append("" if new is None else new["data"]["life"]))
        async with running(reflector):
            await eventually(lambda: lists == 2)
            await eventually(lambda: [obj["data"] for obj in reflector.values()] == [{"life": "2"}])
        assert told == ["1", "2"]


async def test_a_missing_kind_stays_missing_while_the_server_has_a_fault(eventually: Eventually) -> None:
    """Of a 503 or 429 nothing follows about the kind; a list that succeeds, or is forbidden, says more than the 404."""
    statuses = iter([404, 503, 429, 404, 403, 404, 500])
    seen: list[tuple[int, bool]] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        status = next(statuses, 200)
        seen.append((status, reflector.missing))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []}, status=status)

    async with scripted_server(serve) as client:
        reflector = Reflector(client, CONFIG_MAP, backoff=quick())
        async with running(reflector):
            await eventually(reflector.synced.is_set)
            assert not reflector.missing
    before = [(404, False), (503, True), (429, True), (404, True), (403, True), (404, False), (500, True), (200, True)]
    assert seen[:8] == before


async def test_objects_without_a_name_and_versions_that_are_no_numbers(eventually: Eventually) -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = [{"metadata": {}}, {"metadata": {"name": "a", "namespace": "n", "resourceVersion": "x1"}}]
            return web.json_response({"metadata": {"resourceVersion": "x1"}, "items": items})
        return await open_watch(
            request,
            b'\n{"type": "ADDED", "object": {"metadata": {"resourceVersion": "x2"}}}\n',
            line("MODIFIED", "a", "w9") + line("ADDED", "b", "9") + line("DELETED", "b", "x"),
            line("DELETED", "never-seen", "7") + line("ADDED", "c", "8"),
        )

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
