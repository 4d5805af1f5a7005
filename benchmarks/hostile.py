"""Does anything else still run while the core has its hands full? Prints JSON.

N deployments that need nothing are gone over when a core takes over. Meanwhile a client asks its `/livez`, as a kubelet
does, on a fixed schedule; each answer is timed from the moment at which it was due, so that a stall counts for every
question it holds up. Compared with the same core at rest, in the same run.

At last the core gets half of a processor, which it shares with something that never rests: does it keep its lease?

    uv run python -m benchmarks.hostile --deployments 10000
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
from pathlib import Path
from typing import Any

import aiohttp
from benchmarks.common import concurrently, percentiles, rss_mib, say, scrape
from benchmarks.shapes import SHAPES

from airunway import __version__
from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import LEASE, NAMESPACE, Client, load_config
from airunway.resource import ObjectKey
from airunway_testing.controlplane import KUBERNETES_VERSION, ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions

METRICS, PROBES = "127.0.0.1:18490", "127.0.0.1:18491"
NAME = "core"
LEASE_KEY = ObjectKey("default", names.CORE_MANAGER)


class Core:
    """The core as a process of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="airunway-hostile-"))
        self._kubeconfig = kubeconfig
        self.processes = Processes(self._folder, keep=False)

    def start(self) -> None:
        command = [sys.executable, "-m", "airunway", "controller", "--kubeconfig", str(self._kubeconfig)]
        command += ["--metrics-bind-address", METRICS, "--health-probe-bind-address", PROBES, "--leader-elect"]
        environment = {**os.environ, "POD_NAMESPACE": LEASE_KEY.namespace, "POD_NAME": NAME}
        self.processes.start(NAME, command, environment=environment)

    def halve(self) -> None:
        """Have it share one processor with something that never rests."""
        self.processes.start("burner", [sys.executable, "-c", "while True: pass"], environment={})
        for pid in (self.processes.pids["burner"], self.processes.pids[NAME]):
            os.sched_setaffinity(pid, {0})

    def said(self, text: str) -> int:
        """How often its log has that text."""
        return self.processes.log(NAME).read_text().count(text)

    def stop(self) -> None:
        self.processes.stop(NAME, grace=10.0)

    @property
    def rss(self) -> dict[str, float]:
        return rss_mib(self.processes.pids[NAME])


async def register(client: Client) -> None:
    """A provider that takes the deployments, so that they are as they mostly are: nothing is to be done."""
    engines = [{"name": "llamacpp", "servingModes": ["aggregated"], "gpuSupport": True, "cpuSupport": True}]
    upstream = [{"group": "", "kind": "ConfigMap", "versions": ["v1"], "requiresCRD": False}]
    config = {
        "apiVersion": names.API_VERSION,
        "kind": "InferenceProviderConfig",
        "metadata": {"name": "nobody"},
        "spec": {"capabilities": {"engines": engines}, "upstream": upstream},
    }
    await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="benchmark")
    key = ObjectKey("", "nobody")
    await client.merge_patch(INFERENCE_PROVIDER_CONFIG, key, {"status": {"ready": True}}, subresource="status")


class Visitor:
    """Asks `/livez` every `interval` seconds; `taken` are milliseconds from when each question was due."""

    def __init__(self, *, interval: float = 0.02) -> None:
        self._interval = interval
        self.taken: list[float] = []

    async def run(self) -> None:
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            due = time.perf_counter()
            while True:
                group.create_task(self._ask(http, due))
                due += self._interval
                await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def _ask(self, http: aiohttp.ClientSession, due: float) -> None:
        try:
            async with http.get(f"http://{PROBES}/livez") as answer:
                await answer.read()
        except aiohttp.ClientConnectionError:
            return  # it does not listen yet
        self.taken.append((time.perf_counter() - due) * 1000)


async def watched(seconds: float | None, count: int) -> tuple[dict[str, float], float, float]:
    """What a visitor sees for some seconds, or until `count` passes are done: latencies, longest gap, seconds."""
    visitor, started, gap = Visitor(), time.perf_counter(), 0.0
    visiting = asyncio.create_task(visitor.run())
    while True:
        await asyncio.sleep(0.5)
        passed = time.perf_counter() - started
        try:
            values = await asyncio.to_thread(scrape, METRICS)
        except OSError:
            values = {}
        gap = max(gap, values.get("airunway_event_loop_lag_seconds", 0.0))
        done = values.get("airunway_reconcile_total", 0) >= count and not values["airunway_workqueue_depth"]
        if passed > seconds if seconds is not None else done:
            break
        if passed > 600:
            sys.exit(f"not through after ten minutes: {values}")
    visiting.cancel()
    await asyncio.wait({visiting})
    return percentiles(visitor.taken), round(gap, 3), round(passed, 1)


async def run(arguments: argparse.Namespace, plane: ControlPlane) -> dict[str, Any]:
    count, core = arguments.deployments, Core(plane.kubeconfig)
    async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client:
        await install_definitions(client)
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}})

        await register(client)

        async def create(name: str) -> None:
            await client.create(MODEL_DEPLOYMENT, SHAPES["one"].deployment(name, "load"))

        try:
            say(f"creating {count} deployments")
            await concurrently([f"load-{number}" for number in range(count)], create)
            core.start()
            say("their first judgement")
            first, first_gap, first_seconds = await watched(None, count)
            core.stop()
            say("a core that takes over")
            core.start()
            taking_over, gap, seconds = await watched(None, count)
            memory = core.rss
            await asyncio.sleep(61)  # a gap is shown for a minute
            say("at rest")
            rest, rest_gap, _ = await watched(arguments.rest, count)
            core.stop()
            say("on half a core")
            core.start()
            core.halve()
            halved, halved_gap, halved_seconds = await watched(None, count)
            lost, lease = core.said("lost the lease"), await client.get(LEASE, LEASE_KEY)
        finally:
            core.processes.close(grace=5.0)
    return {
        "benchmark": "hostile",
        "airunway": __version__,
        "kubernetes": KUBERNETES_VERSION,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "deployments": count,
        "first_judgement": {"seconds": first_seconds, "longest_gap_seconds": first_gap, "livez_ms": first},
        "fail_over": {"seconds": seconds, "longest_gap_seconds": gap, "livez_ms": taking_over, "rss_mib": memory},
        "fail_over_on_half_a_core": {
            "seconds": halved_seconds,
            "longest_gap_seconds": halved_gap,
            "livez_ms": halved,
            "leases_lost": lost,
            "holder": lease["spec"].get("holderIdentity"),
        },
        "at_rest": {"longest_gap_seconds": rest_gap, "livez_ms": rest},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=10_000)
    parser.add_argument("--rest", type=float, default=10.0, help="seconds to watch a core that has nothing to do")
    arguments = parser.parse_args()
    with ControlPlane("api", report=say) as plane:
        print(json.dumps(asyncio.run(run(arguments, plane)), indent=2))


if __name__ == "__main__":
    main()
