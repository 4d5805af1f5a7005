"""What the benchmarks share: work side by side, what the system and a process' metrics say, how it is printed."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from airunway import __version__
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import Resource
from airunway_testing.controlplane import KUBERNETES_VERSION

CONCURRENCY = 32


def heading(benchmark: str) -> dict[str, Any]:
    """How every result begins."""
    return {
        "benchmark": benchmark,
        "airunway": __version__,
        "kubernetes": KUBERNETES_VERSION,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
    }


def say(text: str) -> None:
    print(f"{text} …", file=sys.stderr)


async def concurrently(items: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
    """`work` on every item, CONCURRENCY at a time."""
    queue = list(items)[::-1]

    async def worker() -> None:
        while queue:
            await work(queue.pop())

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(worker())


async def bound_write(client: Client, deployment: Resource, manager: str) -> None:
    """One write of a deployment's status by a plain client: the bound of what core and provider write."""
    condition = {"type": manager, "status": "True", "reason": "Bound", "message": "", "observedGeneration": 1,
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    body = {key: value for key, value in deployment.items() if key != "spec"}
    wanted = {**body, "status": {"conditions": [condition]}}
    await client.apply(MODEL_DEPLOYMENT, wanted, manager=manager, force=True, subresource="status")


def rss_mib(pid: int) -> dict[str, float]:
    """Resident memory of a process now and at its peak, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return {"now": round(values["VmRSS"], 1), "peak": round(values["VmHWM"], 1)}


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def scrape(address: str) -> dict[str, float]:
    """What a process says of itself, as Prometheus reads it: metric name → sum over all its label values."""
    found: defaultdict[str, float] = defaultdict(float)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if not line.startswith("#"):
                found[line.partition("{")[0].split()[0]] += float(line.rsplit(" ", 1)[1])
    return found


def passes_of(address: str, controllers: tuple[str, ...]) -> float:
    """The passes that these controllers of a process have made so far."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("airunway_reconcile_total{")]
    wanted = tuple(f'controller="{name}"' for name in controllers)
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if any(name in line for name in wanted))


def percentiles(samples: list[float]) -> dict[str, float]:
    ordered = sorted(samples)
    return {
        "p50": round(statistics.median(ordered), 2),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
        "max": round(ordered[-1], 2),
        "samples": len(ordered),
    }
