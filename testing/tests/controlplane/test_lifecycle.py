"""Starting and stopping: nothing stays behind, whatever happens."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from airunway_testing.controlplane import ControlPlane, ControlPlaneError, StartFailedError, learn_kinds
from airunway_testing.controlplane.binaries import find_binaries
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.kubetools import kubectl_path

pytestmark = pytest.mark.apiserver


def members(group: int) -> list[int]:
    """The living processes of a process group (zombies are dead)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def listens(url: str) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def get_namespaces(kubeconfig: Path) -> int:
    command = [str(kubectl_path()), f"--kubeconfig={kubeconfig}", "get", "namespaces", "--request-timeout=5s"]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_stop_leaves_no_process_no_port_and_no_folder_even_with_watches_open() -> None:
    """It was started in a thread that has ended."""
    plane = ControlPlane()
    thread = threading.Thread(target=plane.start)
    thread.start()
    thread.join()
    url, directory, group = plane.url, plane.directory, plane.process_group
    watch = subprocess.Popen(
        [str(kubectl_path()), f"--kubeconfig={plane.kubeconfig}", "get", "namespaces", "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        watch.stdout.readline()
        assert len(members(group)) == 4  # three components and the supervisor
        plane.stop()
        assert members(group) == []
        assert not listens(url)
        assert not directory.exists()
        watch.kill()
    plane.stop()  # harmless
    with pytest.raises(ControlPlaneError, match="is not running"):
        _ = plane.kubeconfig


def settings_of_go(plane: ControlPlane) -> list[dict[str, str]]:
    """What each program's environment says of how far a heap may grow, and of threads."""
    found = []
    for pid in plane.pids.values():
        entries = [entry for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if entry.startswith("GO")]
        found.append(dict(entry.split("=", 1) for entry in entries))
    return found


@pytest.mark.parametrize("victim", ["parent", "supervisor"])
def test_nothing_outlives_a_killed_process(victim: str, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from airunway_testing.controlplane import ControlPlane\n"
        "plane = ControlPlane(directory=Path(sys.argv[1])).start()\n"
        "print(plane.process_group, plane.url, flush=True)\n"
        "sys.stdin.read()\n"
    )
    directory = tmp_path / "plane"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        group, url = parent.stdout.readline().split()
        assert listens(url)
        os.kill(parent.pid if victim == "parent" else int(group), signal.SIGKILL)
        # The threads of a killed process end one after the other, and the last one closes its port.
        eventually(lambda: members(int(group)) == [] and not listens(url), "the components end")
        parent.kill()
    if victim == "parent":
        eventually(lambda: not directory.exists(), "the supervisor removes the folder")


def test_stop_copes_with_a_supervisor_that_is_gone() -> None:
    plane = ControlPlane().start()
    url, directory, group = plane.url, plane.directory, plane.process_group
    os.kill(group, signal.SIGKILL)
    plane.stop()
    assert not directory.exists()
    eventually(lambda: members(group) == [] and not listens(url), "the components end")


def test_failed_start_names_the_component_and_shows_the_end_of_its_log(tmp_path: Path) -> None:
    directory = tmp_path / "plane"
    plane = ControlPlane(directory=directory, server_flags=["--no-such-flag"])
    with pytest.raises(StartFailedError) as failure:
        plane.start()
    assert "kube-apiserver ended with exit code 1" in str(failure.value)
    assert "last lines of kube-apiserver.log" in str(failure.value)
    assert "unknown flag: --no-such-flag" in str(failure.value)
    assert not directory.exists()


def test_program_that_cannot_run_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "etcd"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    plane = ControlPlane(binaries={"etcd": broken, "kube-apiserver": broken, "kube-controller-manager": broken})
    with pytest.raises(StartFailedError, match="etcd could not be started"):
        plane.start()


def test_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ControlPlaneError, match="is not empty"):
        ControlPlane(directory=tmp_path).start()
    assert (tmp_path / "precious").read_text() == "mine"


def test_outage_and_return_keep_address_and_data(tmp_path: Path) -> None:
    with ControlPlane(directory=tmp_path / "plane", keep=True) as plane:
        assert get_namespaces(plane.kubeconfig) == 0
        url = plane.url
        plane.stop_component("kube-apiserver")
        plane.stop_component("kube-controller-manager")
        assert set(plane.pids) == {"etcd"}
        assert not listens(url)
        assert get_namespaces(plane.kubeconfig) != 0
        plane.start_component("kube-apiserver")
        assert plane.url == url
        assert get_namespaces(plane.kubeconfig) == 0
        plane.start_component("kube-controller-manager")
        before = plane.pids
        learn_kinds("https://127.0.0.1:1")
        assert plane.pids == before, "another cluster's controllers are left alone"
        learn_kinds(url)
        changed = [name for name, pid in plane.pids.items() if before[name] != pid]
        assert changed == ["kube-controller-manager"]
    # keep=True
    assert (tmp_path / "plane" / "logs" / "kube-apiserver.log").is_file()
    key = tmp_path / "plane" / "certificates" / "ca.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


async def test_two_at_once_one_of_them_with_room() -> None:
    """What is measured runs as it does anywhere; programs may be given room."""
    async with ControlPlane() as one, ControlPlane(roomy=True) as other:
        assert settings_of_go(one) == [{}] * 3
        assert settings_of_go(other) == [{"GOGC": "400", "GOMAXPROCS": "1"}] * 3
        assert one.url != other.url
        codes = await asyncio.gather(*(asyncio.to_thread(get_namespaces, plane.kubeconfig) for plane in (one, other)))
        assert codes == [0, 0]
        # Each has an authority of its own: credentials of one are nothing to the other.
        foreign = one.kubeconfig.read_text().replace(one.url, other.url)
        path = one.directory / "foreign.kubeconfig"
        path.write_text(foreign)
        assert get_namespaces(path) != 0


def test_reserved_port_can_be_listened_on_and_is_given_to_nobody_else() -> None:
    with reserved_ports(2) as ports:
        with socket.socket() as component:
            component.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            component.bind(("127.0.0.1", ports[0]))
            component.listen()
        others = [socket.create_server(("127.0.0.1", 0)) for _ in range(200)]
        try:
            assert not set(ports) & {other.getsockname()[1] for other in others}
        finally:
            for other in others:
                other.close()


def test_a_component_that_gave_up_before_the_api_server_was_ready_is_started_again(tmp_path: Path) -> None:
    """As on a machine so busy that the API server takes longer than the controller manager waits for it."""
    programs = dict(find_binaries("api", report=print))
    impatient = tmp_path / "kube-controller-manager"
    real = programs["kube-controller-manager"]
    impatient.write_text(f'#!/bin/sh\n[ -e "$HOME/tried" ] || {{ touch "$HOME/tried"; exit 1; }}\nexec "{real}" "$@"\n')
    impatient.chmod(0o755)
    with ControlPlane("api", binaries={**programs, "kube-controller-manager": impatient}) as plane:
        assert (plane.directory / "tried").exists()
        assert "kube-controller-manager" in plane.pids


def test_a_component_that_ends_again_is_a_failure_that_names_it(tmp_path: Path) -> None:
    programs = dict(find_binaries("api", report=print))
    broken = tmp_path / "kube-controller-manager"
    broken.write_text("#!/bin/sh\necho it cannot be >&2\nexit 3\n")
    broken.chmod(0o755)
    plane = ControlPlane("api", binaries={**programs, "kube-controller-manager": broken})
    with pytest.raises(StartFailedError, match=r"(?s)kube-controller-manager ended with exit code 3.*it cannot be"):
        plane.start()
