"""`airunway preflight` as a user calls it."""

from __future__ import annotations

import subprocess
import sys


def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "airunway", "preflight", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
