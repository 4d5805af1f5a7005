"""Address and credentials of the API server: from kubeconfig files, or from the pod's service account.

A source of credentials is called before every request. It answers from memory unless its credential may have changed: a
rotated token is in use within `FILE_MAX_AGE` seconds, and a plugin runs once per lifetime of the credential that it
returns.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import os
import signal
import ssl
import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import yaml

from airunway.kube.errors import ConfigError
from airunway.kube.proxies import checked, proxy_of
from airunway.resource import Resource, dig, entries_at, parse_time, text_at

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")

FILE_MAX_AGE = 60.0
"""Seconds after which a token or certificate file is read again. Bound tokens rotate about hourly."""

_EXPIRY_MARGIN = 30.0
_EXEC_TIMEOUT = 60.0
_LAST_WORDS = 500
"""Characters of what a plugin that fails has written to standard error."""

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

    def invalidate(self, credential: Credential) -> None:
        """Drops this credential if it is still the remembered one; call it after a 401.

        Requests that are under way when a credential ends all get a 401: only the first drops anything.
        """
        ...


class FixedCredentials:
    """A credential that never changes."""

    def __init__(self, credential: Credential | None = None) -> None:
        self._credential = credential or Credential()

    async def credential(self) -> Credential:
        return self._credential

    def invalidate(self, credential: Credential) -> None:
        """Does nothing: there is no other credential."""


class FileCredentials:
    """A token and/or a client certificate in files that another program rotates."""

    def __init__(
        self,
        *,
        token: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._token, self._certificate, self._key = token, certificate, key
        self._clock = clock
        self._read_at = float("-inf")
        self._credential = Credential()

    async def credential(self) -> Credential:
        if self._clock() - self._read_at >= FILE_MAX_AGE:
            token = _read_file(self._token).decode().strip() if self._token else ""
            certificate = None
            if self._certificate and self._key:
                certificate = ClientCertificate(certificate=_read_file(self._certificate), key=_read_file(self._key))
            self._credential = Credential(token=token, certificate=certificate)
            self._read_at = self._clock()
        return self._credential

    def invalidate(self, credential: Credential) -> None:
        if credential is self._credential:
            self._read_at = float("-inf")


class ExecCredentials:
    """A credential from an exec plugin of a kubeconfig (``users[].user.exec``).

    The plugin does not get cluster details (`provideClusterInfo` has no effect) and cannot ask the user for input.
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
            left = None if self._expires is None else (self._expires - self._now()).total_seconds()
            if self._credential is None or (left is not None and left < _EXPIRY_MARGIN):
                self._credential, self._expires = await self._run()
            return self._credential

    def invalidate(self, credential: Credential) -> None:
        if credential is self._credential:
            self._credential = None

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


