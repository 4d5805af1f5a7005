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
import random
import socket
import ssl
import struct
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDict

from airunway.kube import ClusterConfig, load_config
from airunway.kube.config import tls_context

__all__ = ["CHAOS", "Action", "Fault", "FaultProxy", "ProxiedRequest"]

Action: TypeAlias = Literal[
    "status",  # answer with an error instead of forwarding
    "garbage",  # answer 200 with something that is not JSON
    "reset",  # reset the connection instead of forwarding
    "lose-answer",  # forward, then reset: the server acted, the client does not know
    "hang",  # accept, and never answer
    "slow",  # wait `seconds`, then forward
    # Of a watch that has forwarded `after_events` events:
    "error-event",  # an ERROR event with `status`, then the end
    "cut",  # reset the connection
    "close",  # end the stream cleanly
    "truncate",  # half a line, then a clean end
    "freeze",  # forward nothing more, keep the connection (half-open)
    "delay",  # hold every further event back for `seconds`
    "duplicate",  # send the next event twice
    "repeat-late",  # send the next event again after the one that follows it
    "reorder",  # swap the next two events
]

_STREAM_ACTIONS = frozenset(
    ("error-event", "cut", "close", "truncate", "freeze", "delay", "duplicate", "repeat-late", "reorder")
)

_HOP_HEADERS = frozenset(
    ("connection", "host", "authorization", "transfer-encoding", "content-length", "keep-alive", "upgrade")
)


@dataclass(kw_only=True)
class ProxiedRequest:
    """One request as it passed; `code` is 0 until (or if never) answered, `fault` what was done to it."""

    method: str
    path: str
    query: dict[str, str]
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Fault:
    """A rule: what to do to requests that match all of `verb`, `resource`, `name` and `where` (empty: any).

    Verbs are get, list, watch, create, update, patch, apply, delete. It strikes `count` times (None: for ever) after
    letting `skip` matching requests pass.
    """

    action: Action
    _: KW_ONLY
    verb: str = ""
    resource: str = ""
    name: str = ""
    where: Callable[[ProxiedRequest], bool] | None = None
    count: int | None = 1
    skip: int = 0
    status: int = 500
    reason: str = ""
    retry_after: int | None = None
    after_events: int = 0
    seconds: float = 0.5

    def matches(self, request: ProxiedRequest) -> bool:
        if self.action in _STREAM_ACTIONS and request.verb != "watch":
            return False
        return (
            self.verb in ("", request.verb)
            and self.resource in ("", request.resource)
            and self.name in ("", request.name)
            and (self.where is None or self.where(request))
        )


CHAOS: tuple[Fault, ...] = (
    Fault("status", status=409, reason="Conflict", where=lambda r: r.verb in ("update", "patch", "apply", "delete")),
    Fault("status", status=429, reason="TooManyRequests", retry_after=1),
    Fault("status", status=500, reason="InternalError"),
    Fault("status", status=503, reason="ServiceUnavailable"),
    Fault("status", status=410, reason="Expired", where=lambda r: r.verb == "watch" or "continue" in r.query),
    Fault("reset"),
    Fault("lose-answer", where=lambda r: r.verb != "watch"),
    Fault("slow", seconds=0.3),
    Fault("garbage"),
    Fault("error-event", status=410, reason="Expired", after_events=2),
    Fault("error-event", status=500, reason="InternalError", after_events=1),
    Fault("cut", after_events=3),
    Fault("close", after_events=1),
    Fault("truncate", after_events=2),
    Fault("delay", seconds=0.2),
    Fault("duplicate", after_events=1),
    Fault("repeat-late", after_events=1),
    Fault("reorder", after_events=1),
)
"""What `unleash` chooses from: all that passes quickly (`hang` and `freeze` last until a timeout of the client)."""


@dataclass
class _Rule:
    fault: Fault
    skip: int
    left: int | None


@dataclass(frozen=True, kw_only=True)
class _Chaos:
    seed: int
    rate: float
    faults: tuple[Fault, ...]


