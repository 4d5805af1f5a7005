"""The webhook's process under attack (H3): its memory stays in its budget; with an authority it knows its clients."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import orjson
import pytest
from click.testing import CliRunner
from core.tests.webhook.conftest import Deployment
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.support.reviews import WebhookClient, review_of, unverified
from tests.support.webhook import local_settings, running_webhook

from airunway.cli.main import app
from airunway.controller.application import CoreSettings
from airunway.kube import Client, NotFound
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource
from airunway.webhook import WebhookSettings
from airunway.webhook.application import Webhook
from airunway.webhook.configuration import CONFIGURATION_KIND, PATH, configuration_object, webhook_settings
from airunway_testing.eventually import eventually

BUDGET_MIB = 300
"""The budget of the core at its largest."""


# ---------------------------------------------------------------------------------------------------------- memory


@contextmanager
def process(kubeconfig: Path, place: WebhookSettings, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The core with its webhook, without its configuration: nothing but this test asks it."""
    ready, log = folder / "ready", folder / "log"
    options = ["--kubeconfig", str(kubeconfig), "--ready-file", str(ready), "--leader-elect"]
    options += ["--webhook-bind-address", place.bind_address, "--webhook-url", place.url]
    options += ["--webhook-configuration", place.configuration, "--webhook-manage-configuration"]
    options += ["--watch-namespaces", place.namespace]
    with log.open("wb") as output:
        environment = {"POD_NAMESPACE": place.namespace, "POD_NAME": "core-0"}
        started = subprocess.Popen(
            [sys.executable, "-m", "airunway", "controller", *options], stdout=output, stderr=output, env=environment
        )
        try:
            for _ in range(1_200):
                if ready.exists():
                    break
                with suppress(subprocess.TimeoutExpired):
                    started.wait(0.05)
                    raise AssertionError(log.read_text())
            yield started
        finally:
            started.terminate()
            started.wait(30)


def most_resident(pid: int) -> float:
    """MiB that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"^VmHWM:\s+(\d+) kB", status, flags=re.MULTILINE)[0]) / 1024


@pytest.mark.slow
@pytest.mark.apiserver
async def test_h3b_a_process_full_of_unfinished_bodies_and_large_reviews_stays_in_its_budget(
    kubeconfig: Path, namespace: str, client: Client, deployment: Deployment, installed: None, tmp_path: Path
) -> None:
    """Sixty bodies of just below 4 MiB, then reviews whose 1.3 MB become 430,000 objects each.

    Those are being deleted, so no rule looks at them: this is about the port. tests/security is about all of it.
    """
    many = deployment(tolerations=[{}] * 430_000)
    many["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with local_settings(namespace=namespace) as place:
        host, port = place.bind_address.rsplit(":", 1)
        try:
            with process(kubeconfig, place, tmp_path) as started:
                async with AsyncExitStack() as stack:
                    length = 4 * 2**20
                    for _ in range(60):
                        _, writer = await asyncio.open_connection(host, int(port), ssl=unverified())
                        stack.callback(end, writer)
                        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
                        writer.write(head.encode() + b" " * (length - 1))
                    async with WebhookClient(client, place) as asking:
                        assert await asking.problems(deployment()) == []
                async with WebhookClient(client, place) as asking:
                    body = review_bytes(many)
                    answers = await asyncio.gather(*(asking.post(body) for _ in range(8)))
                    assert {status for status, _ in answers} <= {200, 503, 504}
                    assert await asking.problems(deployment()) == []
                assert started.poll() is None
                assert most_resident(started.pid) <= BUDGET_MIB
        finally:
            with suppress(NotFound):
                await client.delete(CONFIGURATION_KIND, ObjectKey("", place.configuration))


def end(writer: asyncio.StreamWriter) -> None:
    """At once, whatever is still to be written."""
    writer.close()
    writer.transport.abort()


def review_bytes(obj: Resource) -> bytes:
    return orjson.dumps(review_of(obj))


# ------------------------------------------------------------------------------------------------------ who may ask


def issued(folder: Path, name: str, *, by: str | None = None) -> Path:
    """A certificate and its key in ``<name>.pem``: an authority, or one for a client of the authority `by`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = subject, key
    if by is not None:
        content = (folder / f"{by}.pem").read_bytes()
        issuer = x509.load_pem_x509_certificate(content).subject
        loaded = serialization.load_pem_private_key(content, password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if by is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{name}.pem"
    path.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.mark.apiserver
async def test_h3c_with_an_authority_only_its_clients_get_past_the_handshake(
    kubeconfig: Path, namespace: str, client: Client, deployment: Deployment, installed: None, tmp_path: Path
) -> None:
    authority = issued(tmp_path, "authority")
    other = issued(tmp_path, "other")
    made: list[Metrics] = []

    def on_made(_webhook: Webhook, metrics: Metrics) -> None:
        made.append(metrics)

    with local_settings(namespace=namespace, manage_configuration=False, client_ca=authority) as place:
        await client.create(CONFIGURATION_KIND, elsewhere(place.configuration, namespace))
        with running_webhook(kubeconfig, place, settings=CoreSettings(namespaces=(namespace,)), on_made=on_made):
            theirs = issued(tmp_path, "api-server", by="authority")
            async with WebhookClient(client, place, certificate=theirs) as asking:
                assert await asking.problems(deployment()) == []
            for stranger in (None, other, issued(tmp_path, "stranger", by="other")):
                async with WebhookClient(client, place, certificate=stranger) as asking:
                    with pytest.raises(aiohttp.ClientError):
                        await asking.problems(deployment())
            registry, cause = made[0].registry, {"cause": "handshake"}
            # A client may know of its end before the server has counted it.
            await eventually(lambda: registry.get_sample_value("airunway_webhook_turned_away_total", cause) == 3)


def elsewhere(name: str, namespace: str) -> Resource:
    """A configuration of ours that calls the webhook for no object: the API server here has no certificate to show."""
    settings = webhook_settings(bind_address=":1", url="https://127.0.0.1:1", configuration=name)
    assert settings is not None
    return configuration_object(settings, bundle=b"", namespaces=[f"not-{namespace}"])


@pytest.mark.parametrize("content", [None, b"", b"not a certificate"])
def test_a_file_without_authorities_ends_the_start_and_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    options = ["--webhook-bind-address", ":9443", "--webhook-url", "https://127.0.0.1:9443"]
    result = CliRunner().invoke(app, ["controller", *options, "--webhook-client-ca", str(path)])
    assert result.exit_code == 1
    assert f"--webhook-client-ca: no certificates could be read from {path}" in result.output
    assert "Traceback" not in result.output
