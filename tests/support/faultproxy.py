"""A proxy in front of an API server that breaks things on purpose.

It speaks plain HTTP on loopback and forwards over TLS as the identity of a kubeconfig. Faults are injected by rule
(`inject`), each a fixed number of times, or at random from a seed (`unleash`): the choice for the n-th request to a
path depends on the seed, the path and n only, so the same faults meet the same requests however requests interleave.

::

    async with FaultProxy(plane.kubeconfig) as proxy:
        proxy.inject(Fault("status", status=429, retry_after=1, verb="watch", resource="pods"))
        client = Client(load_config(kubeconfig=proxy.kubeconfig))
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import tempfile
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDict
from tests.support.fault_plan import CHAOS, STREAM_ACTIONS, Action, Fault, FaultPlan
from tests.support.proxied_requests import ProxiedRequest, parsed_request

from airunway.kube import ClusterConfig, load_config
from airunway.kube.config import tls_context

__all__ = ["CHAOS", "Action", "Fault", "FaultProxy", "ProxiedRequest"]

_HOP_HEADERS = frozenset(
    ("connection", "host", "authorization", "transfer-encoding", "content-length", "keep-alive", "upgrade")
)


class FaultProxy:
    """The proxy; an async context manager. `kubeconfig` is a file that points at it, `requests` what it has seen."""

    def __init__(self, upstream_kubeconfig: str | Path, *, context: str | None = None) -> None:
        self.requests: list[ProxiedRequest] = []
        self._upstream: ClusterConfig = load_config(kubeconfig=upstream_kubeconfig, context=context)
        self._plan = FaultPlan()
        self._connections: set[asyncio.BaseTransport] = set()
        self._directory = tempfile.TemporaryDirectory(prefix="airunway-faultproxy-")
        self._tls: ssl.SSLContext | bool = True
        self.url = ""

    @property
    def kubeconfig(self) -> Path:
        return Path(self._directory.name) / "kubeconfig"

    async def __aenter__(self) -> FaultProxy:
        credential = await self._upstream.credentials.credential()
        if self._upstream.server.startswith("https:"):
            self._tls = tls_context(self._upstream, credential.certificate)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=credential.headers(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**20,
        )
        # The default limit on request bodies is below what an API server takes.
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # With cancellation, a client that hangs up ends its watch upstream too.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await web.SockSite(self._runner, listener).start()
        self.kubeconfig.write_bytes(orjson.dumps(_kubeconfig(self.url)))  # JSON is YAML
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut_all()
        await self._runner.cleanup()
        await self._session.close()
        self._directory.cleanup()

    # ------------------------------------------------------------------------------------------------- control

    def inject(self, *faults: Fault) -> None:
        """Adds rules; for each request the first one that matches and is not used up strikes."""
        self._plan.inject(faults)

    def clear(self) -> None:
        """Drops all rules and ends the random mode; connections that are frozen stay so (see `cut_all`)."""
        self._plan.clear()

    def unleash(self, *, seed: int, rate: float, faults: Sequence[Fault] = CHAOS) -> None:
        """From now on a request that no rule strikes is struck with probability `rate` by one of `faults`."""
        self._plan.unleash(seed=seed, rate=rate, faults=faults)

    def cut_all(self) -> None:
        """Resets every open connection."""
        for transport in list(self._connections):
            _reset(transport)

    @property
    def pending(self) -> list[Fault]:
        """The injected faults that have not struck as often as they should."""
        return self._plan.pending

    def count(self, verb: str = "", resource: str = "", name: str = "") -> int:
        """How many requests of that sort have been seen."""
        probe = Fault("status", verb=verb, resource=resource, name=name)
        return sum(probe.matches(request) for request in self.requests)

    # ------------------------------------------------------------------------------------------------- traffic

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        request = parsed_request(incoming)
        self.requests.append(request)
        transport = incoming.transport
        if transport is not None:
            self._connections.add(transport)
        try:
            fault = self._plan.choose(request)
            request.fault = fault.action if fault else ""
            return await self._answer(incoming, request, fault)
        finally:
            if transport is not None:
                self._connections.discard(transport)

    async def _answer(self, incoming: web.Request, request: ProxiedRequest, fault: Fault | None) -> web.StreamResponse:
        if fault is not None:
            if fault.action == "status":
                request.code = fault.status
                return _status_response(fault)
            if fault.action == "garbage":
                request.code = 200
                return web.Response(body=b'{"kind": "\xff', content_type="application/json")
            if fault.action == "hang":
                await asyncio.Event().wait()
            if fault.action == "reset":
                return _dropped(incoming)
            if fault.action == "slow":
                await asyncio.sleep(fault.seconds)
        body = await incoming.read()
        headers = [(k, v) for k, v in incoming.headers.items() if k.lower() not in _HOP_HEADERS]
        upstream = self._session.request(
            incoming.method,
            self._upstream.server + incoming.raw_path,
            data=body or None,
            headers=headers,
            ssl=self._tls,
            allow_redirects=False,
        )
        try:
            async with upstream as response:
                request.code = response.status
                if request.verb == "watch" and response.status == 200:
                    return await self._stream(incoming, response, fault)
                answer = await response.read()
        except aiohttp.ClientError:  # the server itself is away: so are we
            return _dropped(incoming)
        if fault is not None and fault.action == "lose-answer":
            return _dropped(incoming)
        if fault is not None and fault.action == "late":
            await asyncio.sleep(fault.seconds)
        passed = CIMultiDict((k, v) for k, v in response.headers.items() if k.lower() not in _HOP_HEADERS)
        return web.Response(status=response.status, body=answer, headers=passed)

    async def _stream(
        self, incoming: web.Request, response: aiohttp.ClientResponse, fault: Fault | None
    ) -> web.StreamResponse:
        outgoing = web.StreamResponse(status=200, headers={"Content-Type": "application/json"})
        outgoing.enable_chunked_encoding()
        await outgoing.prepare(incoming)
        struck = fault if fault is not None and fault.action in STREAM_ACTIONS else None
        ending = struck if struck is not None and struck.action in _ENDINGS else None
        if ending is not None and ending.after_events == 0:
            return await self._end(incoming, outgoing, ending)
        passed = 0
        held = b""  # `reorder` and `repeat-late` wait for one more event
        async for line in _lines(response.content.iter_any()):
            if struck is None or passed < struck.after_events:
                await outgoing.write(line)
            elif struck.action == "truncate":
                await outgoing.write(line[: len(line) // 2])
                break
            elif struck.action == "delay":
                await asyncio.sleep(struck.seconds)
                await outgoing.write(line)
            elif struck.action == "duplicate":
                await outgoing.write(line + line)
                struck = None
            elif not held:
                held = line
                if struck.action == "repeat-late":
                    await outgoing.write(line)
            else:
                # In one write: a swap that a cut could split would lose an event, which no real server does.
                await outgoing.write(line + held)
                struck = None
            passed += 1
            if ending is not None and passed >= ending.after_events:
                return await self._end(incoming, outgoing, ending)
        if struck is not None and struck.action == "reorder" and held:
            await outgoing.write(held)
        await outgoing.write_eof()
        return outgoing

    async def _end(self, incoming: web.Request, outgoing: web.StreamResponse, fault: Fault) -> web.StreamResponse:
        if fault.action == "freeze":
            await asyncio.Event().wait()
        if fault.action == "cut":
            _reset(incoming.transport)
            return outgoing
        if fault.action == "error-event":
            await outgoing.write(orjson.dumps({"type": "ERROR", "object": _status(fault)}) + b"\n")
        await outgoing.write_eof()
        return outgoing


_ENDINGS = frozenset(("error-event", "cut", "close", "freeze"))


_NUMBERS = count(40_000)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _status(fault: Fault) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": fault.status,
        "reason": fault.reason,
        "message": fault.message.replace("{n}", str(next(_NUMBERS))) or f"injected {fault.status}",
    }


def _status_response(fault: Fault) -> web.Response:
    headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after is not None else {}
    return web.Response(
        status=fault.status, body=orjson.dumps(_status(fault)), content_type="application/json", headers=headers
    )


def _reset(transport: asyncio.BaseTransport | None) -> None:
    """Ends a connection by RST, as a crashing node or an impatient middle box does."""
    if transport is None or transport.is_closing():
        return
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


def _dropped(incoming: web.Request) -> web.Response:
    """Resets the connection; the response that a handler must return goes nowhere."""
    _reset(incoming.transport)
    return web.Response(status=500)


def _kubeconfig(url: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "clusters": [{"name": "proxy", "cluster": {"server": url}}],
        "users": [{"name": "proxy", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
    }
