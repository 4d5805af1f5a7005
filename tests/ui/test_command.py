"""``airunway ui`` as a process: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from airunway.cli.main import app

AWAY = """
apiVersion: v1
kind: Config
contexts: [{name: away, context: {cluster: away, user: away}}]
clusters: [{name: away, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: away, user: {token: none}}]
"""


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(AWAY)
    done = CliRunner().invoke(app, ["ui", "--open", "--kubeconfig", str(kubeconfig), "--context", "away"])
    assert done.exit_code == 1
    assert "Check that http://127.0.0.1:1 is the right cluster" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.apiserver
async def test_the_link_that_is_printed_opens_the_page_once(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("-m", "airunway", "ui", "--no-open", "--port", str(port), "--kubeconfig", str(kubeconfig))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            found = re.search(rf"http://(\S+\.localhost:{port})(/\S+)", (await process.stdout.readline()).decode())
        assert found is not None
        # Browsers take any name below localhost for this machine; a resolver need not.
        address, host = f"http://127.0.0.1:{port}{found[2]}", {"Host": found[1]}
        for status in (200, 403):
            async with aiohttp.ClientSession() as http, http.get(address, headers=host) as answer:
                assert answer.status == status
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            assert await process.wait() in (0, 130)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
