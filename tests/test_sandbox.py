"""The first thing a newcomer sees: the demonstration, from nothing to its last line."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.console import Shell, steps

from airunway_testing.kubetools import kubectl_path

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent
README, MAKEFILE, PAGE = ROOT / "README.md", ROOT / "Makefile", ROOT / "docs" / "sandbox.md"
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
        [*COMMAND, "--demo", "--storage", "--gateway"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
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


@contextmanager
def sandbox(environment: dict[str, str], folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A sandbox that is up; killed afterwards if the test left it running."""
    with subprocess.Popen(
        [*COMMAND, *options], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert any("Ctrl-C stops everything" in line for line in process.stdout)
            assert len(processes_in(folder)) >= 5
            yield process
        finally:
            process.kill()


def test_a_sandbox_does_what_its_page_shows_and_leaves_nothing_behind(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with sandbox(environment, tmp_path, "--gateway", "--storage", "--catalogue") as running:
        assert running.stdout is not None
        (kubeconfig,) = tmp_path.glob("airunway-control-plane-*/admin.kubeconfig")
        wait = ["wait", "gateway/inference", "--for=condition=Programmed", "--timeout=60s"]
        subprocess.run([str(kubectl_path()), f"--kubeconfig={kubeconfig}", *wait], check=True, capture_output=True)
        # Without this ClusterRole no endpoint picker is ready. It is made after the Gateway.
        role = ["wait", "clusterrole/airunway-endpoint-picker", "--for=create", "--timeout=60s"]
        subprocess.run([str(kubectl_path()), f"--kubeconfig={kubeconfig}", *role], check=True, capture_output=True)
        (manifests,) = tmp_path.glob("airunway-sandbox-*/samples")
        follow_page({**environment, "KUBECONFIG": str(kubeconfig)}, manifests, programs=tmp_path / "bin")
        running.send_signal(signal.SIGTERM)
        assert "nothing is left behind" in running.stdout.read()
        assert running.wait() == 0
    assert processes_in(tmp_path) == []
    assert list(tmp_path.glob("airunway-*")) == []


def follow_page(environment: dict[str, str], manifests: Path, *, programs: Path) -> None:
    """All commands of docs/sandbox.md in one shell, in their order; they print what the page shows."""
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl_path())
    path = os.pathsep.join((str(Path(sys.executable).parent), str(programs), environment["PATH"]))
    commands = 0
    with Shell(manifests, {**environment, "PATH": path, "COLUMNS": "200"}) as shell:
        for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
            for command, shown in steps(block):
                commands += 1
                shell.show(command, shown)
    assert commands >= 10


def test_killing_the_sandbox_leaves_no_process_behind(environment: dict[str, str], tmp_path: Path) -> None:
    options = ("--providers", "vllm", "--level", "api", "--no-gateway", "--no-storage", "--no-catalogue")
    with sandbox(environment, tmp_path, *options) as running:
        running.kill()
        deadline = time.monotonic() + 30
        while processes_in(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert processes_in(tmp_path) == []
