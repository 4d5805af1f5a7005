"""`airunway` of another environment, whose modules are imported once: each command is a fork of that process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Warm", "warm"]

_SERVER = """
import json, os, sys
import yaml
import airunway.cli.crds, airunway.cli.install, airunway.install.helm, airunway.kube, airunway.plugins.registry
import airunway.upgrades.definitions
from airunway.cli import main
for line in sys.stdin:
    arguments, environment, outputs = json.loads(line)
    child = os.fork()
    if child == 0:
        os.environ.clear()
        os.environ.update(environment)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, path in zip((1, 2), outputs):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["airunway", *arguments]
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Warm:
    """A process that has imported `airunway`; `folder` takes what its commands print."""

    process: subprocess.Popen[str]
    folder: Path

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command with nothing but these variables, and without a terminal."""
        outputs = [self.folder / name for name in ("stdout", "stderr")]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps([list(command), dict(environment), list(map(str, outputs))])}\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        said, complaint = (path.read_text(encoding="utf-8") for path in outputs)
        return subprocess.CompletedProcess(command, code, said, complaint)


@contextmanager
def warm(python: Path, folder: Path) -> Iterator[Warm]:
    """The `airunway` that this Python has installed."""
    environment = {"HOME": os.environ["HOME"], "PATH": os.defpath}
    with subprocess.Popen(
        [python, "-c", _SERVER], env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Warm(process=process, folder=folder)
        assert process.stdin is not None
        process.stdin.close()
