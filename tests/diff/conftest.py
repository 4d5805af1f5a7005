"""Core and toy provider on an API server, and `airunway diff` as a user runs it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str


class Run(Protocol):
    """``await run("-f", "-", text=…)`` runs `airunway diff` as the administrator, or with another kubeconfig."""

    async def __call__(self, *arguments: str, text: str = "", kubeconfig: Path | None = None) -> Ran: ...


@pytest.fixture
def run(kubeconfig: Path) -> Run:
    default = kubeconfig

    async def run_(*arguments: str, text: str = "", kubeconfig: Path | None = None) -> Ran:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "airunway", "diff", *arguments, "--kubeconfig", str(kubeconfig or default)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(text.encode())
        return Ran(code=process.returncode or 0, out=out.decode(), err=err.decode())

    return run_
