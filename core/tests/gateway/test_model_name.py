"""The model name that only the container knows."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from core.tests.gateway.ground import ASKED, Ground, Part, running_part

from airunway.gateway.application import READS
from airunway.gateway.model_names import ask, model_server_of
from airunway.resource import ObjectKey, Resource, dig

CUSTOM = {"source": "custom"}
LLAMA = {"service": "llama", "port": 8000}


@dataclass
class Server:
    """A model server that answers `/v1/models` as a test says."""

    status: int = 200
    body: bytes = b'{"data": [{"id": "org/found"}]}'
    hangs: bool = False
    asked: int = 0
    port: int = 0
    asked_at: str = ""
    """The host that the last request named."""
    _end: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        self.asked_at = request.host
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
        server.port = runner.addresses[0][1]
        yield server
    finally:
        server._end.set()
        await runner.cleanup()


class Here(AbstractResolver):
    """Finds the servers of Services on this machine, by the Service's name."""

    def __init__(self, servers: dict[str, Server]) -> None:
        self._servers = servers

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        port = self._servers[host.partition(".")[0]].port
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def running(ground: Ground, server: Server, **more: Server) -> AsyncIterator[Part]:
    """The part, for which `server` is behind every Service but those of `more`."""
    servers = defaultdict(lambda: server, more)
    async with running_part(ground.client, namespace=ground.namespace, resolver=Here(servers)) as part:
        yield part


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


STOLEN = "http://169.254.169.254/latest/meta-data/iam?x="


@pytest.mark.parametrize(
    ("reported", "address"),
    [
        ({"service": "llama", "port": 8000}, "http://llama.ml.svc:8000"),
        ({"service": "llama", "port": 443, "scheme": "https"}, "https://llama.ml.svc:443"),
        ({"service": "llama", "port": 8000, "url": STOLEN}, "http://llama.ml.svc:8000"),
        ({"service": "llama", "port": 8000, "scheme": "file"}, "http://llama.ml.svc:8000"),
        ({"url": STOLEN}, ""),
        ({"service": "evil.example/?x=", "port": 80}, ""),
        ({"service": "u@evil.example", "port": 80}, ""),
        ({"service": "llama.kube-system.svc.cluster.local", "port": 80}, ""),
        ({"service": "llama", "port": 0}, ""),
        ({"service": "llama", "port": 65536}, ""),
        ({"service": ["llama"], "port": "80"}, ""),
        ("http://evil.example", ""),
        (None, ""),
    ],
)
def test_the_core_asks_a_service_of_the_deployments_namespace_whatever_url_a_provider_reports(
    reported: object, address: str
) -> None:
    deployment: Resource = {"metadata": {"name": "llama", "namespace": "ml"}, "status": {"endpoint": reported}}
    assert model_server_of(deployment) == address


@pytest.mark.apiserver
async def test_a_provider_that_reports_another_address_has_the_core_send_nothing_there(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    secret = Server(body=b'{"data": [{"id": "secret"}]}')
    async with serving(Server()) as honest, serving(secret), running(ground, honest):
        reported = {**LLAMA, "url": f"{secret.url}/v1/models?x="}
        await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1", endpoint=reported)
        assert await ground.eventually(lambda: named(ground)) == "org/found"
        assert honest.asked_at == f"llama.{ground.namespace}.svc:8000"
        await ground.deploy(
            "alone",
            gateway={**ASKED, "pathTemplate": "/alone"},
            model=CUSTOM,
            image="me/mine:1",
            endpoint={"url": secret.url, "service": "127.0.0.1", "port": secret.port},
        )
        await ground.until("ModelNameUnknown", "alone")
        assert "status.endpoint names no Service" in await ground.message("alone")
        assert secret.asked == 0


@pytest.mark.parametrize("field", ["hash", "asked"])
def test_an_edited_template_brings_a_pass_because_it_may_give_another_name(field: str) -> None:
    used = {"hash": "a", "asked": "b"}
    templates = used, {**used, field: "c"}
    before, after = ({"status": {"revision": {"template": each}}, "metadata": {}} for each in templates)
    assert READS.of(before) != READS.of(after)


@pytest.mark.apiserver
async def test_r27_the_model_server_is_asked_once_per_generation_also_across_a_restart(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with serving(Server()) as server:
        async with running(ground, server):
            await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1")
            assert await ground.eventually(lambda: named(ground)) == "org/found"
            await ground.until("RouteAccepted")
            assert server.asked == 1
            await ground.annotate(labels={"a": "b"})
        async with running(ground, server) as part:
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
        async with running(ground, server) as part:
            await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1")
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
            async with running(ground, server) as part:
                await passed(ground, part, since=0)
                await ground.validate(changed)
                await ground.eventually(lambda: is_named(ground, "org/other"))
        assert server.asked == 2


@pytest.mark.apiserver
async def test_r27_the_pods_of_an_earlier_generation_are_not_asked_for_the_name_of_a_newer_one(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with serving(Server()) as server, running(ground, server) as part:
        await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1")
        await ground.serve(generation=1)
        await ground.eventually(lambda: is_named(ground, "org/found"))
        await ground.until("RouteAccepted")
        await ground.eventually(lambda: part.at_rest)
        before = part.passes[ObjectKey(ground.namespace, "llama")]
        await ground.edit(image="me/mine:2")
        await passed(ground, part, since=before)
        assert server.asked == 1
        server.body = b'{"data": [{"id": "org/other"}]}'  # the new pod
        await ground.serve(generation=2)
        await ground.eventually(lambda: is_named(ground, "org/other"))
        assert server.asked == 2


@pytest.mark.apiserver
async def test_r27_without_an_answer_the_id_of_the_model_counts_else_the_name_is_unknown(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service("llama")
    async with serving(Server(status=500)) as server, running(ground, server):
        custom = {**CUSTOM, "id": "org/stated"}
        await ground.deploy("stated", gateway=ASKED, model=custom, image="me/mine:1", endpoint=LLAMA)
        await ground.eventually(lambda: is_named(ground, "org/stated", "stated"))
        await ground.until("RouteAccepted", "stated")
        await ground.deploy("unknown", gateway=ASKED, model=CUSTOM, image="me/mine:1", endpoint=LLAMA)
        await ground.until("ModelNameUnknown", "unknown")
        assert "answered 500" in await ground.message("unknown")
        assert len(await ground.paths("unknown")) == 1
        assert server.asked == 2


@pytest.mark.apiserver
async def test_an_answer_for_a_deployment_that_is_gone_is_not_taken_for_the_next_of_its_name(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    await ground.service("fast")
    async with serving(Server(hangs=True)) as slow, serving(Server(body=b'{"data": [{"id": "org/new"}]}')) as fast:
        slow.body = b'{"data": [{"id": "org/old"}]}'
        async with running(ground, slow, fast=fast):
            await ground.deploy(gateway=ASKED, model=CUSTOM, image="me/mine:1")
            await ground.eventually(lambda: slow.asked == 1)
            await ground.delete()
            await ground.deploy(
                gateway={**ASKED, "pathTemplate": "/new"},
                model=CUSTOM,
                image="me/mine:2",
                endpoint={"service": "fast", "port": 8000},
            )
            slow._end.set()
            assert await ground.eventually(lambda: named(ground)) == "org/new"
