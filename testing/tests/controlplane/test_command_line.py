"""``airunway controlplane``: one control plane for many test runs."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from airunway_testing.controlplane.binaries import find_binaries
from airunway_testing.controlplane.cache import control_plane_cache
from airunway_testing.kubetools import kubectl_path

pytestmark = pytest.mark.apiserver


def airunway_controlplane(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airunway", "controlplane", *arguments]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with a cache of its own, where the programs are already."""
    environment = {**os.environ, "AIRUNWAY_CACHE": str(tmp_path / "cache")}
    folder = control_plane_cache(environment)
    folder.mkdir(parents=True)
    for component, path in find_binaries("api", report=print).items():
        (folder / component).symlink_to(path)
    return environment


def test_up_detached_serves_others_until_down(environment: dict[str, str]) -> None:
    up = airunway_controlplane(
        "up", "--detach", "--name", "mine", "--level", "api", "--audit", "Request", environment=environment
    )
    try:
        assert up.returncode == 0, up.stderr
        assert up.stdout.startswith("export AIRUNWAY_TEST_KUBECONFIG=")
        assert len(up.stdout.splitlines()) == 1, "it is evaluated by a shell"
        kubeconfig = Path(up.stdout.strip().partition("=")[2])
        again = airunway_controlplane("up", "--name", "mine", environment=environment)
        assert again.returncode == 1
        assert "a control plane named mine runs already" in again.stderr
        listed = airunway_controlplane("status", environment=environment)
        assert listed.stdout.startswith("mine  level api  process ")

        program = (
            "import sys, pathlib\n"
            "from airunway_testing.controlplane import running\n"
            "with running('api') as cluster:\n"
            "    print(cluster.kubeconfig, cluster.audit_log, cluster.kubeconfig_for('ada'))\n"
        )
        reuse = subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, "AIRUNWAY_TEST_KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            check=True,
        )
        admin, audit_log, ada = map(Path, reuse.stdout.split())
        assert admin == kubeconfig
        assert '"level":"Request"' in audit_log.read_text()
        command = [
            str(kubectl_path()),
            f"--kubeconfig={ada}",
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
        ]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "ada"
    finally:
        down = airunway_controlplane("down", "--name", "mine", environment=environment)
    assert down.stdout == "mine stopped\n"
    assert not kubeconfig.parent.exists()
    assert airunway_controlplane("status", environment=environment).stdout == ""
    missing = airunway_controlplane("down", "--name", "mine", environment=environment)
    assert missing.returncode == 1
    assert "no control plane named mine" in missing.stderr


def test_binaries_prints_where_they_are(environment: dict[str, str]) -> None:
    listed = airunway_controlplane("binaries", "--level", "api", environment=environment)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
    ]
    folder = airunway_controlplane("binaries", "--cache-folder", environment=environment)
    assert folder.stdout.strip() == str(control_plane_cache(environment))


def test_detached_start_that_fails_says_why(environment: dict[str, str]) -> None:
    environment["AIRUNWAY_CONTROLPLANE_SOURCE"] = "assets"
    environment.pop("KUBEBUILDER_ASSETS", None)
    up = airunway_controlplane("up", "--detach", environment=environment)
    assert up.returncode == 1
    assert "KUBEBUILDER_ASSETS is not set" in up.stderr
    assert up.stdout == ""


def test_clean_deletes_the_programs_and_what_an_interrupted_build_has_left(environment: dict[str, str]) -> None:
    folder = control_plane_cache(environment)
    left = folder / ".go" / "modules"
    left.mkdir(parents=True)
    (left / "source.go").write_text("package main")
    done = airunway_controlplane("clean", environment=environment)
    assert done.returncode == 0, done.stderr
    assert "MiB deleted" in done.stdout
    assert not folder.exists()
