"""Address and credentials of the API server: from kubeconfig files, or from the pod's service account."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import yaml

from airunway.kube.credentials import (
    ClientCertificate,
    Credential,
    CredentialSource,
    ExecCredentials,
    FileCredentials,
    FixedCredentials,
    decode_base64,
)
from airunway.kube.errors import ConfigError
from airunway.resource import Resource

__all__ = ["SERVICE_ACCOUNT_DIRECTORY", "ClusterConfig", "in_cluster_config", "load_config", "tls_context"]

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")

T = TypeVar("T")


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
        return _from_kubeconfig(_merged(files), context=context)
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
    return ClusterConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
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


def proxy_of(server: str) -> str:
    """Returns the proxy from the environment (``HTTPS_PROXY``, ``NO_PROXY``, …), or an empty string."""
    parts = urlsplit(server)
    proxies = getproxies_environment()
    if parts.scheme not in proxies or proxy_bypass(parts.hostname or ""):
        return ""
    return proxies[parts.scheme]


@dataclass(frozen=True, kw_only=True)
class _Entry:
    body: Resource
    file: Path


@dataclass(frozen=True, kw_only=True)
class _Merged:
    files: list[Path]
    current: str
    clusters: dict[str, _Entry]
    users: dict[str, _Entry]
    contexts: dict[str, _Entry]


def _merged(files: list[Path]) -> _Merged:
    merged = _Merged(files=files, current="", clusters={}, users={}, contexts={})
    current = ""
    for path in files:
        document = _read_yaml(path)
        current = current or str(document.get("current-context") or "")
        for section, key, into in (
            ("clusters", "cluster", merged.clusters),
            ("users", "user", merged.users),
            ("contexts", "context", merged.contexts),
        ):
            entries = document.get(section) or []
            if not isinstance(entries, list):
                raise ConfigError(f"kubeconfig {path}: {section} is not a list")
            for entry in entries:
                if not isinstance(entry, dict) or not entry.get("name"):
                    raise ConfigError(f"kubeconfig {path}: an entry of {section} has no name")
                body = entry.get(key) or {}
                if not isinstance(body, dict):
                    raise ConfigError(f"kubeconfig {path}: {section} {entry['name']!r} has no {key} object")
                into.setdefault(str(entry["name"]), _Entry(body=body, file=path))
    return _Merged(files=files, current=current, clusters=merged.clusters, users=merged.users, contexts=merged.contexts)


def _read_yaml(path: Path) -> Resource:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig {path} is not YAML: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path} is not an object")
    return document


def _from_kubeconfig(merged: _Merged, *, context: str | None) -> ClusterConfig:
    where = ", ".join(map(str, merged.files))
    name = context or merged.current
    if not name:
        raise ConfigError(f"kubeconfig {where} has no current-context: run `kubectl config use-context <name>`")
    chosen = _lookup(merged.contexts, name, what="context", where=where).body
    cluster = _lookup(merged.clusters, str(chosen.get("cluster") or ""), what="cluster", where=where)
    server = str(cluster.body.get("server") or "")
    if urlsplit(server).scheme not in ("http", "https"):
        raise ConfigError(f"kubeconfig {cluster.file}: cluster {chosen.get('cluster')!r} has no http(s) server URL")
    user_name = str(chosen.get("user") or "")
    user = _lookup(merged.users, user_name, what="user", where=where) if user_name else None
    return ClusterConfig(
        server=server.rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        ca_data=_data_or_file(cluster, "certificate-authority"),
        insecure_skip_tls_verify=bool(cluster.body.get("insecure-skip-tls-verify")),
        tls_server_name=str(cluster.body.get("tls-server-name") or ""),
        proxy_url=str(cluster.body.get("proxy-url") or ""),
        headers=_impersonation(user) if user else (),
        credentials=_credentials(user, name=user_name) if user else FixedCredentials(),
    )


def _lookup(entries: Mapping[str, T], name: str, *, what: str, where: str) -> T:
    if name not in entries:
        raise ConfigError(f"kubeconfig {where} has no {what} {name!r}; it has {', '.join(sorted(entries)) or 'none'}")
    return entries[name]


def _path_of(entry: _Entry, name: str) -> Path | None:
    value = entry.body.get(name)
    return entry.file.parent / str(value) if value else None


def _data_or_file(entry: _Entry, name: str) -> bytes:
    """Returns `<name>-data` (base64), or else the content of the file `<name>`, as client-go does."""
    data = entry.body.get(f"{name}-data")
    if data:
        return decode_base64(data, where=f"{name}-data in kubeconfig {entry.file}")
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
