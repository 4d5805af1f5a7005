"""How fast and with how much memory do one process with the core and every provider, and a process each, work?

N ModelDeployments, dealt out to the providers in turn, are created and become Running, with `airunway run` or (with
--apart) with one process for each part. Then both are started anew on what is there, on the same API server, one after
the other. Upstreams are simulated; Deployments are said to be ready as soon as they are there. The bound of the same
run is what the API server needs for the writes of each provider's deployments alone, one provider after the other; what
the simulated upstreams make of them is not part of it. Prints JSON.

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
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import shapes as shapes_program
from benchmarks.bound import bound, specimen_of
from benchmarks.common import cpu_seconds, heading, rss_mib, say
from benchmarks.converge import converge
from benchmarks.shapes import Shape

from airunway.kube import Client, Kind, is_served, load_config
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import discover, load
from airunway.resource import ObjectKey, Resource
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions
from airunway_testing.simulators import simulators_for

SETTLE = 15.0
"""Seconds at rest before memory is read."""


SPEC: Resource = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "engine": {"type": "vllm"},
    "resources": {"gpu": {"count": 1}},
}
"""What every provider can run."""


def shape_of(host: ProviderHost) -> Shape:
    """What a provider's deployments are, but for what its upstream says of them."""
    primary, *others = sorted(
        (kind for kind in host.manifest.upstream if kind.write), key=lambda kind: not kind.primary
    )
    kinds = [Kind(kind.group, kind.versions[0], kind.kind, kind.plural) for kind in (primary, *others)]
    spec = {**SPEC, "provider": {"name": host.name}}
    return Shape(
        provider=host.name, spec=spec, primary=kinds[0], dependents=tuple(kinds[1:]), status=lambda finished: {}
    )


async def minimum_of(client: Client, shape: Shape, specimen: str, count: int) -> float:
    """Seconds that the API server alone needs for `count` deployments like that one, which is Running."""
    live = await client.get(shape.primary, ObjectKey("load", specimen))
    kinds = [kind for kind in shape.dependents if await is_served(client, kind)]
    like = replace(shape, dependents=tuple(kinds), status=lambda finished: live["status"])
    return await bound(client, count, await specimen_of(client, like, name=specimen), shape=like)


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
    shapes = [shape_of(host) for host in hosts]
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
            stand_in = [sys.executable, shapes_program.__file__, "vllm", str(plane.kubeconfig)]
            processes.start("deployments", stand_in, environment=dict(os.environ))
            await parts.start_all(each if apart else one)

            def deployment(name: str, namespace: str) -> Resource:
                return shapes[int(name.rpartition("-")[2]) % len(shapes)].deployment(name, namespace)

            speed = await converge(client, count, deployment=deployment)
            first = await parts.end_all(each if apart else one)
            again = {}
            for name, commands in (("in_one_process", one), ("in_a_process_each", each)):
                ready = await parts.start_all(commands)
                again[name] = {"seconds_to_ready": round(ready, 2), **await parts.end_all(commands)}
            say("the API server's own rate")
            minimum = {
                shape.provider: await minimum_of(
                    client, shape, f"load-{number}", len(range(number, count, len(shapes)))
                )
                for number, shape in enumerate(shapes)
            }
    together, alone = again["in_one_process"], again["in_a_process_each"]
    return {
        **heading("allinone"),
        "deployments": count,
        "providers": [host.name for host in hosts],
        "converged": "in a process each" if apart else "in one process",
        "seconds_to_all_created": round(speed.created, 2),
        "seconds_to_half_running": round(speed.half, 2),
        "seconds_to_all_running": round(speed.all, 2),
        "seconds_to_all_of_one_running": {
            shape.provider: round(max(speed.each[f"load-{n}"] for n in range(i, count, len(shapes))), 2)
            for i, shape in enumerate(shapes)
        },
        "seconds_of_the_api_bound_minimum": {name: round(seconds, 2) for name, seconds in minimum.items()},
        "ratio": round(speed.all / sum(minimum.values()), 2),
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
