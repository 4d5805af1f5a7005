"""The sources of our credentials for the API server: fixed credentials, files that rotate, and exec plugins.

A source is called before every request. It answers from memory unless its credential may have changed: a rotated token
is in use within `FILE_MAX_AGE` seconds, and a plugin runs once per lifetime of the credential that it returns.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from airunway.kube.errors import ConfigError
from airunway.resource import Resource, parse_time

__all__ = [
    "FILE_MAX_AGE",
    "ClientCertificate",
    "Credential",
    "CredentialSource",
    "ExecCredentials",
    "FileCredentials",
    "FixedCredentials",
]

FILE_MAX_AGE = 60.0
"""Seconds after which a token or certificate file is read again. Bound tokens rotate about hourly."""

_EXPIRY_MARGIN = 30.0
_EXEC_TIMEOUT = 60.0
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, kw_only=True)
class ClientCertificate:
    """A certificate chain and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Credential:
    """The credentials of one request. The defaults mean anonymous."""

    token: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: ClientCertificate | None = None

    def headers(self) -> dict[str, str]:
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.username:
            pair = b64encode(f"{self.username}:{self.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


class CredentialSource(Protocol):
    async def credential(self) -> Credential:
        """Returns the credential to use now. Raises ConfigError if there is none."""
        ...

    def invalidate(self) -> None:
        """Drops the remembered credential; call it after a 401."""
        ...


class FixedCredentials:
    """A credential that never changes."""

    def __init__(self, credential: Credential | None = None) -> None:
        self._credential = credential or Credential()

    async def credential(self) -> Credential:
        return self._credential

    def invalidate(self) -> None:
        """Does nothing: there is no other credential."""


class FileCredentials:
    """A token and/or a client certificate in files that another program rotates."""

    def __init__(
        self,
        *,
        token: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        max_age: float = FILE_MAX_AGE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._token, self._certificate, self._key = token, certificate, key
        self._max_age, self._clock = max_age, clock
        self._read_at = float("-inf")
        self._credential = Credential()

    async def credential(self) -> Credential:
        if self._clock() - self._read_at >= self._max_age:
            self._credential = self._read()
            self._read_at = self._clock()
        return self._credential

    def invalidate(self) -> None:
        self._read_at = float("-inf")

    def _read(self) -> Credential:
        token = _read_file(self._token).decode().strip() if self._token else ""
        certificate = None
        if self._certificate and self._key:
            certificate = ClientCertificate(certificate=_read_file(self._certificate), key=_read_file(self._key))
        return Credential(token=token, certificate=certificate)


class ExecCredentials:
    """A credential from an exec plugin of a kubeconfig (``users[].user.exec``).

    Runs the plugin through `kubernetes_asyncio`, which the extra ``exec-auth`` installs. The plugin does not get
    cluster details (`provideClusterInfo` has no effect) and cannot ask the user for input.
    """

    def __init__(self, spec: Resource, *, directory: Path, now: Callable[[], datetime] | None = None) -> None:
        version = spec.get("apiVersion")
        if version not in _EXEC_VERSIONS:
            raise ConfigError(
                f"exec plugin {spec.get('command')!r} speaks {version!r}; supported are {', '.join(_EXEC_VERSIONS)}"
            )
        if not isinstance(spec.get("command"), str) or not spec["command"]:
            raise ConfigError("exec plugin without a command: set users[].user.exec.command in the kubeconfig")
        self._spec = dict(spec)
        if "/" in spec["command"]:  # by the protocol a path is relative to the kubeconfig's directory
            self._spec["command"] = str(directory / spec["command"])
        self._now = now or (lambda: datetime.now(UTC))
        self._lock = asyncio.Lock()
        self._credential: Credential | None = None
        self._expires: datetime | None = None

    async def credential(self) -> Credential:
        async with self._lock:  # one run of the plugin for all requests that wait for it
            if self._credential is None or self._is_stale():
                self._credential, self._expires = await self._run()
            return self._credential

    def invalidate(self) -> None:
        self._credential = None

    def _is_stale(self) -> bool:
        return self._expires is not None and (self._expires - self._now()).total_seconds() < _EXPIRY_MARGIN

    async def _run(self) -> tuple[Credential, datetime | None]:
        command = self._spec["command"]
        status = await _run_plugin(self._spec)
        certificate = None
        if status.get("clientCertificateData") and status.get("clientKeyData"):
            certificate = ClientCertificate(
                certificate=str(status["clientCertificateData"]).encode(), key=str(status["clientKeyData"]).encode()
            )
        token = str(status.get("token") or "")
        if not token and certificate is None:
            raise ConfigError(f"exec plugin {command!r} returned neither a token nor a client certificate")
        return Credential(token=token, certificate=certificate), parse_time(status.get("expirationTimestamp"))


async def _run_plugin(spec: Mapping[str, Any]) -> Resource:
    try:
        from kubernetes_asyncio.config.config_exception import ConfigException
        from kubernetes_asyncio.config.exec_provider import ExecProvider
        from kubernetes_asyncio.config.kube_config import ConfigNode
    except ImportError as error:
        raise ConfigError(
            f"the kubeconfig signs in with the exec plugin {spec['command']!r}, which needs an extra: "
            "pip install 'airunway[exec-auth]'"
        ) from error
    command = spec["command"]
    try:
        provider = ExecProvider(ConfigNode("exec", dict(spec)))
        async with asyncio.timeout(_EXEC_TIMEOUT):
            status = await provider.run()
    except FileNotFoundError as error:
        hint = f"; {spec['installHint']}" if spec.get("installHint") else ""
        raise ConfigError(f"exec plugin {command!r} is not installed{hint}") from error
    except TimeoutError as error:
        raise ConfigError(f"exec plugin {command!r} did not answer within {_EXEC_TIMEOUT:.0f} s") from error
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigError(f"exec plugin {command!r} failed: {error}") from error
    if not isinstance(status, dict):
        raise ConfigError(f"exec plugin {command!r} returned no status object")
    return status


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the credential file {path}: {error.strerror or error}") from error


def decode_base64(text: object, *, where: str) -> bytes:
    """Decodes a base64 field. Raises ConfigError, which names the field `where`."""
    try:
        return binascii.a2b_base64(str(text), strict_mode=False)
    except binascii.Error as error:
        raise ConfigError(f"{where} is not base64: {error}") from error
