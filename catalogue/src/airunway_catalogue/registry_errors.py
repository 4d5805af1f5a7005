"""What can go wrong with a registry: one tree of exceptions, each with a reason of `airunway.status`.

A message names the host and what to do, and never has a credential or text that a registry sent.
"""

from __future__ import annotations

import email.utils
import errno
import math
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp

from airunway_catalogue.addresses import InsideAddress, UntrustedHome

_LONGEST_RETRY_AFTER = 24 * 3600.0
"""A registry that asks for a longer time is asked again after this one."""


_UNTRUSTED = (
    "if an authority of your own has signed it, name a ConfigMap with that authority in the ModelSource's caBundle"
)


class RegistryError(Exception):
    """A registry did not give what was asked for."""

    def __init__(self, reason: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        """A reason of the registry of reasons."""
        self.message = message
        """One sentence."""
        self.retry_after = retry_after
        """Seconds that the registry asks to wait; None: it does not say."""


class Denied(RegistryError):
    """401 or 403, or a Secret that cannot be used: AuthFailed, Unauthorized, Forbidden, SecretNotFound."""


class Missing(RegistryError):
    """404: SourceNotFound or ImageNotFound."""


class RateLimited(RegistryError):
    """429."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__("RateLimited", message, retry_after=retry_after)


class ServerFailed(RegistryError):
    """5xx, or a status that no registry should have."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__("ServerError", message, retry_after=retry_after)


class Unreachable(RegistryError):
    """No answer: DNSFailure, ConnectionRefused, Timeout or DependenciesUnreachable."""


class BadAnswer(RegistryError):
    """An answer that cannot be used. With `image` it is the fault of one image, else that of the registry."""

    def __init__(self, message: str, *, image: bool = False) -> None:
        super().__init__("ServerError", message)
        self.image = image
        """Whether other images of the registry may be fine."""


class BadImage(BadAnswer):
    """One image, or what has its name, cannot be used; the others may be fine."""

    def __init__(self, message: str) -> None:
        super().__init__(message, image=True)


def error_of_status(
    status: int, headers: Mapping[str, str], *, host: str, missing: str, with_credentials: bool
) -> RegistryError:
    """The error for a status other than 200. `missing` is the reason of a 404; empty: it is an unexpected one."""
    wait = retry_after_of(headers)
    if status == 401:
        if with_credentials:
            return Denied("AuthFailed", f"{host} refuses the credentials (401): correct those in imagePullSecrets")
        text = f"{host} asks for credentials (401), or has no such repository: name a Secret in imagePullSecrets"
        return Denied("Unauthorized", text)
    if status == 403:
        return Denied("Forbidden", f"{host} denies access (403): the account has no right to read this")
    if status == 404 and missing:
        what = "repository" if missing == "SourceNotFound" else "image"
        return Missing(missing, f"{host} has no such {what} (404): correct its name")
    if status == 429:
        return RateLimited(f"{host} limits requests (429)", retry_after=wait)
    return ServerFailed(f"{host} answered {status}", retry_after=wait)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, as a number or as a date; None if it does not say."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal() and text.isascii() and len(text) <= 12:
        seconds = float(text)
    elif text and len(text) <= 64:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError, TypeError):
            return None
    else:
        return None
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None


@contextmanager
def translated(host: str, *, timeout: float) -> Iterator[None]:
    """Raises errors of the connection to `host` as errors of this tree."""
    try:
        yield
    except RegistryError:
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _error(error, host, timeout) from None  # the cause may have an address with a signature in it


def _error(error: Exception, host: str, timeout: float) -> RegistryError:
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError):
        return Unreachable(
            "DependenciesUnreachable", f"no secure connection to {host}: its certificate is not trusted; {_UNTRUSTED}"
        )
    if isinstance(error, aiohttp.InvalidURL):
        return BadAnswer(f"{host} has an address that is none")
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, UntrustedHome):
        return BadAnswer(f"{host} has {cause}: there a registry is asked only if a ModelSource names it")
    if isinstance(cause, InsideAddress):
        return BadAnswer(f"{host} is inside this network ({cause}), and the registry is not: it is not asked")
    if isinstance(error, aiohttp.ClientConnectorDNSError) or isinstance(cause, socket.gaierror):
        return Unreachable("DNSFailure", f"the name of {host} cannot be resolved")
    if isinstance(error, TimeoutError):
        return Unreachable("Timeout", f"{host} did not answer within {timeout:g} s")
    if getattr(cause, "errno", None) == errno.ECONNREFUSED or "Connect call failed" in str(cause):
        return Unreachable("ConnectionRefused", f"{host} refuses connections")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientOSError | aiohttp.ServerDisconnectedError):
        return Unreachable("DependenciesUnreachable", f"the connection to {host} failed")
    return ServerFailed(f"{host} answered with something that is no valid HTTP")
