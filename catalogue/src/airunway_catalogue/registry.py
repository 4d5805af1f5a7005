"""A client of container registries (OCI distribution API): repositories, tags, labels and entrypoints of images.

A registry is not trusted. Every answer has a bound in bytes and in time, and redirects and token servers are followed
only to addresses of the registry's own kind: a registry on the internet cannot make this process ask ``127.0.0.1`` or
the metadata service of a cloud. Credentials are sent to the registry and to the token server that it announces, and
nowhere else.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from airunway.resource import dig, list_at
from airunway_catalogue import __version__
from airunway_catalogue.addresses import (
    DIGEST,
    TAG,
    AddressGuard,
    GuardedResolver,
    Kind,
    RegistryAddress,
    is_repository,
    kind_of,
)
from airunway_catalogue.credentials import Challenge, Credentials, challenges_in
from airunway_catalogue.registry_errors import (
    BadAnswer,
    BadImage,
    RegistryError,
    error_of_status,
    translated,
)

_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_NEXT = re.compile(r"<([^<>]{1,4096})>\s*;[^,]*\brel=\"?next\"?", re.IGNORECASE)

_MOST_VARIANTS = 1024
_REDIRECTS = 5
_MOST_WORDS, _LONGEST_WORD = 32, 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of what is read from one registry."""

    connect: float = 10.0
    """Seconds until a connection is there."""
    request: float = 30.0
    """Seconds until an answer is there, to its last byte."""
    page: int = 8 * 2**20
    """Bytes of one page of tags or repositories."""
    manifest: int = 4 * 2**20
    """Bytes of a manifest."""
    config: int = 4 * 2**20
    """Bytes of an image's configuration, in which its labels are."""
    token: int = 256 * 2**10
    """Bytes of a token server's answer."""
    names: int = 100_000
    """Tags of a repository, or repositories of a registry, that are read."""
    pages: int = 2_000
    """Pages of one list that are read."""
    at_once: int = 8
    """Requests at a time."""


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    at_home: bool
    """Whether the registry itself gave it, and no host to which it redirected."""
    url: URL


