"""Runs the command in forks of one process that has imported it: a process for each seed, without its start-up time.

Reads a JSON object per line: `arguments`, `environment`, and `kill_before`, the number of the change to the claim before
which the fork kills itself (0: never). Answers with the fork's pid, then with how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from airunway_downloader import cli

_CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def kill_before(number: int, claim: str) -> None:
    """Kill this process before its `number`-th change to the claim (Python announces each to its audit hooks)."""
    left = number

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _CHANGES and str(arguments[0]).startswith(claim):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def main() -> None:
    """Fork for every line."""
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ.update(order["environment"])
            sys.argv[1:] = order["arguments"]
            with open(os.devnull, "r+") as nothing:
                for descriptor in (0, 1):  # the answers are the parent's
                    os.dup2(nothing.fileno(), descriptor)
            if order["kill_before"]:
                kill_before(order["kill_before"], order["arguments"][-1])
            cli.main()
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
