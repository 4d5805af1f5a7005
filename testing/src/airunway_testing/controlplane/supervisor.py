"""The process between us and the components: it starts them, and ends them when it is told to or when we are gone.

It runs by its path, without airunway on its import path (starting takes a few hundredths of a second), and speaks
JSON lines: requests on standard input, events on standard output. Its standard input is the lifeline: when the
process that started it ends, however it ends, the pipe closes, and the supervisor stops the components and removes
the folder. So nothing depends on exit handlers, on signals, or on which thread started what. Should the supervisor
itself be killed, the kernel kills the components (Linux).

Requests::

    {"op": "start", "name": ..., "argv": [...], "cwd": ..., "env": {...}, "log": path, "last": bool}
    {"op": "stop", "name": ..., "grace": seconds}
    {"op": "close", "grace": seconds}

Events::

    {"event": "started", "name": ..., "pid": ...}
    {"event": "failed", "name": ..., "message": ...}       the program could not be started at all
    {"event": "exited", "name": ..., "code": ...}          code as in subprocess: negative is a signal
    {"event": "closed"}                                    all are gone, the folder too
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_GRACE_WITHOUT_PARENT = 2.0
_TICK = 0.02


def _die_with(parent: int, libc: "ctypes.CDLL") -> None:
    # Runs between fork and exec. This process has one thread, so code may run here safely, and the "parent" whose
    # death counts (a thread, to the kernel) is the one that lives as long as the process.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Supervisor:
    def __init__(self, *, directory: str, keep: bool) -> None:
        self._directory = directory
        self._keep = keep
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._last: set[str] = set()
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

        self._asked_to_end = False
        self._wakeup, wakeup = os.pipe()
        for end in (self._wakeup, wakeup):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        # Handlers that do nothing rather than SIG_IGN, which the components would inherit. Ctrl-C and a closed
        # terminal are the business of the process that started us; SIGTERM is meant for us.
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, *_: object) -> None:
        self._asked_to_end = True

    def run(self) -> None:
        """Serve requests until told to close, or until the other end is gone."""
        buffer = b""
        while not self._asked_to_end:
            readable, _, _ = select.select([0, self._wakeup], [], [])
            if self._wakeup in readable:
                os.read(self._wakeup, 4096)
                self._reap()
            if 0 not in readable:
                continue
            chunk = os.read(0, 65536)
            if not chunk:
                break
            buffer += chunk
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                request = json.loads(line)
                if request["op"] == "close":
                    self._close(request["grace"])
                    return
                if request["op"] == "start":
                    self._start(request)
                else:
                    self._end([request["name"]], request["grace"])
        self._close(_GRACE_WITHOUT_PARENT)

    def _start(self, request: dict) -> None:  # type: ignore[type-arg]
        name, parent, libc = request["name"], os.getpid(), self._libc
        try:
            with open(request["log"], "ab") as log:
                child = subprocess.Popen(
                    request["argv"],
                    cwd=request["cwd"],
                    env=request["env"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=None if libc is None else lambda: _die_with(parent, libc),
                )
        except OSError as error:
            _say({"event": "failed", "name": name, "message": str(error)})
            return
        self._children[name] = child
        if request["last"]:
            self._last.add(name)
        _say({"event": "started", "name": name, "pid": child.pid})

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            code = child.poll()
            if code is not None:
                del self._children[name]
                _say({"event": "exited", "name": name, "code": code})

    def _end(self, names: "list[str]", grace: float) -> None:
        for name in names:
            if name in self._children:
                self._children[name].terminate()
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and any(name in self._children for name in names):
            time.sleep(_TICK)
            self._reap()
        for name in names:
            if name in self._children:
                self._children[name].kill()
                self._children[name].wait()
        self._reap()

    def _close(self, grace: float) -> None:
        # The store goes last: the others would only complain about its absence.
        self._end([name for name in self._children if name not in self._last], grace)
        self._end(list(self._children), grace)
        if not self._keep:
            shutil.rmtree(self._directory, ignore_errors=True)
        _say({"event": "closed"})


def _say(event: dict) -> None:  # type: ignore[type-arg]
    # Nobody may be there to listen: then there is nothing to say, and still work to do.
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


def main() -> None:
    """Supervise the folder named by the first argument; a second argument ``keep`` leaves it in place at the end."""
    _Supervisor(directory=sys.argv[1], keep=sys.argv[2:] == ["keep"]).run()


if __name__ == "__main__":
    main()
