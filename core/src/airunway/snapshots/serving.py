"""Asks the server of a deployment through the API server's proxy: what it advertises, and an answer piece by piece."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import orjson

from airunway.kube import POD, SERVICE, ApiError, Client, Kind, TransportError
from airunway.resource import ObjectKey, Resource, dig, is_deleting, is_integer, is_true, key_of
from airunway.snapshots.reading import pod_sources
from airunway.view.answers import MOST_DOCUMENT, PATHS, AnswerReader, Piece, Task, models_of, tasks_of

_MOST_STREAM = 64 * 2**20
"""Bytes of one answer."""

_MOST_SCHEMA = 8 * 2**20
_PATIENCE = 10.0
"""Seconds for a document."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A Service or pod whose server is asked."""

    kind: Kind
    """SERVICE or POD."""
    key: ObjectKey
    """Namespace and name."""
    port: int
    """Its port."""
    scheme: str = ""
    """``https`` if it does not speak plain HTTP."""


@dataclass(frozen=True, kw_only=True)
class Advertised:
    """What a server says about itself."""

    models: tuple[str, ...]
    """Served names; empty if it does not say them."""
    tasks: tuple[Task, ...]
    """What its models do; empty if it does not say it."""


def endpoint_of(deployment: Resource) -> Endpoint | None:
    """Returns the Service of ``status.endpoint``; None if there is none."""
    found = dig(deployment, "status", "endpoint")
    service, port = dig(found, "service"), dig(found, "port")
    if not isinstance(service, str) or not _NAME.fullmatch(service) or not is_port(port):
        return None
    scheme = "https" if dig(found, "scheme") == "https" else ""
    key = ObjectKey(key_of(deployment).namespace, service)
    return Endpoint(kind=SERVICE, key=key, port=port, scheme=scheme)


async def pod_endpoint(client: Client, deployment: Resource) -> Endpoint | None:
    """Returns a ready pod of the deployment's InferencePool, for a deployment whose requests no Service takes."""
    port = dig(deployment, "status", "endpoint", "pool", "port")
    if not is_port(port):
        return None
    for source in pod_sources(deployment):
        page = await client.first_page(
            source.kind,
            namespace=source.key.namespace,
            label_selector=source.label_selector,
            limit=source.limit,
            most=64 * 2**20,
        )
        for pod in page.items:
            if is_true(pod, "Ready") and not is_deleting(pod):
                return Endpoint(kind=POD, key=key_of(pod), port=port)
    return None


def is_port(value: object) -> bool:
    """Whether that is the number of a port."""
    return is_integer(value) and 0 < value < 65536


def proxy_path(endpoint: Endpoint, path: str) -> str:
    """Returns the path of the API server that leads to `path` of the endpoint."""
    scheme = f"{endpoint.scheme}:" if endpoint.scheme else ""
    base = f"{endpoint.kind.base_path}/namespaces/{endpoint.key.namespace}/{endpoint.kind.plural}"
    return f"{base}/{scheme}{endpoint.key.name}:{endpoint.port}/proxy{path}"


async def advertised(client: Client, endpoint: Endpoint) -> Advertised:
    """Returns what the server says in ``/v1/models``. Raises TransportError if it does not answer."""
    try:
        document = await _document(client, endpoint, "/v1/models", most=MOST_DOCUMENT)
    except ApiError:
        return Advertised(models=(), tasks=())
    return Advertised(models=models_of(document), tasks=tasks_of(document))


async def schema_tasks(client: Client, endpoint: Endpoint) -> tuple[Task, ...]:
    """Returns the tasks whose paths are in the server's ``/openapi.json``; empty if it has none."""
    try:
        return tasks_of(None, await _document(client, endpoint, "/openapi.json", most=_MOST_SCHEMA))
    except (ApiError, TransportError):
        return ()


async def _document(client: Client, endpoint: Endpoint, path: str, *, most: int) -> object:
    """The JSON at a path of the server; None for what is not JSON."""
    lines = client.proxied(
        endpoint.kind,
        endpoint.key,
        port=endpoint.port,
        path=path,
        scheme=endpoint.scheme,
        silence=_PATIENCE,
        longest=most,
        most=most,
    )
    async with aclosing(lines) as stream:
        text = "\n".join([line async for line in stream])
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


async def ask(
    client: Client, endpoint: Endpoint, task: Task, body: Resource, *, silence: float
) -> AsyncGenerator[Piece, None]:
    """Yields the answer to `body` as it arrives; the request ends when the caller closes the generator.

    `silence` is the limit in seconds between two parts of the answer. Raises Forbidden without the right to ``create``
    the subresource ``proxy``, the ApiError of an error answer, and TransportError if the answer does not come or breaks
    off.
    """
    reader = AnswerReader(task)
    lines = client.proxied(
        endpoint.kind,
        endpoint.key,
        port=endpoint.port,
        path=PATHS[task],
        method="POST",
        body=body,
        scheme=endpoint.scheme,
        silence=silence,
        longest=MOST_DOCUMENT + 1024,  # one that is too long is refused, not cut
        most=_MOST_STREAM,
    )
    async with aclosing(lines) as stream:
        async for text in stream:
            for piece in reader.line(text):
                yield piece
                if piece.error:
                    return
    for piece in reader.end():
        yield piece
