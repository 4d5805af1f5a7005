"""A local container registry with the reading half of the OCI distribution API.

    async with container_registry([Image("team/llama", "1.0", labels={"org.example/model": "llama"})]) as registry:
        source = {"registry": registry.host, "insecure": True, "filters": [{"image": "team/*"}]}
        registry.faults.inject(HttpStatus(status=429, headers={"Retry-After": "30"}), repository="team/llama")

With `users` it asks for credentials, by Basic or by a token of its own token server. That is another host: clients must
send the password there and the token here, and neither anywhere else.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from aiohttp import web

from airunway_testing.modelhub.serving import listening
from airunway_testing.registry.faults import Faults, Garbage, Hang, HttpStatus, Redirect, Route

Auth: TypeAlias = Literal["none", "basic", "token"]
"""How a registry asks who a client is."""

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True)
class Image:
    """An image as it is when the registry starts."""

    repository: str
    """Such as ``team/llama``."""
    tag: str
    labels: Mapping[str, object] = field(default_factory=dict)
    """Labels of its configuration, which a hostile image may give any shape."""
    platforms: tuple[str, ...] = ()
    """Platforms of an index, such as ``linux/amd64``; none: the tag is one manifest."""
    entrypoint: object = None
    """Entrypoint of its configuration, which a hostile image may give any shape."""


@dataclass(kw_only=True)
class SeenRequest:
    """One request."""

    host: str
    """``registry``, ``token`` or ``other``."""
    route: Route | Literal["other"]
    repository: str
    target: str
    """Path and query."""
    authorization: str
    """Header Authorization; empty: none."""


class LocalRegistry:
    """The running registry. `requests` are what it and its other hosts were asked, `faults` switches faults on."""

    host: str
    """Host and port, as ``spec.registry`` wants it."""
    other: str
    """Address of another host, to which a test redirects; it answers every request with 404."""

    def __init__(
        self, images: Iterable[Image], *, auth: Auth, users: Mapping[str, str], page_size: int, realm: str | None
    ) -> None:
        self.faults = Faults()
        self.requests: list[SeenRequest] = []
        self.running = 0
        self.most_at_once = 0
        """Most requests that it answered at a time."""
        self._auth = auth
        self._users = dict(users)
        self._page_size = page_size
        self._realm = realm
        self._token_url = ""
        self._tags: dict[str, dict[str, str]] = {}
        self._manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._blobs: dict[str, bytes] = {}
        for image in images:
            self.add(image)

    # ------------------------------------------------------------------------------------------- what a test changes

    def add(self, image: Image) -> None:
        """Push an image."""
        if image.platforms:
            entries = []
            for platform in image.platforms:
                os, _, architecture = platform.partition("/")
                labels = {**image.labels, "platform": platform}
                digest, size = self._push(
                    image.repository, self._one(labels, os, architecture, image.entrypoint), _MANIFEST
                )
                described = {"os": os, "architecture": architecture}
                entries.append({"mediaType": _MANIFEST, "digest": digest, "size": size, "platform": described})
            index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}
            digest, _ = self._push(image.repository, json.dumps(index).encode(), _INDEX)
        else:
            digest, _ = self._push(
                image.repository, self._one(image.labels, "linux", "amd64", image.entrypoint), _MANIFEST
            )
        self._tags.setdefault(image.repository, {})[image.tag] = digest

    def put_manifest(self, repository: str, tag: str, body: bytes, media_type: str = _MANIFEST) -> str:
        """Put a manifest of any content under a tag; gives its digest."""
        digest, _ = self._push(repository, body, media_type)
        self._tags.setdefault(repository, {})[tag] = digest
        return digest

    def put_blob(self, body: bytes) -> str:
        """Put a blob of any content; gives its digest."""
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self._blobs[digest] = body
        return digest

    def corrupt(self) -> None:
        """Change the bytes of all blobs: they are no longer what their digest says."""
        self._blobs = {digest: body + b" " for digest, body in self._blobs.items()}

    def _one(self, labels: Mapping[str, object], os: str, architecture: str, entrypoint: object) -> bytes:
        inner = {"Labels": dict(labels), "Entrypoint": entrypoint, "Cmd": ["serve"]}
        config = {"os": os, "architecture": architecture, "config": inner, "rootfs": {}}
        body = json.dumps(config).encode()
        described = {"mediaType": _CONFIG, "digest": self.put_blob(body), "size": len(body)}
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described, "layers": []}
        return json.dumps(manifest).encode()

    def _push(self, repository: str, body: bytes, media_type: str) -> tuple[str, int]:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self._manifests[repository, digest] = (media_type, body)
        return digest, len(body)

    def asked(self, route: Route | None = None) -> int:
        """How many requests of a route, or of all, the registry got."""
        return sum(route in (None, each.route) for each in self.requests if each.host == "registry")

    # -------------------------------------------------------------------------------------------------------- routes

    def applications(self) -> tuple[web.Application, web.Application, web.Application]:
        """The registry, its token server, and a host that is neither."""
        registry, token, other = web.Application(), web.Application(), web.Application()
        registry.router.add_get("/v2/_catalog", self._catalog)
        registry.router.add_get("/v2/{repository:.+}/tags/list", self._list_tags)
        registry.router.add_get("/v2/{repository:.+}/manifests/{reference}", self._manifest)
        registry.router.add_get("/v2/{repository:.+}/blobs/{digest}", self._blob)
        token.router.add_get("/token", self._token)
        other.router.add_get("/{path:.*}", self._other)
        return registry, token, other

    async def _catalog(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, "catalog", lambda _: self._page(request, "repositories", self._tags))

    async def _list_tags(self, request: web.Request) -> web.StreamResponse:
        def answer(repository: str) -> web.Response:
            if repository not in self._tags:
                return _error(404, "NAME_UNKNOWN")
            return self._page(request, "tags", self._tags[repository], name=repository)

        return await self._answered(request, "tags", answer)

    async def _manifest(self, request: web.Request) -> web.StreamResponse:
        def answer(repository: str) -> web.Response:
            reference = request.match_info["reference"]
            digest = self._tags.get(repository, {}).get(reference, reference)
            found = self._manifests.get((repository, digest))
            if found is None:
                return _error(404, "MANIFEST_UNKNOWN")
            media_type, body = found
            return web.Response(body=body, content_type=media_type, headers={"Docker-Content-Digest": digest})

        return await self._answered(request, "manifest", answer)

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        def answer(_repository: str) -> web.Response:
            body = self._blobs.get(request.match_info["digest"])
            return web.Response(body=body) if body is not None else _error(404, "BLOB_UNKNOWN")

        return await self._answered(request, "blob", answer)

    def _page(self, request: web.Request, field_: str, names: Iterable[str], **more: str) -> web.Response:
        """One page, in the registry's own size, with a Link to the next one."""
        last = request.query.get("last", "")
        rest = sorted(name for name in names if name > last)
        page = rest[: min(self._page_size, int(request.query.get("n", self._page_size)))]
        headers = {}
        if len(page) < len(rest):
            following = request.rel_url.update_query(last=page[-1])
            headers["Link"] = f'<{following}>; rel="next"'
        return web.json_response({**more, field_: page}, headers=headers)

    async def _answered(
        self, request: web.Request, route: Route, answer: Callable[[str], web.Response]
    ) -> web.StreamResponse:
        repository = request.match_info.get("repository", "")
        self._see(request, "registry", route, repository)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            if (played := await self._played(route, repository)) is not None:
                return played
            return self._challenge(request, repository) or answer(repository)
        finally:
            self.running -= 1

    async def _played(self, route: Route, repository: str) -> web.Response | None:
        match self.faults.take(route, repository):
            case HttpStatus(status=status, headers=headers):
                return web.Response(status=status, headers=headers)
            case Redirect(to=to, status=status):
                return web.Response(status=status, headers={"Location": to})
            case Hang(seconds=seconds):
                await asyncio.sleep(seconds)
            case Garbage(body=body, headers=headers):
                return web.Response(body=body, headers=headers)
            case None:
                pass
        return None

    # --------------------------------------------------------------------------------------------------- who asks

    def _challenge(self, request: web.Request, repository: str) -> web.Response | None:
        """401 for a client that does not say who it is; None for one that does."""
        given = request.headers.get("Authorization", "")
        if self._auth == "none" or given in self._accepted(repository):
            return None
        realm = self._realm or self._token_url
        wanted = f'Bearer realm="{realm}",service="local"' if self._auth == "token" else 'Basic realm="local"'
        return web.Response(status=401, headers={"WWW-Authenticate": wanted})

    def _accepted(self, repository: str) -> set[str]:
        if self._auth == "basic":
            return {_basic(user, password) for user, password in self._users.items()}
        scope = f"repository:{repository}:pull" if repository else "registry:catalog:*"
        return {f"Bearer {_token_for(user, scope)}" for user in (self._users or {"": ""})}

    async def _token(self, request: web.Request) -> web.StreamResponse:
        self._see(request, "token", "token", "")
        if (played := await self._played("token", "")) is not None:
            return played
        given = request.headers.get("Authorization", "")
        user = next((user for user, password in self._users.items() if given == _basic(user, password)), None)
        if self._users and user is None:
            return web.Response(status=401)
        return web.json_response({"token": _token_for(user or "", request.query.get("scope", "")), "expires_in": 300})

    async def _other(self, request: web.Request) -> web.StreamResponse:
        self._see(request, "other", "other", "")
        return web.Response(status=404)

    def _see(self, request: web.Request, host: str, route: Route | Literal["other"], repository: str) -> None:
        seen = SeenRequest(
            host=host,
            route=route,
            repository=repository,
            target=request.raw_path,
            authorization=request.headers.get("Authorization", ""),
        )
        self.requests.append(seen)


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _token_for(user: str, scope: str) -> str:
    return hashlib.sha256(f"{user}\0{scope}".encode()).hexdigest()


def _error(status: int, code: str) -> web.Response:
    return web.json_response({"errors": [{"code": code}]}, status=status)


@asynccontextmanager
async def container_registry(
    images: Iterable[Image] = (),
    *,
    auth: Auth = "none",
    users: Mapping[str, str] | None = None,
    page_size: int = 1000,
    realm: str | None = None,
    address: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[LocalRegistry]:
    """A registry with these images on a free port of this machine (or on `port`) while the context lasts.

    `users` are names with passwords; with ``auth="token"`` and no users everyone gets a token. `realm` replaces the
    address of the token server that the registry announces.
    """
    registry = LocalRegistry(images, auth=auth, users=users or {}, page_size=page_size, realm=realm)
    async with listening(registry.applications(), host=address, ports=(port, 0, 0)) as (first, token, other):
        registry.host = f"{address}:{first}"
        registry._token_url = f"http://{address}:{token}/token"
        registry.other = f"http://{address}:{other}"
        yield registry
