"""How much memory does one process take that has the core and every installed provider, beside as many processes?

N ModelDeployments, dealt out to the providers in turn, run until all are Running; first with `airunway run`, then with
one process for each part, on the same API server. Prints JSON.

    uv run python -m benchmarks.allinone --deployments 1000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.common import concurrently, rss_mib, say

from airunway import __version__
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, load_config
from airunway.plugins.registry import discover, load
from airunway.resource import Resource, dig
from airunway_testing.controlplane import KUBERNETES_VERSION, ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions
from airunway_testing.simulators import discover_simulators

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False)
SETTLE = 15.0
"""Seconds at rest before memory is read."""


def deployment(name: str, namespace: str, provider: str) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
            "engine": {"type": "llamacpp"},
            "provider": {"name": provider},
            "resources": {"memory": "16Gi", "cpu": "8"},
            "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
        },
    }


async def until_all_run(client: Client, namespace: str, count: int) -> None:
    deadline = time.monotonic() + 900
    while True:
        found = await client.list_all(MODEL_DEPLOYMENT, namespace=namespace)
        running = sum(dig(obj, "status", "phase") == "Running" for obj in found)
        if running == count:
            return
        if time.monotonic() > deadline:
            sys.exit(f"only {running} of {count} are Running after 15 minutes")
        await asyncio.sleep(1.0)


async def measured(
    processes: Processes, folder: Path, kubeconfig: Path, commands: dict[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Memory of these parts of ours, started on what is there, once they have gone over it; they are stopped then."""
    started = time.monotonic()
    for name, command in commands.items():
        options = ("--kubeconfig", str(kubeconfig), "--ready-file", str(folder / f"{name}.ready"))
        processes.start(name, [sys.executable, "-m", "airunway", *command, *options], environment=dict(os.environ))
    while any(not (folder / f"{name}.ready").exists() for name in commands):
        if processes.exited() or time.monotonic() - started > 120:
            sys.exit("\n".join(processes.log(name).read_text() for name in commands))
        await asyncio.sleep(0.1)
    ready = time.monotonic() - started
    await asyncio.sleep(SETTLE)
    memory = {name: rss_mib(processes.pids[name]) for name in commands}
    for name in commands:
        processes.stop(name, grace=10.0)
    total = round(sum(each["now"] for each in memory.values()), 1)
    return {"seconds_to_ready": round(ready, 2), "rss_mib": memory, "rss_mib_together": total}


async def run(count: int, plane: ControlPlane) -> dict[str, Any]:
    hosts = [load(found.name) for found in discover()]
    # What a simulator plays runs; plain Deployments would need more than an API server.
    primaries = {(host.primary_kind.group, host.primary_kind.kind): host.name for host in hosts}
    played = {
        primaries[kind]: simulator
        for simulator in discover_simulators().values()
        for kind in simulator.kinds
        if kind in primaries
    }
    folder = Path(tempfile.mkdtemp(prefix="airunway-benchmark-"))
    processes = Processes(folder, keep=False)
    async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client:
        with ExitStack() as stack:
            stack.callback(processes.close, grace=5.0)
            crds = [crd for each in played.values() for crd in each.custom_resource_definitions()]
            await install_definitions(client, crds)
            for name in played:
                command = [sys.executable, "-m", "airunway", "simulate", name, "--level", "api"]
                command += ["--kubeconfig", str(plane.kubeconfig)]
                processes.start(f"simulated-{name}", command, environment=dict(os.environ))
            first = [sys.executable, "-m", "airunway", "run", "--kubeconfig", str(plane.kubeconfig)]
            processes.start("first", first, environment=dict(os.environ))
            await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}})

            async def create(name: str) -> None:
                provider = list(played)[int(name.rpartition("-")[2]) % len(played)]
                await client.create(MODEL_DEPLOYMENT, deployment(name, "load", provider))

            started = time.monotonic()
            await concurrently([f"load-{number}" for number in range(count)], create)
            await until_all_run(client, "load", count)
            converged = time.monotonic() - started
            await asyncio.sleep(SETTLE)
            grown = rss_mib(processes.pids["first"])
            processes.stop("first", grace=10.0)
            together = await measured(processes, folder, plane.kubeconfig, {"all": ("run",)})
            apart = {"core": ("controller",), **{host.name: ("provider", "run", host.name) for host in hosts}}
            alone = await measured(processes, folder, plane.kubeconfig, apart)
    return {
        "benchmark": "allinone",
        "airunway": __version__,
        "kubernetes": KUBERNETES_VERSION,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "deployments": count,
        "providers": [host.name for host in hosts],
        "seconds_to_all_running": round(converged, 2),
        "rss_mib_after_converging": grown,
        "restarted_in_one_process": together,
        "restarted_in_a_process_each": alone,
        "memory_ratio": round(together["rss_mib_together"] / alone["rss_mib_together"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=1000)
    arguments = parser.parse_args()
    with ControlPlane("api", report=say) as plane:
        print(json.dumps(asyncio.run(run(arguments.deployments, plane)), indent=2))


if __name__ == "__main__":
    main()
