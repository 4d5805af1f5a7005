"""How fast and with how much memory do one process with the core and every provider, and a process each, work?

N ModelDeployments, dealt out to the providers in turn, are created and become Running, with `airunway run` or (with
--apart) with one process for each part. Then both are started anew on what is there, on the same API server, one after
the other. Upstreams are simulated; Deployments are said to be ready as soon as they are there. Prints JSON.

    uv run python -m benchmarks.allinone --deployments 1000            # with five providers: 200 of each
    uv run python -m benchmarks.allinone --deployments 1000 --apart
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import shapes
from benchmarks.common import concurrently, cpu_seconds, heading, rss_mib, say

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import NAMESPACE, Client, load_config
from airunway.plugins.registry import discover, load
from airunway.resource import Resource, dig
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions
from airunway_testing.simulators import simulators_for

SETTLE = 15.0
"""Seconds at rest before memory is read."""


def deployment(name: str, namespace: str, provider: str) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "engine": {"type": "vllm"},
            "provider": {"name": provider},
            "resources": {"gpu": {"count": 1}},
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


class Parts:
    """The operator's processes, started and stopped in sets."""

    def __init__(self, processes: Processes, folder: Path, kubeconfig: Path) -> None:
        self._processes = processes
        self._folder = folder
        self._kubeconfig = kubeconfig

    def start(self, name: str, *command: str) -> None:
        options = ("--kubeconfig", str(self._kubeconfig))
        command = (sys.executable, "-m", "airunway", *command, *options)
        self._processes.start(name, list(command), environment=dict(os.environ))

    async def start_all(self, commands: Mapping[str, Sequence[str]]) -> float:
        """Seconds until all are ready."""
        started = time.monotonic()
        markers = {name: self._folder / f"{name}.ready" for name in commands}
        for name, command in commands.items():
            markers[name].unlink(missing_ok=True)
            self.start(name, *command, "--ready-file", str(markers[name]))
        while not all(marker.exists() for marker in markers.values()):
            if (ended := self._processes.exited()) or time.monotonic() - started > 120:
                names = list(ended) or list(commands)
                sys.exit("\n".join(f"{name}: {self._processes.log(name).read_text()}" for name in names))
            await asyncio.sleep(0.1)
        return time.monotonic() - started

    async def end_all(self, commands: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """What each has used, once they are at rest; they are stopped then."""
        await asyncio.sleep(SETTLE)
        pids = self._processes.pids
        memory = {name: rss_mib(pids[name]) for name in commands}
        cpu = {name: round(cpu_seconds(pids[name]), 2) for name in commands}
        for name in commands:
            self._processes.stop(name, grace=10.0)
        total = round(sum(each["now"] for each in memory.values()), 1)
        return {"rss_mib": memory, "rss_mib_together": total, "cpu_seconds": cpu}


async def run(count: int, plane: ControlPlane, *, apart: bool) -> dict[str, Any]:
    hosts = [load(found.name) for found in discover() if found.distribution != "airunway-testing"]
    one: dict[str, Sequence[str]] = {"all": ("run",)}
    each: dict[str, Sequence[str]] = {
        "core": ("controller",),
        **{host.name: ("provider", "run", host.name) for host in hosts},
    }
    simulators = simulators_for((kind.group, kind.kind) for host in hosts for kind in host.manifest.upstream)
    folder = Path(tempfile.mkdtemp(prefix="airunway-benchmark-"))
    processes = Processes(folder, keep=False)
    parts = Parts(processes, folder, plane.kubeconfig)
    async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client:
        with ExitStack() as stack:
            stack.callback(processes.close, grace=5.0)
            await install_definitions(client, [crd for sim in simulators for crd in sim.custom_resource_definitions()])
            for simulator in simulators:
                parts.start(f"simulated-{simulator.name}", "simulate", simulator.name, "--level", "api")
            stand_in = [sys.executable, shapes.__file__, "vllm", str(plane.kubeconfig)]
            processes.start("deployments", stand_in, environment=dict(os.environ))
            await parts.start_all(each if apart else one)
            await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}})

            async def create(name: str) -> None:
                provider = hosts[int(name.rpartition("-")[2]) % len(hosts)].name
                await client.create(MODEL_DEPLOYMENT, deployment(name, "load", provider))

            started = time.monotonic()
            await concurrently([f"load-{number}" for number in range(count)], create)
            created = time.monotonic() - started
            await until_all_run(client, "load", count)
            converged = time.monotonic() - started
            first = await parts.end_all(each if apart else one)
            again = {}
            for name, commands in (("in_one_process", one), ("in_a_process_each", each)):
                ready = await parts.start_all(commands)
                again[name] = {"seconds_to_ready": round(ready, 2), **await parts.end_all(commands)}
    together, alone = again["in_one_process"], again["in_a_process_each"]
    return {
        **heading("allinone"),
        "deployments": count,
        "providers": [host.name for host in hosts],
        "converged": "in a process each" if apart else "in one process",
        "seconds_to_all_created": round(created, 2),
        "seconds_to_all_running": round(converged, 2),
        "after_converging": first,
        "restarted": again,
        "memory_ratio": round(together["rss_mib_together"] / alone["rss_mib_together"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=1000)
    parser.add_argument("--apart", action="store_true", help="converge with a process for each part")
    arguments = parser.parse_args()
    with ControlPlane("api", report=say) as plane:
        print(json.dumps(asyncio.run(run(arguments.deployments, plane, apart=arguments.apart)), indent=2))


if __name__ == "__main__":
    main()
