"""HTTP for downloads: proxies, redirects that keep the token at home, stalls, and failures with their reason."""

from __future__ import annotations

import email.utils
import json
import math
import re
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import IncompleteRead
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as UrllibTimeoutError

from airunway_downloader import __version__
from airunway_downloader.failures import Failure

BODY_LIMIT = 64 << 20
"""Bytes of the longest answer that is not a file."""

_CHUNK = 1 << 20
"""Bytes of a body that are read at a time, at most: what has arrived is not waited for."""
_DRAINED = 1 << 18
"""Bytes of a body that are read so that its connection can be used again."""
_REDIRECTS = 5
_REDIRECTED = {301, 302, 303, 307, 308}
_CONNECT_S = 30.0
_BODY_S = 300.0
"""Seconds that an answer that is not a file may take: one byte now and then is no answer."""
_UNTRUSTED = "if an authority of your own has signed its certificate, name a ConfigMap with that authority in caBundle"
_LONGEST_RETRY_AFTER = 86400.0
_RATE_LIMIT_RESET = re.compile(r";\s*t=(\d{1,6})\b")


class ShortBodyError(Exception):
    """A body ended before its announced length."""


class Response:
    """An answer whose body has not been read."""

    def __init__(self, response: urllib3.BaseHTTPResponse, *, url: str, asked: str) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.url = url
        self.host = _host(url)
        self.foreign = _origin(url) != _origin(asked)
        """Whether another server answered than the one that was asked."""
        self.read = 0
        """Bytes of the body that `body` has read."""

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives. Raises ShortBodyError, Failure."""
        with _translated(self.host):
            while chunk := self._response.read1(_CHUNK, decode_content=False):
                yield chunk

    def body(self, limit: int = BODY_LIMIT) -> bytes:
        """The whole body. Raises Failure, also for more than `limit` bytes."""
        found, until = bytearray(), time.monotonic() + _BODY_S
        try:
            for chunk in self.chunks():
                found += chunk
                self.read = len(found)
                if time.monotonic() > until:
                    raise Failure("Timeout", f"{self.host} did not end an answer within {_BODY_S:g} s")
                if len(found) > limit:
                    raise Failure("ServerError", f"{self.host} sent an answer of more than {limit >> 20} MiB")
        except ShortBodyError:
            raise Failure("DependenciesUnreachable", f"{self.host} closed the connection within an answer") from None
        return bytes(found)

    def json(self) -> Any:
        """The body as JSON. Raises Failure."""
        try:
            return json.loads(self.body())
        except (ValueError, RecursionError):
            raise Failure("ServerError", f"{self.host} sent an answer that is not JSON") from None


class Client:
    """Connections of one process; safe to use from several threads."""

    def __init__(self, *, stall: float, connections: int, ca_file: str = "") -> None:
        """`stall`: seconds without a byte after which a request ends. `ca_file`: certificates of authorities that count
        besides the system's. Raises Failure for a file that has none.
        """
        self._trust = _trust(ca_file)
        self._timeout = urllib3.Timeout(connect=min(_CONNECT_S, stall), read=stall)
        self._connections = connections
        self._proxies = urllib.request.getproxies_environment()
        self._pools: dict[str, urllib3.PoolManager] = {"": self._manager("")}
        for address in set(self._proxies.values()):
            self._pools.setdefault(address, self._manager(address))

    @contextmanager
    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        credentials: Mapping[str, str] | None = None,
        follow: bool = True,
    ) -> Iterator[Response]:
        """Ask a server; `credentials` are headers that no other server gets. Raises Failure."""
        sent = {
            "User-Agent": f"airunway-download/{__version__}",
            "Accept-Encoding": "identity",
            **(headers or {}),
        }
        target = url
        for _ in range(_REDIRECTS + 1):
            at_home = _origin(target) == _origin(url)
            response = self._send(method, target, {**sent, **((credentials or {}) if at_home else {})})
            try:
                location = response.headers.get("Location")
                if not follow or response.status not in _REDIRECTED or not location:
                    yield Response(response, url=target, asked=url)
                    location = None
                if _is_short(response):  # then the connection is good for the next request
                    response.drain_conn()
            finally:
                response.close()
            if location is None:
                return
            target = _redirected(target, location)
        raise Failure("ServerError", f"{_host(url)} redirects in circles")

    def _send(self, method: str, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        with _translated(_host(url)):
            return self._pool(url).request(
                method,
                url,
                headers=headers,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
                timeout=self._timeout,
            )

    def _pool(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        proxy = self._proxies.get(parts.scheme) or self._proxies.get("all", "")
        host = parts.netloc.rpartition("@")[2]
        if proxy and urllib.request.proxy_bypass_environment(host, self._proxies):  # type: ignore[attr-defined]
            proxy = ""
        return self._pools[proxy]

    def _manager(self, proxy: str) -> urllib3.PoolManager:
        if not proxy:
            return urllib3.PoolManager(maxsize=self._connections, ssl_context=self._trust)
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        headers = urllib3.make_headers(proxy_basic_auth=f"{user}:{password}") if user else None
        address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return urllib3.ProxyManager(
            address,
            proxy_headers=headers,
            maxsize=self._connections,
            ssl_context=self._trust,
            proxy_ssl_context=self._trust,
        )


def failure_of_status(response: Response) -> Failure:
    """What a status says that means the same everywhere: 429, 5xx, and what nobody expects."""
    wait = retry_after_of(response.headers)
    if response.status == 429:
        return Failure("RateLimited", f"{response.host} limits requests (429)", retry_after=wait)
    if response.status == 407:
        return Failure("DependenciesUnreachable", "the proxy asks for a password (407): set it in the proxy's address")
    return Failure("ServerError", f"{response.host} answered {response.status}", retry_after=wait)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: Retry-After as number or date, else the reset of its rate limit."""
    text = headers.get("Retry-After", "").strip()
    seconds: float | None = None
    if text.isdecimal() and text.isascii() and len(text) <= 12:
        seconds = float(text)
    elif text:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            seconds = None
    elif found := _RATE_LIMIT_RESET.search(headers.get("RateLimit", "")):
        seconds = float(found[1])
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER)


