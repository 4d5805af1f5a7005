"""Asks model servers for the names of their models (docs/routing.md)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver

from airunway.resource import ObjectKey, Resource, dig, key_of, mapping_at, number_at, text_at
from airunway.routing.intent import Probe

_AT_ONCE = 4
"""Model servers that are asked at a time."""

_TIMEOUT = 5.0
"""Seconds for the whole request (docs/routing.md)."""

_MOST = 2**20
"""Bytes of an answer that are read."""

_LONGEST = 2048
"""Characters of a model name (`status.gateway.modelName`)."""

_SERVICE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class ModelNames:
    """Asks the model server of a deployment in a task of its own, and hands the answer to `note(deployment, probe)`.

    `resolver` finds the addresses of model servers; None: DNS.
    """

    def __init__(self, *, note: Callable[[Resource, Probe], None], resolver: AbstractResolver | None = None) -> None:
        self._note = note
        self._resolver = resolver
        self._http: aiohttp.ClientSession | None = None
        self._asked: dict[ObjectKey, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Have the connections that `ask` needs, until cancelled."""
        connector = aiohttp.TCPConnector(resolver=self._resolver)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as self._http:
            try:
                await asyncio.Event().wait()
            finally:
                for task in self._asked.values():
                    task.cancel()

    def ask(self, deployment: Resource) -> None:
        """Begin to ask, if the deployment has an endpoint and is not being asked."""
        key = key_of(deployment)
        if key not in self._asked and dig(deployment, "status", "endpoint"):
            self._asked[key] = asyncio.create_task(self._ask(key, deployment), name=f"model name of {key}")

    async def _ask(self, key: ObjectKey, deployment: Resource) -> None:
        assert self._http is not None, "model servers are asked while `run` runs"
        url = model_server_of(deployment)
        try:
            async with self._places:
                answer = await ask(self._http, url) if url else Answer(problem="status.endpoint names no Service")
        finally:
            del self._asked[key]  # before the next pass, which may have to ask for a newer generation
        generation = deployment["metadata"].get("generation", 0)
        self._note(deployment, Probe(generation=generation, name=answer.name, failure=answer.problem))


def model_server_of(deployment: Resource) -> str:
    """The address of the Service in ``status.endpoint``, in the deployment's namespace; empty without one.

    Not ``endpoint.url``: a provider writes it, and the core would send a request to any address for it.
    """
    endpoint = mapping_at(deployment, "status", "endpoint")
    service, port = text_at(endpoint, "service"), number_at(endpoint, "port")
    if not _SERVICE.fullmatch(service) or not 0 < port < 65536:
        return ""
    scheme = "https" if text_at(endpoint, "scheme") == "https" else "http"
    return f"{scheme}://{service}.{key_of(deployment).namespace}.svc:{port}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a model server to ``/v1/models``."""

    name: str = ""
    """The first model's id; empty if there is none."""
    problem: str = ""
    """Why there is no name, as the end of a sentence; empty if there is one."""


async def ask(session: aiohttp.ClientSession, url: str) -> Answer:
    """Ask the server at `url` (``http://llama.ml.svc:8000``) for the id of its first model. Never raises for what the
    server does.
    """
    where = f"{url.rstrip('/')}/v1/models"
    try:
        async with asyncio.timeout(_TIMEOUT), session.get(where, allow_redirects=False) as response:
            if response.status != 200:
                return Answer(problem=f"{where} answered {response.status}")
            body = b""
            while chunk := await response.content.read(_MOST + 1 - len(body)):
                body += chunk
                if len(body) > _MOST:
                    return Answer(problem=f"{where} answered with more than 1 MiB")
    except TimeoutError:
        return Answer(problem=f"{where} did not answer within {_TIMEOUT:.0f} s")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return Answer(problem=f"{where} cannot be reached ({type(error).__name__})")
    return _name_in(body, where)


def _name_in(body: bytes, where: str) -> Answer:
    try:
        models = dig(orjson.loads(body), "data")
    except orjson.JSONDecodeError:
        return Answer(problem=f"{where} did not answer with JSON")
    first = models[0] if isinstance(models, list) and models else None
    name = dig(first, "id") if isinstance(first, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
        return Answer(problem=f"{where} named no model")
    return Answer(name=name)
