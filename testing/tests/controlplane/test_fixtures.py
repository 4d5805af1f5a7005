"""The pytest plugin, in runs of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airunway_testing.controlplane import Cluster, ControlPlaneError, running

pytestmark = pytest.mark.apiserver


def run_pytest(folder: Path, test: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nmarkers = cluster\n")
    command = [sys.executable, "-m", "pytest", "-q", *options]
    merged = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=merged, capture_output=True, text=True, timeout=120, check=False)


def test_cluster_of_ones_own_is_used_when_named(control_plane: Cluster, tmp_path: Path) -> None:
    test = (
        "async def test_it(kubeconfig, namespace, kubectl):\n"
        f"    assert str(kubeconfig) == {str(control_plane.kubeconfig)!r}\n"
        "    assert namespace in kubectl('get', 'namespaces', '-o', 'name').stdout\n"
    )
    run = run_pytest(tmp_path, test, f"--airunway-kubeconfig={control_plane.kubeconfig}")
    assert "1 passed" in run.stdout, run.stdout


def test_missing_programs_fail_the_tests_that_need_them_and_no_others(tmp_path: Path) -> None:
    test = "def test_needs(namespace): pass\ndef test_does_not(): pass\n"
    run = run_pytest(tmp_path, test, AIRUNWAY_CONTROLPLANE_SOURCE="assets", KUBEBUILDER_ASSETS="")
    assert "1 passed, 1 error" in run.stdout, run.stdout
    assert "KUBEBUILDER_ASSETS is not set" in run.stdout


def test_level_that_the_named_cluster_does_not_have_is_refused(control_plane: Cluster) -> None:
    refused = pytest.raises(ControlPlaneError, match=r"has the level 'api', and 'cluster' is needed")
    with refused, running("cluster", kubeconfig=control_plane.kubeconfig):
        pass


def test_k3s_without_docker_says_so() -> None:
    docker = subprocess.run(["docker", "info"], capture_output=True, check=False) if _has_docker() else None
    if docker is not None and docker.returncode == 0:
        pytest.skip("Docker runs here")
    program = (
        "from airunway_testing.controlplane import ControlPlaneError, running\n"
        "try:\n"
        "    with running('api'): pass\n"
        "except ControlPlaneError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "AIRUNWAY_CONTROLPLANE_SOURCE": "k3s"}
    environment.pop("AIRUNWAY_TEST_KUBECONFIG", None)
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "a K3s container" in run.stdout, run.stderr
    assert "Docker could not run it" in run.stdout or "pip install 'airunway-testing[k3s]'" in run.stdout


def _has_docker() -> bool:
    return any(Path(folder, "docker").exists() for folder in os.get_exec_path())
