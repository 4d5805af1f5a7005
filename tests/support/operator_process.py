"""AI Runway as a process of its own, for tests that end it where it hurts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from airunway_testing.eventually import PATIENCE


def provider_process(
    name: str, kubeconfig: Path, folder: Path, *options: str
) -> AbstractAsyncContextManager[subprocess.Popen[bytes]]:
    """`airunway provider run NAME` once it is ready; it is the caller's to end it, and is killed after the context."""
    quiet = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0")
    return operator_process(kubeconfig, folder, "provider", "run", name, *quiet, *options)


@asynccontextmanager
async def operator_process(kubeconfig: Path, folder: Path, *arguments: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """`airunway ARGUMENTS...` once it is ready; killed after the context, if it has not ended by then.

    `folder` gets its log. Raises AssertionError, with the log, if it ends before it is ready.
    """
    ready, log = folder / "ready", folder / "log"
    ready.unlink(missing_ok=True)
    with log.open("wb") as output:
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", "airunway", *arguments, "--kubeconfig", str(kubeconfig), "--ready-file", str(ready)],
            stdout=output,
            stderr=output,
            env={**os.environ, "POD_NAMESPACE": "default", "POD_NAME": "own-process"},
        )
    try:
        async with asyncio.timeout(PATIENCE):
            while not ready.exists():
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.02)
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
