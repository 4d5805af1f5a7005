"""What a provider's author imports is light: the clients, servers and terminals of processes are not part of it."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("aiohttp", "click", "cryptography", "kopf", "kubernetes_asyncio", "prometheus_client", "rich")


def test_the_sdk_loads_nothing_of_a_process() -> None:
    program = f"import sys, airunway.sdk; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
