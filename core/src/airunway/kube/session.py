"""One HTTP session with one API server under one identity: credentials, TLS, timeouts, and classified errors.

It retries nothing, because only the caller knows what a failure means. (aiohttp itself repeats a GET, PUT or DELETE
once if the connection breaks before an answer, according to RFC 9110 §9.2.2; our PUTs have preconditions.)
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import orjson
from multidict import CIMultiDictProxy
from yarl import URL

from airunway.kube.config import ClientCertificate, ClusterConfig, tls_context
from airunway.kube.errors import (
    LONGEST_HINT,
    AnswerTooLarge,
    ConfigError,
    ConnectionFailed,
    RequestTimedOut,
    api_error,
)

log = logging.getLogger(__name__)

_GOODBYE = 0.1
"""Seconds that TLS connections get to shut down when a session closes."""

JSON = "application/json"

_NETWORK_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)

_MAX_REMEMBERED_WARNINGS = 256

_LONGEST_ERROR = 8 * 2**20
"""Bytes that are read of an error answer; a Status that quotes a refused object has fewer."""


def user_agent_of(component: str) -> str:
    """Returns ``airunway/<version> (<component>)``."""
    from airunway import __version__

    return f"airunway/{__version__} ({component})"


class Request(NamedTuple):
    """A request to the API server; `verb` and `resource` name it in `on_request`."""

    verb: str
    method: str
    path: str
    resource: str
    params: Mapping[str, str] | None = None
    body: object = None
    """Sent as JSON; None: nothing is sent."""
    media_type: str = JSON
    """The media type of the body."""
    accept: str = ""
    """A media type to request instead of plain JSON."""


class Session:
    """The connections. The parameters are those of `Client`."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str,
        timeout: float,
        watch_inactivity: float,
        on_request: Callable[[str, str, int, float], None] | None,
        on_warning: Callable[[str], None] | None,
    ) -> None:
        self.config = config
        self.timeout = timeout
        self.watch_inactivity = watch_inactivity
        self.on_request = on_request
        self._on_warning = on_warning or self._log_warning
        self._user_agent = user_agent
        self._warned: set[str] = set()
        self._http: aiohttp.ClientSession | None = None
        self._tls: tuple[ClientCertificate | None, ssl.SSLContext] | None = None
        self._proxy = config.proxy_url or None
        self.date = ""
        """The ``Date`` header of the newest answer: the server's clock."""

    async def open(self) -> None:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=[
                ("Accept", JSON),
                # For 34 MB of list on loopback: a sixth less CPU here, and no more in the API server (gzip costs less
                # than the TLS that it saves). The server compresses nothing below 128 KB and no watch.
                ("Accept-Encoding", "gzip"),
                ("User-Agent", self._user_agent),
                *self.config.headers,
            ],
            read_bufsize=2**20,
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None
            # Connections of cancelled requests are still shutting down, and aiohttp does not track them (see "Graceful
            # shutdown" in its documentation).
            await asyncio.sleep(_GOODBYE)

    async def read(self, request: Request, *, most: int | None = None) -> bytes:
        """Returns the whole body of a successful answer.

        Raises AnswerTooLarge for a body of more than `most` bytes, without reading the rest.
        """
        response = await self._send(request, aiohttp.ClientTimeout(total=self.timeout))
        what = f"{request.method} {request.path}"
        with _as_ours(what):
            async with response:
                if most is None:
                    return await response.read()
                parts: list[bytes] = []
                length = 0
                async for part in response.content.iter_any():
                    length += len(part)
                    if length > most:
                        response.close()  # in the middle of a body: the connection cannot be reused
                        raise AnswerTooLarge(f"{what}: more than {most} bytes")
                    parts.append(part)
                return b"".join(parts)

    async def stream(self, request: Request, *, silence: float | None = None) -> AsyncGenerator[bytes, None]:
        """Yields the body of a successful answer as it arrives, with a limit on silence instead of on the total time.

        `silence` is that limit in seconds; None: `watch_inactivity`; infinite: none.
        """
        quiet = self.watch_inactivity if silence is None else silence
        limits = aiohttp.ClientTimeout(
            total=None,
            sock_connect=min(self.timeout, self.watch_inactivity),
            sock_read=None if quiet == float("inf") else quiet,
        )
        response = await self._send(request, limits)
        try:
            with _as_ours(f"{request.verb} of {request.path}"):
                async for chunk in response.content.iter_any():
                    yield chunk
        finally:
            response.close()  # in the middle of a body: the connection cannot be reused

    async def _send(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Returns the response when the header of a success has arrived; raises every failure as one of our errors."""
        if self._http is None:
            raise RuntimeError("the client is not open: use `async with Client(...)`")
        credential = await self.config.credentials.credential()
        headers = credential.headers()
        if request.accept:
            headers["Accept"] = request.accept
        data: bytes | None = None
        if request.body is not None:
            data = orjson.dumps(request.body)
            headers["Content-Type"] = request.media_type
        query = f"?{_query(tuple(request.params.items()))}" if request.params else ""
        url = f"{self.config.server}{request.path}{query}"
        started = monotonic()
        status = 0
        try:
            with _as_ours(f"{request.method} {request.path}"):
                response = await self._http.request(
                    request.method,
                    URL(url, encoded=True),
                    data=data,
                    headers=headers,
                    timeout=limits,
                    allow_redirects=False,
                    proxy=self._proxy,
                    ssl=self._tls_for(credential.certificate),
                    server_hostname=self.config.tls_server_name or None,
                )
                status = response.status
                self.date = response.headers.get("Date", "")
                if "Warning" in response.headers:
                    self._report_warnings(response.headers)
                if status < 300:
                    return response
                async with response:
                    text = await _beginning(response)
        except ConnectionFailed as error:
            if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
                self._reread_ca()
            raise
        finally:
            if self.on_request is not None:
                self.on_request(request.verb, request.resource, status, monotonic() - started)
        if status == 401:
            self.config.credentials.invalidate(credential)
        raise api_error(status, _decode_lenient(text), retry_after=_retry_after(response.headers))

    def _tls_for(self, certificate: ClientCertificate | None) -> ssl.SSLContext | bool:
        if not self.config.server.startswith("https:"):
            return True
        if self._tls is None or self._tls[0] != certificate:
            self._tls = (certificate, tls_context(self.config, certificate))
        return self._tls[1]

    def _reread_ca(self) -> None:
        """Reads the CA again after the server's certificate was not trusted: the cluster may have replaced its CA."""
        path = self.config.ca_file
        if path is None:
            return
        try:
            found = path.read_bytes()
            if not found or found == self.config.ca_data:  # an empty file would select the system's authorities
                return
            config = replace(self.config, ca_data=found)
            tls_context(config, None)  # checks it: an incomplete file must not replace a good one
        except (OSError, ConfigError) as error:
            log.warning("the certificate authority cannot be read again: %s", error)
            return
        log.info("the certificate authority in %s has changed: using the new one", path)
        self.config, self._tls = config, None

    def _report_warnings(self, headers: CIMultiDictProxy[str]) -> None:
        for value in headers.getall("Warning"):
            text = value.split(" ", 2)[-1]  # after code and agent
            if len(text) >= 2 and text[0] == text[-1] == '"':
                text = re.sub(r"\\(.)", r"\1", text[1:-1])
            self._on_warning(text)

    def _log_warning(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < _MAX_REMEMBERED_WARNINGS:
            self._warned.add(text)
            log.warning("the API server warns: %s", text)


@lru_cache(maxsize=256)
def _query(params: tuple[tuple[str, str], ...]) -> str:
    """Returns the encoded query; cached, because nearly all writes have the same few."""
    return urlencode(params)


@contextmanager
def _as_ours(what: str) -> Iterator[None]:
    """Converts the errors of aiohttp and the operating system to ours."""
    try:
        yield
    except _NETWORK_ERRORS as error:
        text = _error_text(error)
        if isinstance(error, TimeoutError):
            raise RequestTimedOut(f"{what}: no answer in time ({text})") from error
        raise ConnectionFailed(f"{what}: {text}") from error


def _error_text(error: BaseException) -> str:
    """Returns what went wrong, without aiohttp's descriptions of its own objects."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host}:{error.port} is not trusted: {_reason(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"cannot connect to the proxy {error.host}:{error.port}: {_reason(error.os_error)}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        proxy = error.request_info.real_url
        return f"the proxy {proxy.host}:{proxy.port} refused the connection: {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {_reason(error.os_error)}"
    return str(error) or type(error).__name__


def _reason(cause: Exception) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)  # asyncio's own text describes a function call
    return str(cause)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The body of an error answer, cut at a length that no Status has: behind a proxy anything may answer."""
    text = bytearray()
    async for part in response.content.iter_any():
        text += part
        if len(text) > _LONGEST_ERROR:
            response.close()  # in the middle of a body: the connection cannot be reused
            break
    return bytes(text[:_LONGEST_ERROR])


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Retry-After", "")
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    return float(digits) if len(digits) < 10 else LONGEST_HINT


def _decode_lenient(text: bytes) -> Any:
    """Decodes an error body: a Status, or the text of a proxy before the server."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text.decode(errors="replace")
