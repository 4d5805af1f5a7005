"""Our end of the supervisor: start and stop components, learn when one ends."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from airunway_testing.controlplane.errors import StartFailedError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PATIENCE = 60.0
"""Seconds beyond any grace after which a supervisor that does not answer is taken for dead: a busy machine is slow."""


class Processes:
    """The components of one control plane, in a supervisor process of their own session.

    `directory` is removed when all is stopped, unless `keep`. Safe to use from any thread, but from one at a time.
    """

    def __init__(self, directory: Path, *, keep: bool) -> None:
        self._logs = directory / "logs"
        self._logs.mkdir()
        self._directory = directory
        self._keep = keep
        self._pids: dict[str, int] = {}
        self._failed: dict[str, str] = {}
        self._exited: dict[str, int] = {}
        self._buffer = b""
        arguments = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(directory), *(["keep"] if keep else [])]
        with (self._logs / "supervisor.log").open("wb") as log:
            self._supervisor = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )

    @property
    def group(self) -> int:
        """The process group that the supervisor and all components are in."""
        return self._supervisor.pid

    @property
    def pids(self) -> Mapping[str, int]:
        """The running components' process ids by name."""
        self._read_events(0)
        return dict(self._pids)

    def log(self, name: str) -> Path:
        """Where the component's output goes."""
        return self._logs / f"{name}.log"

    def start(self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], last: bool = False) -> None:
        """Start a component in the control plane's folder; `last` marks the one to stop after all others.

        Raises StartFailedError when the program cannot be run at all.
        """
        self._exited.pop(name, None)
        self._send(
            op="start",
            name=name,
            argv=list(argv),
            cwd=str(self._directory),
            env=dict(environment),
            log=str(self.log(name)),
            last=last,
        )
        deadline = time.monotonic() + _PATIENCE
        while name not in self._pids and name not in self._exited:
            if name in self._failed:
                raise StartFailedError(f"{name} could not be started: {self._failed.pop(name)}")
            if not self._read_events(deadline - time.monotonic()):
                tail = log_tail(self._logs / "supervisor.log")
                raise StartFailedError(f"{name}: the supervisor did not start it\n{tail}")

    def stop(self, name: str, *, grace: float) -> None:
        """SIGTERM one component, SIGKILL it after `grace` seconds; returns when it is gone."""
        self._send(op="stop", name=name, grace=grace)
        deadline = time.monotonic() + grace + _PATIENCE
        while name in self._pids:
            if not self._read_events(deadline - time.monotonic()):
                raise StartFailedError(f"{name}: the supervisor did not stop it")
        self._exited.pop(name, None)  # as it was told to

    def exited(self) -> Mapping[str, int]:
        """The components that have ended by themselves, with their exit codes (negative: the signal)."""
        self._read_events(0)
        return dict(self._exited)

    def close(self, *, grace: float) -> None:
        """Stop everything and remove the folder; returns when all processes are gone. May be called again."""
        if self._supervisor.stdin is None or self._supervisor.stdin.closed:
            return
        self._read_events(0)
        try:
            self._send(op="close", grace=grace)
            # Two rounds of grace: the store stops after the others.
            self._supervisor.wait(timeout=2 * grace + _PATIENCE)
        except (StartFailedError, subprocess.TimeoutExpired):
            self._supervisor.kill()
        finally:
            if self._supervisor.wait() != 0:
                self._clean_up_after_supervisor()
            with contextlib.suppress(BrokenPipeError):  # what could not be sent is tried again on closing
                self._supervisor.stdin.close()
            if self._supervisor.stdout is not None:
                self._supervisor.stdout.close()
            self._pids.clear()

    def _clean_up_after_supervisor(self) -> None:
        # It was killed. On Linux the components die with it, elsewhere nobody else sees to that.
        living = set(self._pids.values())
        deadline = time.monotonic() + _PATIENCE
        while living and time.monotonic() < deadline:
            for pid in list(living):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    living.discard(pid)
            time.sleep(0.02)
        if not self._keep:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _send(self, **request: object) -> None:
        assert self._supervisor.stdin is not None
        try:
            self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
            self._supervisor.stdin.flush()
        except OSError as error:
            tail = log_tail(self._logs / "supervisor.log")
            raise StartFailedError(f"the control plane's supervisor is gone ({error})\n{tail}") from error

    def _read_events(self, timeout: float) -> bool:
        """Take in what the supervisor said; False when nothing came within `timeout` seconds, or nothing can come any
        more.
        """
        if self._supervisor.stdout is None or self._supervisor.stdout.closed:
            return False
        descriptor = self._supervisor.stdout.fileno()
        heard = False
        while select.select([descriptor], [], [], 0 if heard else max(timeout, 0))[0]:
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return heard
            heard = True
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            for line in lines:
                self._note(json.loads(line))
        return heard

    def _note(self, event: Mapping[str, object]) -> None:
        name = str(event.get("name"))
        match event["event"]:
            case "started":
                self._pids[name] = int(str(event["pid"]))
            case "exited":
                self._pids.pop(name, None)
                self._exited[name] = int(str(event["code"]))
            case "failed":
                self._failed[name] = str(event["message"])


def ending_of(code: int) -> str:
    """How a process ended, by its exit code (negative: the signal)."""
    if code >= 0:
        return f"ended with exit code {code}"
    known = {number.value: f" ({number.name})" for number in signal.Signals}
    return f"was ended by signal {-code}{known.get(-code, '')}"


def log_tail(path: Path, *, lines: int = 15) -> str:
    """The last lines of a log, indented, under its name; says so when there is none."""
    try:
        content = path.read_bytes()[-16384:].decode(errors="replace").splitlines()
    except OSError as error:
        return f"  (no log: {error})"
    return "\n".join([f"  last lines of {path.name}:", *(f"  | {line[:400]}" for line in content[-lines:])])