class FaultProxy:
    """The proxy; an async context manager. `kubeconfig` is a file that points at it, `requests` what it has seen."""

    def __init__(self, upstream_kubeconfig: str | Path, *, context: str | None = None) -> None:
        self.requests: list[ProxiedRequest] = []
        self._upstream: ClusterConfig = load_config(kubeconfig=upstream_kubeconfig, context=context)
        self._rules: list[_Rule] = []
        self._chaos: _Chaos | None = None
        self._counts: Counter[tuple[str, str]] = Counter()
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
        self._rules += [_Rule(fault=fault, skip=fault.skip, left=fault.count) for fault in faults]

    def clear(self) -> None:
        """Drops all rules and ends the random mode; connections that are frozen stay so (see `cut_all`)."""
        self._rules.clear()
        self._chaos = None

    def unleash(self, *, seed: int, rate: float, faults: Sequence[Fault] = CHAOS) -> None:
        """From now on a request that no rule strikes is struck with probability `rate` by one of `faults`."""
        self._chaos = _Chaos(seed=seed, rate=rate, faults=tuple(faults))
        self._counts.clear()

    def cut_all(self) -> None:
        """Resets every open connection."""
        for transport in list(self._connections):
            _reset(transport)

    @property
    def pending(self) -> list[Fault]:
        """The injected faults that have not struck as often as they should."""
        return [rule.fault for rule in self._rules if rule.left is not None and rule.left > 0]

    def count(self, verb: str = "", resource: str = "", name: str = "") -> int:
        """How many requests of that sort have been seen."""
        probe = Fault("status", verb=verb, resource=resource, name=name)
        return sum(probe.matches(request) for request in self.requests)

    # ------------------------------------------------------------------------------------------------- traffic

    def _choose(self, request: ProxiedRequest) -> Fault | None:
        for rule in self._rules:
            if rule.left == 0 or not rule.fault.matches(request):
                continue
            if rule.skip:
                rule.skip -= 1
                continue
            if rule.left is not None:
                rule.left -= 1
            return rule.fault
        if self._chaos is None:
            return None
        place = (request.verb, request.path)
        self._counts[place] += 1
        rng = random.Random(f"{self._chaos.seed} {place} {self._counts[place]}")
        if rng.random() >= self._chaos.rate:
            return None
        fitting = [fault for fault in self._chaos.faults if fault.matches(request)]
        if not fitting:
            return None
        chosen = rng.choice(fitting)
        return replace(chosen, after_events=rng.randint(0, 2 * chosen.after_events))

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        request = _parsed(incoming)
        self.requests.append(request)
        transport = incoming.transport
        if transport is not None:
            self._connections.add(transport)
        try:
            fault = self._choose(request)
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
        passed = CIMultiDict((k, v) for k, v in response.headers.items() if k.lower() not in _HOP_HEADERS)
        return web.Response(status=response.status, body=answer, headers=passed)

    async def _stream(
        self, incoming: web.Request, response: aiohttp.ClientResponse, fault: Fault | None
    ) -> web.StreamResponse:
        outgoing = web.StreamResponse(status=200, headers={"Content-Type": "application/json"})
        outgoing.enable_chunked_encoding()
        await outgoing.prepare(incoming)
        struck = fault if fault is not None and fault.action in _STREAM_ACTIONS else None
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


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _parsed(incoming: web.Request) -> ProxiedRequest:
    """What an API path and a method mean: verb, resource, namespace, name."""
    query = dict(incoming.query)
    parts = [part for part in incoming.path.split("/") if part]
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else []
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = (*parts, "", "", "")[:3]
    collection = not name
    verb = {
        "GET": "list" if collection else "get",
        "POST": "create",
        "PUT": "update",
        "PATCH": "apply" if "apply-patch" in incoming.content_type else "patch",
        "DELETE": "delete",
    }.get(incoming.method, incoming.method.lower())
    if verb == "list" and query.get("watch") in ("1", "true"):
        verb = "watch"
    return ProxiedRequest(
        method=incoming.method,
        path=incoming.path,
        query=query,
        verb=verb,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _status(fault: Fault) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": fault.status,
        "reason": fault.reason,
        "message": f"injected {fault.status}",
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
