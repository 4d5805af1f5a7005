"""`airunway controller` with a webhook, as a process: its options, its start, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from airunway.cli.main import app
from airunway.kube import Client, NotFound
from airunway.resource import ObjectKey
from airunway.webhook import webhook_settings
from airunway.webhook.configuration import CONFIGURATION_KIND, WebhookSettings, bundles_in, configuration_object
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.fixtures import Kubectl

URL = "https://127.0.0.1:9443"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--webhook-bind-address", ":9443"], "needs one of --webhook-service"),
        (["--webhook-bind-address", ":9443", "--webhook-url", URL, "--webhook-service", "a.b"], "needs one of"),
        (["--webhook-bind-address", ":9443", "--webhook-url", "http://127.0.0.1:9443"], "--webhook-url must be like"),
        (["--webhook-bind-address", ":9443", "--webhook-url", URL + "/path"], "--webhook-url must be like"),
        (["--webhook-bind-address", ":9443", "--webhook-service", "a.b.c"], "--webhook-service must be NAME"),
        (["--watch-namespaces", "a,B"], "--watch-namespaces: 'B' is not a valid namespace name"),
        (["--policy", "/does/not/exist.yaml"], "/does/not/exist.yaml"),
    ],
)
def test_a_wrong_option_is_named(options: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, ["controller", *options])
    assert result.exit_code == 1
    assert problem in result.output
    assert "Traceback" not in result.output


def test_what_the_options_amount_to() -> None:
    assert webhook_settings(bind_address="0") is None
    by_service = webhook_settings(bind_address=":9443", service="hook", namespace="system")
    assert by_service == WebhookSettings(bind_address=":9443", service=ObjectKey("system", "hook"), namespace="system")
    assert by_service.hosts[:2] == ["hook.system.svc", "hook.system.svc.cluster.local"]
    by_url = webhook_settings(bind_address=":9443", url="https://[::1]:9443/")
    assert by_url is not None
    assert by_url.hosts == ["::1"]


@contextmanager
def process(*options: str, ready: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        command = [sys.executable, "-m", "airunway", "controller", "--ready-file", str(ready), *options]
        started = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield started
        finally:
            started.kill()
            started.wait()


def wait_for(path: Path, started: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert started.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.apiserver
async def test_two_replicas_one_leader(
    kubeconfig: Path, kubectl: Kubectl, client: Client, namespace: str, installed: None, tmp_path: Path
) -> None:
    """Both serve with the certificate of the one Secret; the end of the leader leaves the other serving."""
    name = f"hook-{namespace}"
    with reserved_ports(2) as ports:
        replicas = []
        for port in ports:
            log, ready = tmp_path / f"{port}.log", tmp_path / f"{port}.ready"
            options = ["--kubeconfig", str(kubeconfig), "--leader-elect", "--webhook-bind-address", f"127.0.0.1:{port}"]
            # One URL for both, as replicas share one Service.
            options += ["--webhook-url", f"https://127.0.0.1:{ports[0]}", "--webhook-configuration", name]
            options += ["--watch-namespaces", namespace, "--webhook-manage-configuration"]
            replicas.append((options, ready, log))
        os.environ["POD_NAMESPACE"] = namespace
        try:
            first = process(*replicas[0][0], ready=replicas[0][1], log=replicas[0][2])
            second = process(*replicas[1][0], ready=replicas[1][1], log=replicas[1][2])
            with first as leader, second as follower:
                wait_for(replicas[0][1], leader, replicas[0][2])
                wait_for(replicas[1][1], follower, replicas[1][2])
                shown = {certificate(port) for port in ports}
                assert len(shown) == 1
                leader.send_signal(signal.SIGTERM)
                assert leader.wait(30) == 0, replicas[0][2].read_text()
                assert certificate(ports[1]) in shown
                assert "Traceback" not in replicas[0][2].read_text()
        finally:
            del os.environ["POD_NAMESPACE"]
            with suppress(NotFound):
                await client.delete(CONFIGURATION_KIND, ObjectKey("", name))


@pytest.mark.slow
@pytest.mark.apiserver
async def test_the_leader_is_ready_when_the_configuration_has_its_certificate(
    kubeconfig: Path, kubectl: Kubectl, client: Client, namespace: str, installed: None, tmp_path: Path
) -> None:
    """The chart's configuration comes after the process: only then do reviews come."""
    log, ready = tmp_path / "log", tmp_path / "ready"
    key = ObjectKey("", f"hook-{namespace}")
    with reserved_ports(1) as (port,):
        url = f"https://127.0.0.1:{port}"
        settings = webhook_settings(
            bind_address=f"127.0.0.1:{port}", url=url, namespace=namespace, configuration=key.name
        )
        assert settings is not None
        options = ["--kubeconfig", str(kubeconfig), "--log-format", "text", "--watch-namespaces", namespace]
        options += ["--webhook-bind-address", settings.bind_address, "--webhook-url", url]
        options += ["--webhook-configuration", key.name]
        os.environ["POD_NAMESPACE"] = namespace
        try:
            with process(*options, ready=ready, log=log) as started:
                said = f"there is no ValidatingWebhookConfiguration {key.name}"
                deadline = time.monotonic() + 60
                while said not in log.read_text():
                    assert started.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    await asyncio.sleep(0.05)
                assert not ready.exists()
                wanted = configuration_object(settings, bundle=b"", namespaces=[namespace])
                del wanted["webhooks"][0]["clientConfig"]["caBundle"]
                await client.apply(CONFIGURATION_KIND, wanted, manager="helm")
                wait_for(ready, started, log)
                assert all(bundles_in(await client.get(CONFIGURATION_KIND, key)))
        finally:
            del os.environ["POD_NAMESPACE"]
            with suppress(NotFound):
                await client.delete(CONFIGURATION_KIND, key)


def certificate(port: int) -> str:
    import ssl

    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


@pytest.mark.apiserver
def test_an_address_that_is_taken_ends_the_process_and_is_named(
    kubeconfig: Path, kubectl: Kubectl, namespace: str, installed: None, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = ["--kubeconfig", str(kubeconfig), "--webhook-bind-address", f"127.0.0.1:{port}"]
        options += ["--webhook-url", f"https://127.0.0.1:{port}", "--webhook-configuration", f"hook-{namespace}"]
        os.environ["POD_NAMESPACE"] = namespace
        try:
            with process(*options, ready=tmp_path / "ready", log=log) as started:
                assert started.wait(60) == 1, log.read_text()
        finally:
            del os.environ["POD_NAMESPACE"]
    text = log.read_text()
    assert f"127.0.0.1', {port}" in text or f"127.0.0.1:{port}" in text
    assert not (tmp_path / "ready").exists()
