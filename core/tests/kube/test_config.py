"""Kubeconfigs, service accounts and certificates: how a client finds its cluster and stays let in."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from core.tests.kube.kubeconfigs import b64, credential_of, kubeconfig_file
from core.tests.kube.servers import answering
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from airunway.kube import (
    NAMESPACE,
    SERVICE_ACCOUNT,
    Client,
    ClusterConfig,
    ConfigError,
    ConnectionFailed,
    Forbidden,
    Unauthorized,
    in_cluster_config,
    load_config,
)
from airunway.kube.config import ClientCertificate, Credential, FileCredentials, tls_context
from airunway.kube.proxies import proxy_of
from airunway.kube.session import Request
from airunway.resource import Resource

# ------------------------------------------------------------------------------------------------------ kubeconfig


async def test_data_goes_before_files_and_files_are_relative(tmp_path: Path) -> None:
    path = kubeconfig_file(
        tmp_path / "dir" / "config",
        cluster={"server": "https://example.com:6443/", "certificate-authority": "ca.pem", "tls-server-name": "k8s"},
        user={"client-certificate": "cert.pem", "client-key": "key.pem", "client-certificate-data": b64(b"embedded")},
        context={"namespace": "team"},
    )
    for name in ("ca", "cert", "key"):
        (path.parent / f"{name}.pem").write_bytes(name.encode())
    config = load_config(kubeconfig=path)
    assert config.server == "https://example.com:6443"
    assert (config.namespace, config.ca_data, config.tls_server_name) == ("team", b"ca", "k8s")
    credential = await credential_of(config.credentials)
    assert credential.certificate == ClientCertificate(certificate=b"embedded", key=b"key")
    assert "key" not in repr(credential).replace("key=", "")


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "abc"}, {"Authorization": "Bearer abc"}),
        ({"username": "ada", "password": "x"}, {"Authorization": f"Basic {b64(b'ada:x')}"}),
        ({}, {}),
    ],
)
async def test_embedded_credentials(user: Resource, header: dict[str, str], tmp_path: Path) -> None:
    config = load_config(kubeconfig=kubeconfig_file(tmp_path / "config", user=user))
    credential = await credential_of(config.credentials)
    assert credential.headers() == header
    assert "abc" not in repr(credential)


def test_impersonation(tmp_path: Path) -> None:
    user = {
        "token": "t",
        "as": "ada",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.com/x": ["1"]},
    }
    assert load_config(kubeconfig=kubeconfig_file(tmp_path / "config", user=user)).headers == (
        ("Impersonate-User", "ada"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.com%2Fx", "1"),
    )


def test_several_files_are_merged_first_come_first_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "first"
    first.write_text(yaml.safe_dump({"contexts": [{"name": "main", "context": {"cluster": "c", "namespace": "one"}}]}))
    second = kubeconfig_file(tmp_path / "second", cluster={"server": "https://second"}, context={"namespace": "two"})
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(first), str(tmp_path / "absent"), str(second)]))
    config = load_config()
    assert (config.server, config.namespace) == ("https://second", "one")


def test_the_context_can_be_chosen(tmp_path: Path) -> None:
    other = {"name": "other", "context": {"cluster": "c", "namespace": "elsewhere"}}
    path = kubeconfig_file(tmp_path / "config", document={"contexts": [other]})
    assert load_config(kubeconfig=path, context="other").namespace == "elsewhere"
    with pytest.raises(ConfigError, match="no context 'main'; it has other"):
        load_config(kubeconfig=path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"document": {"current-context": ""}}, "kubectl config use-context"),
        ({"document": {"current-context": "x"}}, "no context 'x'; it has main"),
        ({"context": {"cluster": "x"}}, "no cluster 'x'"),
        ({"context": {"user": "x"}}, "no user 'x'"),
        ({"cluster": {}}, "cluster 'c' has no http"),
        ({"cluster": {"server": "ftp://x"}}, "cluster 'c' has no http"),
        (
            {"cluster": {"server": "https://x", "certificate-authority-data": "a"}},
            "certificate-authority-data .* base64",
        ),
        ({"cluster": {"server": "https://x", "certificate-authority": "absent.pem"}}, "certificate-authority .*absent"),
        ({"user": {"client-certificate-data": b64(b"x")}}, "both a client certificate and a client key"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider"),
        ({"user": {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}}, "v1alpha1"),
        ({"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}}, "without a command"),
        ({"user": {"as-groups": "x"}}, "as-groups must be a list"),
        ({"document": {"users": {}}}, None),
        ({"document": {"users": {"u": 1}}}, "users is not a list"),
        ({"document": {"users": [{"user": {}}]}}, "an entry of users has no name"),
        ({"document": {"users": [{"name": "u", "user": [1]}]}}, "users 'u' has no user object"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str | None, tmp_path: Path) -> None:
    path = kubeconfig_file(tmp_path / "config", **changes)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(kubeconfig=path)
    assert str(path) in str(caught.value) or "exec plugin" in str(caught.value)


@pytest.mark.parametrize("text", ["[1", "- a", "x: [", "\x00"])
def test_files_that_are_no_kubeconfig(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        load_config(kubeconfig=path)


def test_a_file_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[" * 3000)
    with pytest.raises(ConfigError, match=r"config is nested too deeply$"):
        load_config(kubeconfig=tmp_path / "config")


def test_no_kubeconfig_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no kubeconfig at"):
        load_config(kubeconfig=tmp_path / "absent")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="no kubeconfig at"):
        load_config()
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="pass --kubeconfig, set KUBECONFIG"):
        load_config()
    kubeconfig_file(tmp_path / ".kube" / "config")
    assert load_config().server == "https://example.com:6443"


PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environ", "proxy"),
    [
        ("https://example.com", {}, ""),
        ("https://example.com:6443", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://example.com:6443", {"https_proxy": PROXY}, PROXY),
        ("https://example.com:6443", {"HTTPS_PROXY": "proxy:3128"}, PROXY),
        ("https://example.com:6443", {"HTTP_PROXY": PROXY}, ""),
        ("http://example.com", {"HTTPS_PROXY": PROXY}, ""),
        ("http://example.com", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://127.9.9.9:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://localhost.example.com", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://localhost:6443", {"HTTPS_PROXY": "socks5://proxy:1080"}, ""),
    ],
)
def test_proxies_of_the_environment(server: str, environ: dict[str, str], proxy: str) -> None:
    assert proxy_of(server, environ) == proxy


@pytest.mark.parametrize(
    ("no_proxy", "host", "direct"),
    [
        ("10.0.0.1,.internal", "10.0.0.1:443", True),
        ("10.0.0.1,.internal", "k8s.internal", True),
        ("10.0.0.1 , 10.0.0.2", "10.0.0.2", True),
        ("10.0.0.1:6443", "10.0.0.1:6443", True),
        ("10.0.0.1:6443", "10.0.0.1:443", False),
        ("10.96.0.0/12", "10.96.0.1:443", True),
        ("10.96.0.0/12", "10.112.0.1:443", False),
        ("10.96.0.0/12", "k8s.internal", False),
        ("10.96.0.0/99", "10.96.0.1", False),
        ("fd00::/8", "[fd00::1]:443", True),
        ("fd00::1", "[fd00::1]:443", True),
        ("[fd00::1]:443", "[fd00::1]:443", True),
        ("[fd00::1]:443", "[fd00::1]:6443", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("example.com", "example.com", True),
        ("EXAMPLE.com", "k8s.Example.com", True),
        ("example.com", "badexample.com", False),
        (".example.com", "example.com", False),
        (".example.com", "k8s.example.com", True),
        ("*.example.com", "k8s.example.com", True),
        ("*.example.com", "example.com", False),
        ("example.com:443", "example.com", True),
        ("example.com:443", "example.com:6443", False),
        ("*.example.com:6443", "k8s.example.com:6443", True),
        ("*", "example.com", True),
        ("10.0.0.1,*", "example.com", True),
        (",:443,", "example.com", False),
    ],
)
def test_no_proxy_is_read_by_the_rules_of_kubectl(no_proxy: str, host: str, direct: bool) -> None:
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
    assert proxy_of(f"https://{host}", environ) == ("" if direct else PROXY)


@pytest.mark.parametrize(
    ("url", "where", "shown"),
    [
        ("socks5://ada:secret@proxy:1080", "HTTPS_PROXY", "'proxy:1080'"),
        ("http://proxy:none", "HTTPS_PROXY", "'http://proxy:none'"),
        ("proxy.corp:3128", "proxy-url", "'proxy.corp:3128'"),
    ],
)
def test_proxies_that_cannot_be_used_are_named(
    url: str, where: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", url if where == "HTTPS_PROXY" else "")
    cluster = {"server": "https://example.com"} | ({"proxy-url": url} if where == "proxy-url" else {})
    path = kubeconfig_file(tmp_path / "config", cluster=cluster)
    with pytest.raises(ConfigError, match=rf"{where} {shown} is not a proxy that can be used: write http://HOST:PORT$"):
        load_config(kubeconfig=path)


async def test_errors_of_a_proxy_name_the_proxy() -> None:
    async with answering(200, b"") as there:  # it knows no CONNECT
        address = there.config.server.removeprefix("http://")
        proxied = ClusterConfig(server="https://example.com", proxy_url=f"http://ada:secret@{address}")
        async with Client(proxied) as client:
            with pytest.raises(ConnectionFailed, match=f": the proxy {address} refused the connection: 404 Not Found$"):
                await client.list_all(NAMESPACE)
    async with Client(proxied) as client:
        with pytest.raises(ConnectionFailed, match=f": cannot connect to the proxy {address}: Connection refused$"):
            await client.list_all(NAMESPACE)


# --------------------------------------------------------------------------------------------------------------- TLS


def test_unusable_certificates_are_named() -> None:
    with pytest.raises(ConfigError, match=r"certificate authority for https://x"):
        tls_context(ClusterConfig(server="https://x", ca_data=b"nonsense"), None)
    with pytest.raises(ConfigError, match=r"client certificate for https://x"):
        tls_context(ClusterConfig(server="https://x"), ClientCertificate(certificate=b"no", key=b"pem"))
    context = tls_context(ClusterConfig(server="https://x", insecure_skip_tls_verify=True), None)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def signed(
    name: str, key: ec.EllipticCurvePrivateKey, *, authority: x509.Certificate | None = None
) -> x509.Certificate:
    """A certificate without key identifiers: an authority, or signed by one that has the same key."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(authority.subject if authority else subject, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    return builder.sign(key, hashes.SHA256())


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, *, name: str) -> None:
    """Run a TLS handshake in memory, with a client that asks for this name. Raises the client's error."""
    to_client, from_client, to_server, from_server = (ssl.MemoryBIO() for _ in range(4))
    sides = (
        client.wrap_bio(to_client, from_client, server_hostname=name),
        server.wrap_bio(to_server, from_server, server_side=True),
    )
    for _ in range(5):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
            to_server.write(from_client.read())
            to_client.write(from_server.read())
    assert sides[0].version() is not None


