"""Credentials from a program: run once for each, by the kubeconfig, on a real server, and when it fails."""

from __future__ import annotations

import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from core.tests.kube.kubeconfigs import b64, credential_of, kubeconfig_file

from airunway.kube import NAMESPACE, Client, ConfigError, load_config
from airunway.kube import config as config_module
from airunway.kube.config import ClientCertificate, Credential, ExecCredentials


def plugin(path: Path, status: str, *, version: str = "client.authentication.k8s.io/v1", exit_code: int = 0) -> Path:
    """An exec plugin that notes its runs and prints `status` (a JSON text; RUN stands for the number of the run)."""
    path.write_text(
        f"""#!{sys.executable}
import json, os, pathlib, sys
log = pathlib.Path(__file__ + ".log")
runs = int(log.read_text()) + 1 if log.exists() else 1
log.write_text(str(runs))
assert json.loads(os.environ["KUBERNETES_EXEC_INFO"])["kind"] == "ExecCredential"
status = {status!r}.replace("RUN", str(runs) + os.environ.get("SUFFIX", "") + "".join(sys.argv[1:]))
print(json.dumps({{"apiVersion": "{version}", "kind": "ExecCredential", "status": json.loads(status)}}))
print("something went wrong", file=sys.stderr)
sys.exit({exit_code})
"""
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def runs_of(path: Path) -> int:
    return int(Path(f"{path}.log").read_text())


async def test_exec_plugins_run_once_per_credential(tmp_path: Path) -> None:
    expires = datetime(2030, 1, 1, tzinfo=UTC)
    now = expires - timedelta(hours=1)
    program = plugin(tmp_path / "plug", f'{{"token": "tRUN", "expirationTimestamp": "{expires.isoformat()}"}}')
    spec = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plug",
        "args": ["-x"],
        "env": [{"name": "SUFFIX", "value": "s"}],
    }
    source = ExecCredentials(spec, directory=tmp_path, now=lambda: now)
    assert (await source.credential()).token == "t1s-x"
    assert (await source.credential()).token == "t1s-x"
    first = await source.credential()
    source.invalidate(first)
    assert (await source.credential()).token == "t2s-x"
    source.invalidate(first)  # the 401 of another request that was under way
    assert (await source.credential()).token == "t2s-x"
    now = expires - timedelta(seconds=29)
    assert (await source.credential()).token == "t3s-x"
    assert runs_of(program) == 3


async def test_an_exec_plugin_in_a_kubeconfig(tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1beta1"
    plugin(tmp_path / "bin-plug", '{"clientCertificateData": "CERT", "clientKeyData": "KEY"}', version=version)
    user = {"exec": {"apiVersion": version, "command": "./bin-plug", "args": None, "env": None}}
    config = load_config(kubeconfig=kubeconfig_file(tmp_path / "config", user=user))
    credential = await credential_of(config.credentials)
    assert credential == Credential(certificate=ClientCertificate(certificate=b"CERT", key=b"KEY"))


@pytest.mark.apiserver
async def test_an_exec_plugin_on_the_real_server(client: Client, tmp_path: Path) -> None:
    credential = await client.config.credentials.credential()
    assert credential.certificate is not None
    import orjson

    status = orjson.dumps(
        {
            "clientCertificateData": credential.certificate.certificate.decode(),
            "clientKeyData": credential.certificate.key.decode(),
        }
    ).decode()
    plugin(tmp_path / "plug", status.replace("RUN", "R\\u0055N"))
    path = kubeconfig_file(
        tmp_path / "config",
        cluster={"server": client.config.server, "certificate-authority-data": b64(client.config.ca_data)},
        user={"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plug"}},
    )
    async with Client(load_config(kubeconfig=path)) as other:
        assert await other.list_all(NAMESPACE)
        assert await other.list_all(NAMESPACE)
    assert runs_of(tmp_path / "plug") == 1


@pytest.mark.parametrize(
    ("status", "changes", "message"),
    [
        ("{}", {}, "neither a token nor a client certificate"),
        ("[]", {}, "no status object"),
        ('{"token": "t"}', {"exit_code": 3}, "failed with exit code 3: something went wrong"),
        ('{"token": "t"}', {"version": "client.authentication.k8s.io/v1beta1"}, "does not match"),
    ],
)
async def test_exec_plugins_that_fail(status: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    plugin(tmp_path / "plug", status, **changes)
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plug"}
    with pytest.raises(ConfigError, match=message) as caught:
        await ExecCredentials(spec, directory=tmp_path).credential()
    assert "plug" in str(caught.value)


@pytest.mark.parametrize(
    ("program", "message"),
    [("#!/bin/sh\necho no json", "printed no JSON"), ("#!/bin/sh\nsleep 60", "did not answer within 0 s")],
)
async def test_a1_an_exec_plugin_that_is_none(
    program: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_module, "_EXEC_TIMEOUT", 0.3)
    path = tmp_path / "plug"
    path.write_text(program)
    path.chmod(0o755)
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plug"}
    with pytest.raises(ConfigError, match=message):
        await ExecCredentials(spec, directory=tmp_path).credential()


async def test_an_exec_plugin_that_is_not_there(tmp_path: Path) -> None:
    spec = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "no-such-plugin-anywhere",
        "installHint": "get it from example.com",
    }
    with pytest.raises(ConfigError, match="not installed; get it from"):
        await ExecCredentials(spec, directory=tmp_path).credential()
