"""Console blocks of pages: their commands are run in one shell, and what they say is compared with what is shown."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from click.testing import CliRunner

from airunway.cli.main import app

__all__ = ["Ran", "Shell", "is_shown", "ran", "ran_now", "steps"]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str


_ONE_AT_A_TIME = Lock()
"""A command has the output of the whole process while it runs."""


async def ran(*arguments: str, text: str = "") -> Ran:
    """What `airunway` says to these arguments, in a thread of this process: half a second less than as a process."""
    return await asyncio.to_thread(_invoked, arguments, text)


def ran_now(*arguments: str, text: str = "") -> Ran:
    """The same where an event loop may run, which stands still meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_invoked, arguments, text).result()


def _invoked(arguments: Sequence[str], text: str) -> Ran:
    with _ONE_AT_A_TIME:
        done = CliRunner().invoke(app, list(arguments), input=text, prog_name="airunway")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ran(code=done.exit_code, out=done.stdout, err=done.stderr)


def steps(block: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that are shown below it."""
    shown: list[str] = []
    command = ""
    for line in block.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line.removeprefix("$ "), []
        else:
            shown.append(line)
    yield command, shown


def is_shown(lines: list[str], output: str) -> bool:
    """Whether the output is as it is shown: `…` stands for anything, on a line of its own for any lines."""
    parts = [r"(?:.*\n)*?" if line == "…" else r"\s*".join(map(_pattern, line.split())) + r"[^\n]*\n" for line in lines]
    return re.fullmatch("".join(parts), output) is not None


def _pattern(word: str) -> str:
    return r"[^\n]*?".join(map(re.escape, word.split("…")))


class Shell:
    """A bash in which commands run one after the other, for as long as the context lasts."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.__exit__(kind, error, trace)

    def show(self, command: str, shown: list[str]) -> None:
        """Run a command, which must succeed and say what is shown. Raises AssertionError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{{ {command}\n}} </dev/null\ncode=$?; echo; echo done:$code\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith("done:"):
                break
        text, _, code = "".join(lines).rpartition("\ndone:")
        assert code.strip() == "0", f"$ {command}\n{text}"
        assert is_shown(shown, text), f"$ {command}\n{text}\nthe page shows:\n{chr(10).join(shown)}"