async def _run_plugin(spec: Resource) -> Resource:
    """The ``status`` that the plugin prints. Raises ConfigError."""
    command = str(spec["command"])
    info = {"apiVersion": spec["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    given = {text_at(each, "name"): text_at(each, "value") for each in entries_at(spec, "env")}
    environment = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *map(str, spec.get("args") or ()),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that it can be ended together with what it has started
        )
    except FileNotFoundError as error:
        hint = f"; {spec['installHint']}" if spec.get("installHint") else ""
        raise ConfigError(f"exec plugin {command!r} is not installed{hint}") from error
    except OSError as error:
        raise ConfigError(f"exec plugin {command!r} cannot be run: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(_EXEC_TIMEOUT):
            out, said = await process.communicate()
    except TimeoutError as error:
        raise ConfigError(f"exec plugin {command!r} did not answer within {_EXEC_TIMEOUT:.0f} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        words = said.decode(errors="replace").strip()[-_LAST_WORDS:] or "it says nothing"
        raise ConfigError(f"exec plugin {command!r} failed with exit code {process.returncode}: {words}")
    try:
        answer = json.loads(out)
    except ValueError as error:
        raise ConfigError(f"exec plugin {command!r} printed no JSON: {error}") from error
    if (spoken := dig(answer, "apiVersion")) != spec["apiVersion"]:
        raise ConfigError(
            f"exec plugin {command!r} answers with {spoken!r}, which does not match apiVersion {spec['apiVersion']!r} "
            "of the kubeconfig"
        )
    status = dig(answer, "status")
    if not isinstance(status, dict):
        raise ConfigError(f"exec plugin {command!r} returned no status object")
    return status


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the credential file {path}: {error.strerror or error}") from error


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """One API server and one identity."""

    server: str
    namespace: str = "default"
    """The namespace of the context or of the pod."""
    ca_data: bytes = b""
    ca_file: Path | None = None
    """The file of `ca_data`, if any. It is read again after a TLS failure, because clusters replace their CA."""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    """The HTTP proxy to use, of the kubeconfig or of the environment; empty: none."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with every request (impersonation)."""
    credentials: CredentialSource = field(default_factory=FixedCredentials)


def load_config(*, kubeconfig: str | Path | None = None, context: str | None = None) -> ClusterConfig:
    """Returns the configuration of the first of: `kubeconfig`, ``$KUBECONFIG``, ``~/.kube/config``, the pod.

    ``$KUBECONFIG`` may list several files, separated as in ``$PATH``: the first file with a cluster, user or context
    wins, as with kubectl. Raises ConfigError, which names the file and the field.
    """
    explicit = kubeconfig is not None or bool(os.environ.get("KUBECONFIG")) or context is not None
    if kubeconfig is not None:
        paths = [Path(kubeconfig)]
        if not paths[0].is_file():
            raise ConfigError(f"there is no kubeconfig at {kubeconfig}")
    elif os.environ.get("KUBECONFIG"):
        paths = [Path(p) for p in os.environ["KUBECONFIG"].split(os.pathsep) if p]
    else:
        paths = [Path.home() / ".kube" / "config"]
    files = [path for path in paths if path.is_file()]
    if files:
        return _from_files(files, context)
    if explicit:
        raise ConfigError(f"there is no kubeconfig at {', '.join(map(str, paths))}")
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster_config()
    raise ConfigError(
        "no cluster to talk to: pass --kubeconfig, set KUBECONFIG, create ~/.kube/config, or run in a pod"
    )


def in_cluster_config(
    *, directory: Path = SERVICE_ACCOUNT_DIRECTORY, environ: Mapping[str, str] = os.environ
) -> ClusterConfig:
    """Returns the configuration from the pod's environment and its mounted service account. Raises ConfigError."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("not running in a pod: KUBERNETES_SERVICE_HOST is not set")
    try:
        ca_data = (directory / "ca.crt").read_bytes()
        (directory / "token").read_bytes()  # a pod without a token must fail here, not at its first request
    except OSError as error:
        raise ConfigError(
            f"the service account is not mounted at {directory} ({error.strerror}): "
            "set automountServiceAccountToken: true"
        ) from error
    namespace_file = directory / "namespace"
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return ClusterConfig(
        server=server,
        proxy_url=proxy_of(server, environ),
        namespace=namespace_file.read_text().strip() if namespace_file.is_file() else "default",
        ca_data=ca_data,
        ca_file=directory / "ca.crt",
        credentials=FileCredentials(token=directory / "token"),
    )


def tls_context(config: ClusterConfig, certificate: ClientCertificate | None) -> ssl.SSLContext:
    """Returns a TLS context with the cluster's CA and the client `certificate`. Raises ConfigError for bad PEM data."""
    try:
        context = ssl.create_default_context(cadata=config.ca_data.decode() if config.ca_data else None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the certificate authority for {config.server} cannot be used: {error}") from error
    # Python sets this from 3.13 on. It refuses authorities without key identifiers, as those of EKS and MicroK8s are;
    # kubectl accepts them. Chain, expiry and host name are checked all the same.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        # Python reads client certificates only from files; this file is deleted before the function returns.
        with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
            pem.write(certificate.certificate.rstrip() + b"\n" + certificate.key)
            pem.flush()
            try:
                context.load_cert_chain(pem.name)
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(f"the client certificate for {config.server} cannot be used: {error}") from error
    return context


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """An entry of a kubeconfig, and the file that has it: paths in it are relative to that file."""

    body: Resource
    file: Path


def _from_files(files: list[Path], context: str | None) -> ClusterConfig:
    """Returns the configuration of a context (None: the current one) of these kubeconfigs."""
    current = ""
    sections: dict[str, dict[str, _Entry]] = {"cluster": {}, "user": {}, "context": {}}
    for path in files:
        document = _read_yaml(path)
        current = current or str(document.get("current-context") or "")
        for what, found in sections.items():
            for name, body in _entries_of(document, what, path).items():
                found.setdefault(name, _Entry(body=body, file=path))
    where = ", ".join(map(str, files))

    def lookup(what: str, name: str) -> _Entry:
        found = sections[what]
        if name not in found:
            there = ", ".join(sorted(found)) or "none"
            raise ConfigError(f"kubeconfig {where} has no {what} {name!r}; it has {there}")
        return found[name]

    name = context or current
    if not name:
        raise ConfigError(f"kubeconfig {where} has no current-context: run `kubectl config use-context <name>`")
    chosen = lookup("context", name).body
    cluster = lookup("cluster", str(chosen.get("cluster") or ""))
    server = str(cluster.body.get("server") or "")
    if urlsplit(server).scheme not in ("http", "https"):
        raise ConfigError(f"kubeconfig {cluster.file}: cluster {chosen.get('cluster')!r} has no http(s) server URL")
    user_name = str(chosen.get("user") or "")
    user = lookup("user", user_name) if user_name else None
    return ClusterConfig(
        server=server.rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        ca_data=_data_or_file(cluster, "certificate-authority"),
        insecure_skip_tls_verify=bool(cluster.body.get("insecure-skip-tls-verify")),
        tls_server_name=str(cluster.body.get("tls-server-name") or ""),
        proxy_url=_proxy(cluster) or proxy_of(server, os.environ),
        headers=_impersonation(user) if user else (),
        credentials=_credentials(user, name=user_name) if user else FixedCredentials(),
    )


def _proxy(cluster: _Entry) -> str:
    url = str(cluster.body.get("proxy-url") or "")
    return checked(url, f"kubeconfig {cluster.file}: proxy-url") if url else ""


def _read_yaml(path: Path) -> Resource:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig {path} is not YAML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"kubeconfig {path} is nested too deeply") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path} is not an object")
    return document


def _entries_of(document: Resource, what: str, path: Path) -> dict[str, Resource]:
    """Returns the clusters, users or contexts of a kubeconfig by name; of two with one name the first."""
    section = f"{what}s"
    entries = document.get(section) or []
    if not isinstance(entries, list):
        raise ConfigError(f"kubeconfig {path}: {section} is not a list")
    found: dict[str, Resource] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not entry.get("name"):
            raise ConfigError(f"kubeconfig {path}: an entry of {section} has no name")
        body = entry.get(what) or {}
        if not isinstance(body, dict):
            raise ConfigError(f"kubeconfig {path}: {section} {entry['name']!r} has no {what} object")
        found.setdefault(str(entry["name"]), body)
    return found


def _path_of(entry: _Entry, name: str) -> Path | None:
    value = entry.body.get(name)
    return entry.file.parent / str(value) if value else None


def _data_or_file(entry: _Entry, name: str) -> bytes:
    """Returns `<name>-data` (base64), or else the content of the file `<name>`, as client-go does."""
    data = entry.body.get(f"{name}-data")
    if data:
        try:
            return binascii.a2b_base64(str(data), strict_mode=False)
        except binascii.Error as error:
            raise ConfigError(f"{name}-data in kubeconfig {entry.file} is not base64: {error}") from error
    path = _path_of(entry, name)
    if path is None:
        return b""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"kubeconfig {entry.file}: cannot read {name} {path}: {error.strerror or error}") from error


def _credentials(user: _Entry, *, name: str) -> CredentialSource:
    body = user.body
    if body.get("auth-provider"):
        raise ConfigError(
            f"kubeconfig {user.file}: user {name!r} uses auth-provider, which Kubernetes removed in 1.26: "
            "use an exec plugin instead"
        )
    if body.get("exec"):
        return ExecCredentials(body["exec"], directory=user.file.parent)
    embedded: Callable[[str], Any] = body.get
    in_files = not embedded("client-certificate-data") and not embedded("client-key-data") and not embedded("token")
    token, certificate, key = (_path_of(user, n) for n in ("tokenFile", "client-certificate", "client-key"))
    if bool(certificate or embedded("client-certificate-data")) != bool(key or embedded("client-key-data")):
        raise ConfigError(f"kubeconfig {user.file}: user {name!r} needs both a client certificate and a client key")
    if in_files and (token or certificate):
        return FileCredentials(token=token, certificate=certificate, key=key)
    certificate_data = _data_or_file(user, "client-certificate")
    return FixedCredentials(
        Credential(
            token=str(embedded("token") or ""),
            username=str(embedded("username") or ""),
            password=str(embedded("password") or ""),
            certificate=ClientCertificate(certificate=certificate_data, key=_data_or_file(user, "client-key"))
            if certificate_data
            else None,
        )
    )


def _impersonation(user: _Entry) -> tuple[tuple[str, str], ...]:
    """Returns the headers for ``as``, ``as-uid``, ``as-groups`` and ``as-user-extra``; header names may repeat."""
    body = user.body
    groups, extra = body.get("as-groups") or [], body.get("as-user-extra") or {}
    if not isinstance(groups, list) or not isinstance(extra, dict):
        raise ConfigError(f"kubeconfig {user.file}: as-groups must be a list and as-user-extra an object")
    pairs = [("Impersonate-User", body.get("as")), ("Impersonate-Uid", body.get("as-uid"))]
    pairs += [("Impersonate-Group", group) for group in groups]
    pairs += [(f"Impersonate-Extra-{quote(str(k), safe='')}", v) for k, values in extra.items() for v in values]
    return tuple((header, str(value)) for header, value in pairs if value)
