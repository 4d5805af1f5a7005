"""The first thing a newcomer sees: the demonstration, from nothing to its last line."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airunway_testing.kubetools import kubectl_path

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent
README, MAKEFILE = ROOT / "README.md", ROOT / "Makefile"
PROVIDERS = next(
    line.removeprefix("PROVIDERS ?= ") for line in MAKEFILE.read_text().splitlines() if line.startswith("PROVIDERS ?= ")
)
COMMAND = [sys.executable, "-m", "airunway", "sandbox", "--providers", PROVIDERS]
"""As `make demo` and `make sandbox` have it."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A folder of its own for temporary files, so that what is left behind is seen."""
    return {**os.environ, "TMPDIR": str(tmp_path)}


def processes_in(folder: Path) -> list[str]:
    """The command lines that mention a folder: everything the sandbox starts is told about its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it ended meanwhile
                continue
            if str(folder) in line:
                found.append(line)
    return found


def test_the_demo_shows_what_runs_what_cannot_and_what_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--demo", "--storage"], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed, promised = table(done.stdout), table(README.read_text(encoding="utf-8"))
    assert len(printed) == 8
    assert all(shown.startswith(line) for shown, line in zip(printed, promised, strict=True)), "README.md, See it work"
    assert "Insufficient nvidia.com/gpu" in done.stdout
    assert 'unknown field "spec.resources.gpu.cuont"' in done.stdout
    assert "NOT AS EXPECTED" not in done.stdout
    assert processes_in(tmp_path) == []
    assert list(tmp_path.glob("airunway-*")) == []


def table(text: str) -> list[str]:
    """The lines of the demonstration's table, up to where the README leaves out the rest of a message."""
    lines = iter(text.splitlines())
    header = next(line for line in lines if line.startswith("NAME "))
    rows = itertools.takewhile(lambda line: line.strip(" `"), lines)
    return [line.rstrip(" …") for line in (header, *rows)]


@pytest.fixture
def sandbox(environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A sandbox that is up; killed afterwards if the test left it running."""
    with subprocess.Popen(
        [*COMMAND, "--level", "api", "--gateway", "--no-storage"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert any("Ctrl-C stops everything" in line for line in process.stdout)
            assert len(processes_in(tmp_path)) >= 5
            yield process
        finally:
            process.kill()


def test_a_sandbox_has_a_gateway_and_leaves_nothing_behind(sandbox: subprocess.Popen[str], tmp_path: Path) -> None:
    assert sandbox.stdout is not None
    (kubeconfig,) = tmp_path.glob("airunway-control-plane-*/admin.kubeconfig")
    wait = ["wait", "gateway/inference", "--for=condition=Programmed", "--timeout=60s"]
    subprocess.run([str(kubectl_path()), f"--kubeconfig={kubeconfig}", *wait], check=True, capture_output=True)
    # Without this ClusterRole no endpoint picker is ready. It is made after the Gateway.
    role = ["wait", "clusterrole/airunway-endpoint-picker", "--for=create", "--timeout=60s"]
    subprocess.run([str(kubectl_path()), f"--kubeconfig={kubeconfig}", *role], check=True, capture_output=True)
    sandbox.send_signal(signal.SIGTERM)
    assert "nothing is left behind" in sandbox.stdout.read()
    assert sandbox.wait() == 0
    assert processes_in(tmp_path) == []
    assert list(tmp_path.glob("airunway-*")) == []


def test_killing_the_sandbox_leaves_no_process_behind(sandbox: subprocess.Popen[str], tmp_path: Path) -> None:
    sandbox.kill()
    deadline = time.monotonic() + 30
    while processes_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_in(tmp_path) == []
