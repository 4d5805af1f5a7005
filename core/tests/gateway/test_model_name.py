"""The model name that only the container knows (platform-cases.md, row R27)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from core.tests.gateway.ground import ASKED, Ground, Part, running_part

from airunway.gateway.application import ask, reads_of_status
from airunway.resource import ObjectKey, dig

CUSTOM = {"source": "custom"}


@dataclass
class Server:
    """A model server that answers `/v1/models` as a test says."""

    status: int = 200
    body: bytes = b'{"data": [{"id": "org/found"}]}'
    hangs: bool = False
    asked: int = 0
    url: str = ""
    _end: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, _request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.hangs:
            await self._end.wait()
        return web.Response(status=self.status, body=self.body)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    app = web.Application()
    app.router.add_get("/v1/models", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        server._end.set()
        await runner.cleanup()


def endpoint(server: Server) -> dict[str, object]:
    return {"service": "llama", "port": 8000, "targetPort": 8000, "url": server.url}


async def named(ground: Ground, name: str = "llama") -> str:
    """The model name in the status."""
    return str(dig(await ground.get(name), "status", "gateway", "modelName", default=""))


async def is_named(ground: Ground, model_name: str, name: str = "llama") -> bool:
    return await named(ground, name) == model_name


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Server(status=500), "answered 500"),
        (Server(status=302), "answered 302"),
        (Server(body=b"x" * 5 * 2**20), "more than 1 MiB"),
        (Server(body=b"<html>"), "did not answer with JSON"),
        (Server(body=b'{"data": []}'), "named no model"),
        (Server(body=b'{"data": [{"id": "a\\nb"}]}'), "named no model"),
        (Server(body=b"\xff\xfe[["), "did not answer with JSON"),
        (Server(hangs=True), "did not answer within 5 s"),
    ],
    ids=["500", "redirect", "5 MiB", "html", "empty", "control", "garbage", "slow"],
)
async def test_r27_what_a_model_server_answers_is_bounded(server: Server, words: str) -> None:
    async with serving(server), aiohttp.ClientSession() as session:
        found = await ask(session, server.url)
        assert (found.name, words in found.problem) == ("", True), found


async def test_r27_a_server_that_is_not_there_is_a_problem_and_no_error() -> None:
    async with aiohttp.ClientSession() as session:
        for url in ("http://127.0.0.1:1", "http://no.such.host.invalid", "not a url", "http://[::1", ""):
            assert (await ask(session, url)).problem, url


@pytest.mark.parametrize("field", ["hash", "asked"])
def test_an_edited_template_brings_a_pass_because_it_may_give_another_name(field: str) -> None:
    used = {"hash": "a", "asked": "b"}
    before, after = ({"status": {"effectiveTemplate": each}, "metadata": {}} for each in (used, {**used, field: "c"}))
    assert reads_of_status(before) != reads_of_status(after)


@pytest.mark.apiserver
async def test_r27_the_model_server_is_asked_once_per_generation_also_across_a_restart(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with serving(Server()) as server:
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1", endpoint=endpoint(server))
            assert await ground.eventually(lambda: named(ground)) == "org/found"
            await ground.until("RouteAccepted")
            assert server.asked == 1
            await ground.annotate(labels={"a": "b"})
        async with running_part(ground.client, namespace=ground.namespace) as part:
            await ground.eventually(lambda: part.at_rest)
            assert server.asked == 1
            server.body = b'{"data": [{"id": "org/other"}]}'
            await ground.edit(image="me/mine:2")
            await ground.eventually(lambda: is_named(ground, "org/other"))
            assert server.asked == 2


async def passed(ground: Ground, part: Part, *, since: int) -> None:
    """Wait for a pass after this many, and for the part's rest."""
    key = ObjectKey(ground.namespace, "llama")
    await ground.eventually(lambda: part.passes[key] > since and part.at_rest)


@pytest.mark.apiserver
@pytest.mark.parametrize("restarted", [False, True], ids=["the same process", "another process"])
async def test_r27_a_pass_between_an_edit_and_its_validation_does_not_count_as_asked(
    ground: Ground, *, restarted: bool
) -> None:
    await ground.open_gateway()
    await ground.service()
    async with serving(Server()) as server:
        async with running_part(ground.client, namespace=ground.namespace) as part:
            await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1", endpoint=endpoint(server))
            await ground.eventually(lambda: is_named(ground, "org/found"))
            await ground.until("RouteAccepted")
            server.body = b'{"data": [{"id": "org/other"}]}'
            if not restarted:
                await ground.eventually(lambda: part.at_rest)
                before = part.passes[ObjectKey(ground.namespace, "llama")]
                changed = await ground.change(image="me/mine:2")
                await passed(ground, part, since=before)
                await ground.validate(changed)
                await ground.eventually(lambda: is_named(ground, "org/other"))
        if restarted:
            changed = await ground.change(image="me/mine:2")
            async with running_part(ground.client, namespace=ground.namespace) as part:
                await passed(ground, part, since=0)
                await ground.validate(changed)
                await ground.eventually(lambda: is_named(ground, "org/other"))
        assert server.asked == 2


@pytest.mark.apiserver
async def test_r27_the_pods_of_an_earlier_generation_are_not_asked_for_the_name_of_a_newer_one(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with serving(Server()) as server, running_part(ground.client, namespace=ground.namespace) as part:
        await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1", endpoint=endpoint(server))
        await ground.serve(endpoint=endpoint(server), generation=1)
        await ground.eventually(lambda: is_named(ground, "org/found"))
        await ground.until("RouteAccepted")
        await ground.eventually(lambda: part.at_rest)
        before = part.passes[ObjectKey(ground.namespace, "llama")]
        await ground.edit(image="me/mine:2")
        await passed(ground, part, since=before)
        assert server.asked == 1
        server.body = b'{"data": [{"id": "org/other"}]}'  # the new pod
        await ground.serve(endpoint=endpoint(server), generation=2)
        await ground.eventually(lambda: is_named(ground, "org/other"))
        assert server.asked == 2


@pytest.mark.apiserver
async def test_r27_without_an_answer_the_id_of_the_model_counts_else_the_name_is_unknown(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service("llama")
    async with serving(Server(status=500)) as server, running_part(ground.client, namespace=ground.namespace):
        custom = {**CUSTOM, "id": "org/stated"}
        await ground.deploy("stated", gateway=ASKED, model=custom, image="me/mine:1", endpoint=endpoint(server))
        await ground.eventually(lambda: is_named(ground, "org/stated", "stated"))
        await ground.until("RouteAccepted", "stated")
        await ground.deploy("unknown", gateway=ASKED, model=CUSTOM, image="me/mine:1", endpoint=endpoint(server))
        await ground.until("ModelNameUnknown", "unknown")
        assert "answered 500" in await ground.message("unknown")
        assert len(await ground.paths("unknown")) == 1
        assert server.asked == 2


@pytest.mark.apiserver
async def test_an_answer_for_a_deployment_that_is_gone_is_not_taken_for_the_next_of_its_name(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with serving(Server(hangs=True)) as slow, serving(Server(body=b'{"data": [{"id": "org/new"}]}')) as fast:
        slow.body = b'{"data": [{"id": "org/old"}]}'
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1", endpoint=endpoint(slow))
            await ground.eventually(lambda: slow.asked == 1)
            await ground.delete()
            await ground.deploy(
                gateway={**ASKED, "pathTemplate": "/new"}, model=CUSTOM, image="me/mine:2", endpoint=endpoint(fast)
            )
            slow._end.set()
            assert await ground.eventually(lambda: named(ground)) == "org/new"