@pytest.mark.parametrize(("name", "error"), [("k8s.test", None), ("other.test", "Hostname mismatch")])
def test_an_authority_without_key_identifiers_is_accepted(
    name: str, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python 3.13 does, the context is strict from the start."""
    default = ssl.create_default_context

    def strict(**given: Any) -> ssl.SSLContext:
        context = default(**given)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    key = ec.generate_private_key(ec.SECP256R1())
    authority = signed("authority", key)
    leaf = signed("k8s.test", key, authority=authority)
    pem = leaf.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "server.pem").write_bytes(pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem")
    context = tls_context(
        ClusterConfig(server="https://x", ca_data=authority.public_bytes(serialization.Encoding.PEM)), None
    )
    with nullcontext() if error is None else pytest.raises(ssl.SSLCertVerificationError, match=error):
        shake_hands(context, server, name=name)


# -------------------------------------------------------------------------------------------------------- in cluster


def service_account(directory: Path, *, token: str = "t", ca: bytes = b"ca") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "token").write_text(token + "\n")
    (directory / "ca.crt").write_bytes(ca)
    (directory / "namespace").write_text("airunway-system")
    return directory


async def test_in_cluster(tmp_path: Path) -> None:
    directory = service_account(tmp_path / "sa")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    config = in_cluster_config(directory=directory, environ=environ)
    assert (config.server, config.namespace) == ("https://[fd00::1]:6443", "airunway-system")
    assert (await credential_of(config.credentials)).headers() == {"Authorization": "Bearer t"}
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster_config(directory=directory, environ={})
    (directory / "token").unlink()
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        in_cluster_config(directory=directory, environ=environ)


async def test_a_rotated_token_is_read_within_a_minute(tmp_path: Path) -> None:
    now = 0.0
    token = tmp_path / "token"
    token.write_text("one")
    source = FileCredentials(token=token, clock=lambda: now)
    assert (await source.credential()).token == "one"
    token.write_text("two")
    now = 59.9
    assert (await source.credential()).token == "one"
    now = 60.0
    assert (await source.credential()).token == "two"
    old, current = Credential(token="two"), await source.credential()
    token.write_text("three")
    source.invalidate(old)
    assert await source.credential() is current, "only a 401 of the current credential counts"
    source.invalidate(current)
    assert (await source.credential()).token == "three", "after a 401 there is no waiting"
    token.unlink()
    now = 200.0
    with pytest.raises(ConfigError, match=str(token)):
        await source.credential()


@pytest.mark.apiserver
async def test_a_service_account_on_the_real_server(client: Client, namespace: str, tmp_path: Path) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "sa"}}
    await client.create(SERVICE_ACCOUNT, account)

    async def new_token() -> str:
        body: Resource = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = SERVICE_ACCOUNT.path(namespace=namespace, name="sa", subresource="token")
        answer = await client._json(Request("create", "POST", path, "serviceaccounts/token", body=body))
        return str(answer["status"]["token"])

    directory = service_account(tmp_path / "sa", token=await new_token(), ca=client.config.ca_data)
    host, port = client.config.server.removeprefix("https://").rsplit(":", 1)
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    async with Client(in_cluster_config(directory=directory, environ=environ)) as pod:
        who = f"system:serviceaccount:{namespace}:sa"
        with pytest.raises(Forbidden, match=who):
            await pod.list_all(NAMESPACE)
        (directory / "token").write_text("expired")
        with pytest.raises(Forbidden, match=who):  # still the one in memory
            await pod.list_all(NAMESPACE)
        pod.config.credentials.invalidate(await pod.config.credentials.credential())
        with pytest.raises(Unauthorized):
            await pod.list_all(NAMESPACE)
        (directory / "token").write_text(await new_token())
        with pytest.raises(Forbidden, match=who):  # a 401 makes it read again
            await pod.list_all(NAMESPACE)


@pytest.mark.apiserver
async def test_certificate_files_on_the_real_server(kubeconfig: Path, client: Client, tmp_path: Path) -> None:
    credential = await client.config.credentials.credential()
    assert credential.certificate is not None
    (tmp_path / "cert.pem").write_bytes(credential.certificate.certificate)
    (tmp_path / "key.pem").write_bytes(credential.certificate.key)
    (tmp_path / "ca.pem").write_bytes(client.config.ca_data)
    path = kubeconfig_file(
        tmp_path / "config",
        cluster={"server": client.config.server, "certificate-authority": "ca.pem"},
        user={"client-certificate": "cert.pem", "client-key": "key.pem"},
    )
    config = load_config(kubeconfig=path)
    assert isinstance(config.credentials, FileCredentials)
    async with Client(config) as other:
        assert await other.list_all(NAMESPACE)


def test_the_client_needs_no_kubernetes_asyncio() -> None:
    program = "import sys, airunway.kube; print([m for m in sys.modules if m.split('.')[0].startswith('kubernetes')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