@contextmanager
def _translated(host: str) -> Iterator[None]:
    """Failures with a reason, in place of urllib3's."""
    try:
        yield
    except (HTTPError, OSError, ValueError) as error:
        if isinstance(error.__cause__, IncompleteRead):
            raise ShortBodyError from error
        raise _failure(error, host) from error


def _failure(error: BaseException, host: str) -> Failure:
    if isinstance(error, ProxyError):
        inner = _failure(error.original_error, "the proxy")
        return Failure(inner.reason, f"through the proxy to {host}: {inner.message}")
    if isinstance(error, NameResolutionError):
        return Failure("DNSFailure", f"the name {host} cannot be resolved")
    if isinstance(error, NewConnectionError):  # urllib3 counts it as a time-out too
        refused = isinstance(error.__cause__, ConnectionRefusedError)
        words = f"{host} refuses connections" if refused else f"no connection to {host}: {error.__cause__ or error}"
        return Failure("ConnectionRefused" if refused else "DependenciesUnreachable", words)
    if isinstance(error, ConnectTimeoutError):
        return Failure("Timeout", f"{host} does not answer: no connection within the time limit")
    if isinstance(error, ReadTimeoutError | UrllibTimeoutError | TimeoutError):
        return Failure("Timeout", f"{host} sent no byte within the time limit")
    if isinstance(error, SSLError):
        todo = f"; {_UNTRUSTED}" if "CERTIFICATE_VERIFY_FAILED" in str(error) else ""
        return Failure("DependenciesUnreachable", f"no secure connection to {host}: {error}{todo}")
    if isinstance(error, LocationParseError | ValueError):
        return Failure("InvalidSpec", f"{host} is no valid address: {error}")
    return Failure("DependenciesUnreachable", f"connection to {host} failed: {error}")


def _trust(ca_file: str) -> ssl.SSLContext:
    """The system's authorities, and those of a file. Raises Failure (InvalidSpec)."""
    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:  # SSLError is one: the file has no certificate, or is not PEM
            why = error.strerror if error.strerror and not isinstance(error, ssl.SSLError) else "no certificate in PEM"
            raise Failure("InvalidSpec", f"the key of the ConfigMap of caBundle cannot be read: {why}") from None
    return context


def _redirected(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
        scheme = _origin(target)[0]
    except ValueError:
        raise Failure("ServerError", f"{_host(url)} redirects to an address that is none") from None
    if scheme not in ("http", "https") or (scheme == "http" and urlsplit(url).scheme == "https"):
        raise Failure("ServerError", f"{_host(url)} redirects to an address that is not https")
    return target


def _is_short(response: urllib3.BaseHTTPResponse) -> bool:
    remaining = getattr(response, "length_remaining", None)
    return remaining is not None and remaining <= _DRAINED


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2] or url
