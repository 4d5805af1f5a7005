"""A server of pages whose API server is not there, and requests to it as a browser sends them; hostile texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from html.parser import HTMLParser

from aiohttp import web

from airunway.kube import ClusterConfig
from airunway.resource import Resource
from airunway_ui.guard import COOKIE, Guard
from airunway_ui.identity import Identity
from airunway_ui.server import Site, runner_of
from airunway_ui.watches import Watches

MARKUP = "<img src=x onerror=alert(1)>'\"><script>alert(2)</script>javascript:alert(3)&lt;"
"""What must stay a text wherever it is shown."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server sent."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A client that sends exactly what it is told to, which no library for browsers' requests does."""

    guard: Guard
    cookie: str = ""

    def as_browser(self) -> dict[str, str]:
        """The headers of a browser that is logged in."""
        return {"Host": self.guard.host, "Sec-Fetch-Site": "same-origin", "Cookie": f"{COOKIE}={self.cookie}"}

    async def send(self, method: str, path: str, headers: dict[str, str], body: str = "") -> Answer:
        """The answer to these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.guard.port)
        lines = [
            f"{method} {path} HTTP/1.1",
            "Connection: close",
            *(f"{name}: {text}" for name, text in headers.items()),
        ]
        if body:
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body.encode())}"]
        writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        await writer.drain()
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        first, *fields = head.decode().split("\r\n")
        named = dict(each.split(": ", 1) for each in fields)
        return Answer(status=int(first.split()[1]), headers=named, body=rest.decode())

    async def get(self, path: str) -> Answer:
        """A page, as a browser asks for it that is logged in."""
        return await self.send("GET", path, self.as_browser())


@asynccontextmanager
async def serving(config: ClusterConfig | None = None) -> AsyncIterator[Caller]:
    """A server, and a caller that is logged in. Without `config` its API server is one that is not there."""
    identity = Identity(config or ClusterConfig(server="http://127.0.0.1:1"))
    await identity.client.__aenter__()
    guard, watches = Guard(port=0), Watches(identity)
    runner = runner_of(Site(guard=guard, identity=identity, watches=watches))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        guard.port = runner.addresses[0][1]
        caller = Caller(guard=guard)
        key = guard.link().partition("key=")[2]
        answer = await caller.send("GET", f"/login?key={key}", {"Host": guard.host})
        assert answer.status == 200, answer
        yield replace(caller, cookie=answer.headers["Set-Cookie"].partition("=")[2].partition(";")[0])
    finally:
        await runner.cleanup()
        await watches.close()
        await identity.close()


class Elements(HTMLParser):
    """The elements of a page with their attributes, as a browser sees them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All texts, one after another."""
        return " ".join(" ".join(self.texts).split())


def hostile(node: object) -> object:
    """`node` with the hostile text in place of every text, and below every key."""
    if isinstance(node, dict):
        return {key: hostile(value) for key, value in node.items()}
    if isinstance(node, list):
        return [hostile(each) for each in node]
    return f"{node}{MARKUP}" if isinstance(node, str) else node


DEPLOYMENT: Resource = {
    "apiVersion": "airunway.ai/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {
        "name": "llama",
        "namespace": "ml",
        "uid": "u1",
        "generation": 2,
        "creationTimestamp": "2026-11-01T10:00:00Z",
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
    },
    "spec": {
        "model": {"id": "meta/llama", "servedName": "llama"},
        "templateRef": {"name": "fast", "metric": "latency"},
        "gateway": {"group": "chat", "weight": 9},
        "resources": {"gpu": {"count": 2}},
        "scaling": {"replicas": 3},
    },
    "status": {
        "phase": "Degraded",
        "reason": "CrashLoop",
        "message": "a pod crashes",
        "engine": {"type": "vllm"},
        "provider": {"name": "kaito", "resourceKind": "Workspace", "resourceName": "llama"},
        "replicas": {"ready": 1, "desired": 3, "summary": "1/3"},
        "endpoint": {"url": "http://llama.ml.svc:80", "service": "llama", "port": 80},
        "gateway": {
            "url": "http://gateway/llama",
            "modelName": "llama",
            "group": {"name": "chat", "share": 90, "holder": "llama"},
        },
        "effectiveTemplate": {"ref": {"kind": "ModelTemplate", "namespace": "ml", "name": "fast"}},
        "warnings": ["too large"],
        "revision": {"hash": "abc", "pending": {"changes": ["env HF_HOME"], "waitsFor": "change"}},
        "rootCause": {
            "code": "ImagePull.NotFound",
            "object": "Pod/ml/llama-0",
            "field": "spec.image",
            "message": "image x:1 not found",
            "since": "2026-11-01T10:00:00Z",
        },
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "CrashLoop",
                "message": "a pod crashes",
                "lastTransitionTime": "2026-11-01T10:00:00Z",
                "observedGeneration": 2,
            }
        ],
    },
}

POD: Resource = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "llama-0", "namespace": "ml", "uid": "p1", "labels": {"airunway.ai/component": "server"}},
    "spec": {"nodeName": "gpu-0", "containers": [{"name": "server"}]},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "server",
                "ready": False,
                "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 1,
                        "reason": "Error",
                        "message": "out of memory",
                        "finishedAt": "2026-11-01T10:00:00Z",
                    }
                },
            }
        ],
    },
}

EVENT: Resource = {
    "metadata": {"uid": "e1"},
    "type": "Warning",
    "reason": "BackOff",
    "message": "back-off restarting",
    "involvedObject": {"kind": "Pod", "name": "llama-0"},
    "lastTimestamp": "2026-11-01T10:00:01Z",
}
