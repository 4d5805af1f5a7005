"""Asking an admission webhook as an API server does, without one in between."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.webhook.cert_rotator import SECRET, material_of
from airunway.webhook.configuration import PATH, WebhookSettings
from airunway_testing.eventually import PATIENCE

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""Both directions of a connection."""


@cache
def unverified() -> ssl.SSLContext:
    """For a client that verifies nobody; one for all connections, since to make it takes longer than a handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@asynccontextmanager
async def connected(address: str, *, tls: bool = True) -> AsyncIterator[Streams]:
    """An open connection to ``host:port`` whose certificate is not verified."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=unverified() if tls else None)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchanged(address: str, *parts: bytes) -> bytes:
    """What the server at ``host:port`` answers to these bytes until it ends the connection."""
    async with connected(address) as (reader, writer), asyncio.timeout(PATIENCE):
        for part in parts:
            writer.write(part)
        try:
            return await reader.read()
        except ConnectionError:
            return b""


def review_of(
    obj: Resource, *, old: Resource | None = None, user: str = "admin", groups: Sequence[str] = ("system:masters",)
) -> Resource:
    """The AdmissionReview of a create, or of an update where `old` is given."""
    key = key_of(obj)
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {"group": MODEL_DEPLOYMENT.group, "version": MODEL_DEPLOYMENT.version, "kind": "ModelDeployment"},
            "resource": {
                "group": MODEL_DEPLOYMENT.group,
                "version": MODEL_DEPLOYMENT.version,
                "resource": MODEL_DEPLOYMENT.plural,
            },
            "name": key.name,
            "namespace": key.namespace,
            "operation": "CREATE" if old is None else "UPDATE",
            "userInfo": {"username": user, "groups": list(groups)},
            "object": obj,
            "oldObject": old,
            "dryRun": False,
        },
    }


class WebhookClient:
    """Sends reviews to a webhook; an async context manager. Trusts what the webhook's Secret says.

    `certificate` is a file with the certificate that it shows, and its key.
    """

    def __init__(self, client: Client, settings: WebhookSettings, *, certificate: Path | None = None) -> None:
        self._client = client
        self._certificate = certificate
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> WebhookClient:
        secret = await self._client.get(SECRET, ObjectKey(self._settings.namespace, self._settings.secret))
        context = ssl.create_default_context(cadata=material_of(secret).bundle.decode())
        if self._certificate is not None:
            context.load_cert_chain(self._certificate)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, body: bytes, *, path: str = PATH) -> tuple[int, bytes]:
        """The HTTP status and body of the answer to any bytes."""
        assert self._session is not None
        async with self._session.post(f"{self._settings.url}{path}", data=BytesIO(body)) as answer:
            return answer.status, await answer.read()

    async def ask(self, review: Resource) -> Resource:
        """The ``response`` of a review."""
        status, body = await self.post(orjson.dumps(review))
        if status != 200:
            raise AssertionError(f"the webhook answered {status}: {body!r}")
        response: Resource = orjson.loads(body)["response"]
        assert response["uid"] == review["request"]["uid"]
        return response

    async def problems(self, obj: Resource, **more: Any) -> list[str]:
        """The causes of the refusal as "path: message"; empty if the object is allowed."""
        response = await self.ask(review_of(obj, **more))
        if response["allowed"]:
            return []
        causes = dig(response, "status", "details", "causes", default=[])
        return [f"{c['field']}: {c['message']}" if c.get("field") else str(c["message"]) for c in causes]
