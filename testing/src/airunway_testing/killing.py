"""A provider as a process of its own, for tests that end it where it hurts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["provider_process"]


@asynccontextmanager
async def provider_process(name: str, kubeconfig: Path, folder: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """`airunway provider run NAME` once it is ready; it is the caller's to end it, and is killed after the context."""
    ready, log = folder / "ready", folder / "log"
    options = ["--kubeconfig", str(kubeconfig), "--ready-file", str(ready)]
    options += ["--metrics-bind-address", "0", "--health-probe-bind-address", "0"]
    with log.open("wb") as output:
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", "airunway", "provider", "run", name, *options],
            stdout=output,
            stderr=output,
            env={**os.environ, "POD_NAMESPACE": "default", "POD_NAME": "killed"},
        )
    try:
        async with asyncio.timeout(60):
            while not ready.exists():
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.02)
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
