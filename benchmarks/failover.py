"""How long does no core lead when the leading one ends: killed, or stopped? Prints JSON.

Two replicas with leader election. The time is from the end of the leader (its last signal) to the first status that the
other one writes for a ModelDeployment that was created at that moment.

    uv run python benchmarks/failover.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from airunway import __version__
from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import LEASE, Client, load_config
from airunway.resource import ObjectKey, condition_of, dig
from airunway_testing.controlplane import KUBERNETES_VERSION, ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions, until

LEASE_KEY = ObjectKey("default", names.CORE_MANAGER)


class Replicas:
    """Cores that are processes of their own; each is known to the lease by its name."""

    def __init__(self, kubeconfig: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="airunway-failover-"))
        self._kubeconfig = kubeconfig
        self.processes = Processes(self._folder, keep=False)

    def start(self, name: str) -> None:
        marker = self._folder / f"{name}.ready"
        marker.unlink(missing_ok=True)
        command = [sys.executable, "-m", "airunway", "controller", "--leader-elect", "--ready-file", str(marker)]
        environment = {**os.environ, "POD_NAME": name, "POD_NAMESPACE": LEASE_KEY.namespace}
        self.processes.start(name, [*command, "--kubeconfig", str(self._kubeconfig)], environment=environment)
        deadline = time.monotonic() + 60
        while not marker.exists():
            if time.monotonic() > deadline or name in self.processes.exited():
                sys.exit(f"{name} did not start:\n{self.processes.log(name).read_text()}")
            time.sleep(0.02)

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes.pids[name], number)


async def leader(client: Client) -> str:
    """The name of the replica that leads, once one does."""
    async with asyncio.timeout(60):
        while True:
            for lease in await client.list_all(LEASE, namespace=LEASE_KEY.namespace):
                if lease["metadata"]["name"] == LEASE_KEY.name and dig(lease, "spec", "holderIdentity"):
                    return str(lease["spec"]["holderIdentity"])
            await asyncio.sleep(0.05)


async def one_failover(client: Client, replicas: Replicas, name: str, number: signal.Signals) -> float:
    """End the leader with a signal; seconds until the other has judged a deployment made at that moment."""
    leading = await leader(client)
    deployment = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"id": "org/model"}},
    }
    replicas.signal(leading, number)
    ended = time.perf_counter()
    while leading in replicas.processes.pids:
        await asyncio.sleep(0.01)  # what it still judges on its way out does not count
    await client.create(MODEL_DEPLOYMENT, deployment)
    await until(client, ObjectKey("default", name), lambda d: condition_of(d, "Validated") is not None)
    seconds = time.perf_counter() - ended
    replicas.start(leading)
    return seconds


async def run(arguments: argparse.Namespace, plane: ControlPlane) -> dict[str, Any]:
    replicas = Replicas(plane.kubeconfig)
    async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client:
        await install_definitions(client)
        try:
            for name in ("core-a", "core-b"):
                replicas.start(name)
            graceful = [
                await one_failover(client, replicas, f"graceful-{n}", signal.SIGTERM) for n in range(arguments.samples)
            ]
            crash = [
                await one_failover(client, replicas, f"crash-{n}", signal.SIGKILL) for n in range(arguments.samples)
            ]
        finally:
            replicas.processes.close(grace=5.0)
    return {
        "benchmark": "failover",
        "airunway": __version__,
        "kubernetes": KUBERNETES_VERSION,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "graceful_seconds": [round(seconds, 2) for seconds in graceful],
        "crash_seconds": [round(seconds, 2) for seconds in crash],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3)
    arguments = parser.parse_args()
    with ControlPlane("api") as plane:
        print(json.dumps(asyncio.run(run(arguments, plane)), indent=2))


if __name__ == "__main__":
    main()
