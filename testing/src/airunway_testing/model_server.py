"""A model server for tests and the sandbox: it speaks the API of OpenAI and the metrics of an engine, and has no model.

    async with model_server(models={"llama": Serves.CHAT}) as server:
        server.address                     # of this machine, for the status of a pod
        server.faults["/v1/chat/completions"] = answering("<html>", status=502)

It answers a chat with the words of the prompt in reverse order, a token for each word. The API server proxies only to
endpoints that are pods, and never to a loopback address: therefore it listens on the machine's own address.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from aiohttp import web

from airunway_testing.engine_load import EngineLoad

Fault: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers a request instead of the server."""


_MOST_KEPT = 10_000


class Serves(StrEnum):
    """What a model can do."""

    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    RERANK = "rerank"


_PATHS = {
    Serves.CHAT: "/v1/chat/completions",
    Serves.COMPLETION: "/v1/completions",
    Serves.EMBEDDING: "/v1/embeddings",
    Serves.RERANK: "/v1/rerank",
}


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(kw_only=True)
class ModelServer:
    """One running server. Its fields may be changed while it runs."""

    models: Mapping[str, Serves]
    """What each model can do, by its served name."""
    address: str = ""
    """The machine's address."""
    port: int = 0
    pause: float = 0.0
    """Seconds before each token."""
    with_usage: bool = True
    """Whether an answer ends with the counts of its tokens."""
    advertises: bool = True
    """Whether ``/openapi.json`` has only the paths that its models serve; else there is no such document."""
    metrics: str = ""
    """What ``/metrics`` answers; empty: what its `load` reports, and 404 without one."""
    load: EngineLoad | None = None
    """Counts what it answers, and reports it as an engine does."""
    say: Callable[[str], None] = lambda _: None
    """Called with a line for each answer of a model."""
    faults: dict[str, Fault] = field(default_factory=dict)
    """Answers by path, instead of the server's own."""
    received: list[Received] = field(default_factory=list)
    """The requests, in their order: at most the last 10,000."""
    sent: list[float] = field(default_factory=list)
    """When each token was sent, by the clock of the event loop: at most the last 10,000."""
    open: int = 0
    """Streams that are being answered."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        try:
            body = json.loads(await request.text() or "null")
        except json.JSONDecodeError:
            body = None
        self.received.append(
            Received(method=request.method, path=request.path, headers=dict(request.headers), body=body)
        )
        del self.received[:-_MOST_KEPT]
        if (fault := self.faults.get(request.path)) is not None:
            return await fault(request)
        match request.method, request.path:
            case "GET", "/v1/models":
                return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})
            case "GET", "/openapi.json" if self.advertises:
                return web.json_response({"paths": {_PATHS[each]: {} for each in self.models.values()}})
            case "GET", "/metrics" if self.metrics:
                return web.Response(text=self.metrics, content_type="text/plain")
            case "GET", path if self.load is not None and path in self.load.paths:
                return web.Response(text=self.load.report(next(iter(self.models), "")), content_type="text/plain")
            case "POST", path if isinstance(body, dict):
                answered = await self._asked(request, path, body)
                self.say(f'INFO: "POST {path} HTTP/1.1" {answered.status}')
                return answered
        return web.json_response({"detail": "Not Found"}, status=404)

    async def _asked(self, request: web.Request, path: str, body: dict[str, Any]) -> web.StreamResponse:
        name = str(body.get("model"))
        if name not in self.models:
            return _refused(404, f"The model `{name}` does not exist.")
        if _PATHS[self.models[name]] != path:
            return _refused(400, f"The model does not support {path}")
        match self.models[name]:
            case Serves.EMBEDDING:
                data = [{"index": 0, "embedding": [0.1, -0.2, 0.3, 0.4]}]
                return web.json_response({"data": data, "usage": _usage(len(str(body["input"]).split()), 0)})
            case Serves.RERANK:
                scores = [(place, 1 / (1 + len(text))) for place, text in enumerate(body["documents"])]
                return web.json_response({"results": [{"index": i, "relevance_score": s} for i, s in scores]})
            case Serves.CHAT:
                prompt = str(body["messages"][-1]["content"])
            case Serves.COMPLETION:
                prompt = str(body["prompt"])
        words = [*reversed(prompt.split())][: body.get("max_tokens") or None]
        if body.get("stream"):
            return await self._stream(request, words, len(prompt.split()), chat=path == _PATHS[Serves.CHAT])
        if self.load is not None:
            with self.load.request() as counted:
                for _ in words:
                    await asyncio.sleep(self.pause)
                    counted()
        message: dict[str, Any] = {"message": {"role": "assistant", "content": " ".join(words)}}
        choice = {**message, "text": " ".join(words), "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": _usage(len(prompt.split()), len(words))})

    async def _stream(self, request: web.Request, words: list[str], asked: int, *, chat: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def send(choices: list[Any], **more: Any) -> None:
            event = {"object": "chat.completion.chunk", "choices": choices, **more}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())

        self.open += 1
        try:
            with self.load.request() if self.load is not None else nullcontext(lambda: None) as counted:
                for place, text in enumerate(words):
                    if self.pause:
                        await asyncio.sleep(self.pause)
                    piece = text if place == 0 else f" {text}"
                    self.sent.append(asyncio.get_running_loop().time())
                    await send([{"index": 0, **({"delta": {"content": piece}} if chat else {"text": piece})}])
                    counted()
            del self.sent[:-_MOST_KEPT]
            await send([{"index": 0, "delta": {}, "finish_reason": "stop"}])
            if self.with_usage:
                await send([], usage=_usage(asked, len(words)))
            await response.write(b"data: [DONE]\n\n")
        finally:
            self.open -= 1
        return response


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "BadRequestError", "code": status}}, status=status)


def answering(text: str | bytes, *, status: int = 200, content_type: str = "application/json") -> Fault:
    """A fault: this body."""

    async def answer(_: web.Request) -> web.StreamResponse:
        body = text.encode() if isinstance(text, str) else text
        return web.Response(status=status, body=body, content_type=content_type)

    return answer


def sending(*chunks: bytes, breaks: bool = False, times: int = 1) -> Fault:
    """A fault: a stream of these bytes, `times` in a row; `breaks`: the connection is then closed in its middle."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(times):
            for chunk in chunks:
                await response.write(chunk)
        if breaks and request.transport is not None:
            request.transport.close()
        return response

    return answer


def never() -> Fault:
    """A fault: no answer at all."""

    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return answer


def machine_address() -> str:
    """This machine's address as others reach it. Raises OSError if it has none but loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses the interface
        address: str = probe.getsockname()[0]
    return address


@asynccontextmanager
async def model_server(
    *, models: Mapping[str, Serves], address: str = "", metrics: str = ""
) -> AsyncIterator[ModelServer]:
    """Serves `models` for as long as the context lasts."""
    server = ModelServer(models=models, address=address or machine_address(), metrics=metrics)
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, server.address, 0)
    await site.start()
    found: tuple[str, int] = runner.addresses[0][:2]
    server.port = found[1]
    try:
        yield server
    finally:
        await runner.cleanup()