class Registry:
    """One registry, with the credentials of one user. Used as an asynchronous context; raises RegistryError.

    `trusted`: an administrator has named the registry; one that a user has named may not be on this machine. `kind`
    says of what kind an address is (tests replace it). `authorities`: certificates in PEM that it is trusted by besides
    the public ones. Raises RegistryError if they cannot be read.
    """

    def __init__(
        self,
        address: RegistryAddress,
        *,
        credentials: Credentials | None = None,
        limits: Limits | None = None,
        trusted: bool = True,
        authorities: str = "",
        kind: Callable[[str], Kind] = kind_of,
    ) -> None:
        self.address = address
        self._trust = _trust(authorities)
        self.limits = limits or Limits()
        self._credentials = credentials
        self._home = address.url
        self._guard = AddressGuard(str(self._home.host), trusted=trusted, kind=kind)
        self._places = asyncio.Semaphore(self.limits.at_once)
        self._authorizing = asyncio.Lock()
        self._authorizations: dict[str, str] = {}
        """The header for each scope; for "" that for all scopes."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(self._guard), use_dns_cache=False, limit=self.limits.at_once, ssl=self._trust
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=self.limits.request, sock_connect=self.limits.connect),
            headers={"User-Agent": f"airunway-catalogue/{__version__}", "Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    # ---------------------------------------------------------------------------------------------------- what there is

    def repositories(self) -> AsyncGenerator[str]:
        """All repositories, if the registry tells them."""
        return self._listed("v2/_catalog", "repositories", scope="registry:catalog:*", accepted=is_repository)

    def tags(self, repository: str) -> AsyncGenerator[str]:
        """The tags of a repository; names that no tag may have are left out."""
        return self._listed(
            f"v2/{repository}/tags/list",
            "tags",
            scope=_pull(repository),
            accepted=lambda tag: isinstance(tag, str) and TAG.fullmatch(tag) is not None,
        )

    async def _listed(
        self, path: str, field: str, *, scope: str, accepted: Callable[[object], bool]
    ) -> AsyncGenerator[str]:
        """The entries of a list, page after page, each once. At most as many as the limits say, and one more."""
        url, known = self._home.join(URL(f"/{path}?n=1000")), set[str]()
        for _ in range(self.limits.pages):
            answer = await self._get(url, limit=self.limits.page, scope=scope, missing="SourceNotFound")
            document = self._json(answer, field)
            entries = document.get(field)
            if entries is None:  # an empty repository
                return
            if not isinstance(entries, list):
                raise BadAnswer(f"{self.address.host} answered with {field} that are no list")
            before = len(known)
            for entry in entries:
                if accepted(entry) and entry not in known:
                    known.add(entry)
                    yield entry
                    if len(known) > self.limits.names:
                        return
            following = self._next(answer)
            if following is None or len(known) == before:  # a page without a new entry would come for ever
                return
            url = following

    def _next(self, answer: _Answer) -> URL | None:
        found = next((match for each in answer.headers.getall("Link", ()) if (match := _NEXT.search(each))), None)
        if found is None:
            return None
        try:
            url = answer.url.join(URL(found[1]))
            same = url.origin() == self._home.origin()
        except ValueError:
            same = False
        if not same:
            raise BadAnswer(f"{self.address.host} names another host for the next page of its list")
        return url

    async def labels(self, repository: str, tag: str) -> tuple[dict[str, object], str]:
        """The labels of an image, and the digest by which it has exactly these: of the one for linux/amd64, where there
        are several. Raises BadImage where there is something else than an image.
        """
        configuration, digest = await self._configuration(repository, tag)
        labels = configuration.get("Labels")
        return labels if isinstance(labels, dict) else {}, digest

    async def entrypoint(self, repository: str, reference: str) -> tuple[str, ...]:
        """The entrypoint of the image with this tag or digest; empty: it has none. Raises BadImage."""
        configuration, _ = await self._configuration(repository, reference)
        words = configuration.get("Entrypoint") or []
        if not isinstance(words, list) or len(words) > _MOST_WORDS:
            raise BadImage("its entrypoint is no list of words")
        if not all(isinstance(each, str) and len(each) <= _LONGEST_WORD and "\0" not in each for each in words):
            raise BadImage(f"its entrypoint has a word that is no text of at most {_LONGEST_WORD} characters")
        return tuple(words)

    async def _configuration(self, repository: str, reference: str) -> tuple[dict[str, object], str]:
        """How an image is run: of the one for linux/amd64, where there are several; and the digest of what the
        reference leads to.
        """
        manifest, read = await self._manifest(repository, reference)
        if "manifests" in manifest:
            manifest, _ = await self._manifest(repository, _for_linux(manifest))
            if "manifests" in manifest:
                raise BadImage("its index names another index")
        config = manifest.get("config")
        if not isinstance(config, dict):
            raise BadImage("its manifest has no configuration")
        if config.get("mediaType") not in _CONFIGS:
            raise BadImage("it is no container image")
        digest = config.get("digest")
        url = self._home.join(URL(f"/v2/{repository}/blobs/{_digest(digest)}"))
        answer = await self._get(url, limit=self.limits.config, scope=_pull(repository), missing="ImageNotFound")
        _verify(answer.body, str(digest))
        document = self._json(answer, "configuration", image=True)
        inner = document.get("config")
        return inner if isinstance(inner, dict) else {}, read

    async def _manifest(self, repository: str, reference: str) -> tuple[dict[str, object], str]:
        """A manifest, and the digest of what was read."""
        url = self._home.join(URL(f"/v2/{repository}/manifests/{reference}"))
        answer = await self._get(
            url,
            limit=self.limits.manifest,
            scope=_pull(repository),
            missing="ImageNotFound",
            accept=", ".join((*_MANIFESTS, *_INDEXES)),
        )
        if DIGEST.fullmatch(reference):
            _verify(answer.body, reference)
        return self._json(answer, "manifest", image=True), f"sha256:{hashlib.sha256(answer.body).hexdigest()}"

    def _json(self, answer: _Answer, what: str, *, image: bool = False) -> dict[str, object]:
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            return document
        if image:
            raise BadImage(f"its {what} is no JSON object")
        raise BadAnswer(f"{self.address.host} answered with something else than a list of {what}")

    # -------------------------------------------------------------------------------------------------------- requests

    async def _get(
        self, url: URL, *, limit: int, scope: str, missing: str, accept: str = "application/json"
    ) -> _Answer:
        async with self._places:
            used = self._authorization(scope)
            answer = await self._followed(url, accept=accept, authorization=used, limit=limit)
            if answer.status == 401 and answer.at_home and await self._authorize(answer, scope, used=used):
                used = self._authorization(scope)
                answer = await self._followed(url, accept=accept, authorization=used, limit=limit)
        if answer.status == 200:
            return answer
        host = self.address.host if answer.at_home else f"a host to which {self.address.host} redirects"
        raise error_of_status(
            answer.status, answer.headers, host=host, missing=missing, with_credentials=self._credentials is not None
        )

    async def _followed(self, url: URL, *, accept: str, authorization: str, limit: int) -> _Answer:
        """The answer after redirects; only the registry itself gets the authorization."""
        home = True
        for _ in range(_REDIRECTS + 1):
            home = home and url.origin() == self._home.origin()
            headers = {"Accept": accept, **({"Authorization": authorization} if authorization and home else {})}
            answer = await self._send(url, headers=headers, limit=limit, at_home=home)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            url = self._target(url, answer)
        raise BadAnswer(f"{self.address.host} redirects more than {_REDIRECTS} times")

    def _target(self, url: URL, answer: _Answer) -> URL:
        try:
            target = url.join(URL(answer.headers.get("Location", "")))
            known = target.scheme in ("http", "https") and bool(target.host)
        except ValueError:
            known = False
        if not known:
            raise BadAnswer(f"{self.address.host} redirects to something that is no address")
        if target.scheme == "http" and url.scheme == "https":
            raise BadAnswer(f"{self.address.host} redirects to an address that is not https")
        return target.with_user(None) if target.user or target.password else target

    async def _send(self, url: URL, *, headers: Mapping[str, str], limit: int, at_home: bool) -> _Answer:
        assert self._session is not None, "a Registry is used as a context"
        where = self.address.host if at_home else f"a host to which {self.address.host} refers"
        with translated(where, timeout=self.limits.request):
            self._guard.check_literal(str(url.host))
            async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                body = b""
                if response.status == 200:
                    body = await _body(response, limit)
                    if len(body) > limit:
                        raise BadAnswer(f"{where} answered with more than {limit} bytes", image=True)
                return _Answer(response.status, response.headers, body, at_home, url)

    # --------------------------------------------------------------------------------------------------- authorization

    def _authorization(self, scope: str) -> str:
        return self._authorizations.get(scope) or self._authorizations.get("", "")

    async def _authorize(self, answer: _Answer, scope: str, *, used: str) -> bool:
        """Get what the registry asks for; whether there is something new to try."""
        async with self._authorizing:
            if self._authorization(scope) != used:  # another request got it in the meantime
                return True
            self._authorizations.pop(scope, None)
            for challenge in challenges_in(answer.headers.getall("WWW-Authenticate", ())):
                if challenge.scheme == "bearer" and challenge.realm:
                    self._authorizations[scope] = f"Bearer {await self._token(challenge, scope)}"
                    return True
                if challenge.scheme == "basic" and self._credentials is not None:
                    self._authorizations[""] = self._credentials.basic
                    return self._credentials.basic != used
            return False

    async def _token(self, challenge: Challenge, scope: str) -> str:
        """A token from the server that the registry announces."""
        host = self.address.host
        try:
            realm = URL(challenge.realm)
            known = realm.scheme in ("http", "https") and bool(realm.host) and not realm.user and not realm.password
        except ValueError:
            known = False
        if not known:
            raise BadAnswer(f"{host} announces a token server that is no address")
        if realm.scheme != "https" and not self.address.insecure:
            raise BadAnswer(f"{host} announces a token server that is not https: credentials are not sent there")
        query = {**({"service": challenge.service} if challenge.service else {}), "scope": scope}
        url = realm.update_query(query)
        headers = {"Accept": "application/json"}
        if self._credentials is not None:
            headers["Authorization"] = self._credentials.basic
        answer = await self._send(url, headers=headers, limit=self.limits.token, at_home=False)
        if answer.status != 200:
            raise error_of_status(
                answer.status,
                answer.headers,
                host=f"the token server of {host}",
                missing="",
                with_credentials=self._credentials is not None,
            )
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError):
            document = None
        found = (document.get("token") or document.get("access_token")) if isinstance(document, dict) else None
        if not isinstance(found, str) or not _TOKEN.fullmatch(found):
            raise BadAnswer(f"the token server of {host} answered without a token")
        return found


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body, or a little more than `limit` bytes of it."""
    pieces, size = [], 0
    async for piece in response.content.iter_chunked(2**16):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            response.close()
            break
    return b"".join(pieces)


def _pull(repository: str) -> str:
    return f"repository:{repository}:pull"


def _digest(value: object) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise BadImage("its manifest has a digest that is no sha256")
    return value


def _verify(body: bytes, digest: str) -> None:
    if hashlib.sha256(body).hexdigest() != digest.removeprefix("sha256:"):
        raise BadImage("the registry answered with other content than the digest says")


def _for_linux(index: Mapping[str, object]) -> str:
    """The digest of the image for linux/amd64, else of the first one for linux."""
    found: list[tuple[object, str]] = []
    for entry in list_at(index, "manifests")[:_MOST_VARIANTS]:
        os, media = dig(entry, "platform", "os"), dig(entry, "mediaType", default=_MANIFESTS[0])
        if os == "linux" and media in _MANIFESTS:
            found.append((dig(entry, "platform", "architecture"), _digest(dig(entry, "digest"))))
    if not found:
        raise BadImage("it has no variant for linux")
    return next((digest for architecture, digest in found if architecture == "amd64"), found[0][1])


def _trust(authorities: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authorities:
        try:
            context.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError):
            text = "spec.caBundle: the key of its ConfigMap has no certificate in PEM"
            raise RegistryError("InvalidSpec", text) from None
    return context
