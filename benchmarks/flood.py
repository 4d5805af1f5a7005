"""Does the core go on while its webhook is flooded? Prints JSON.

The flood, from a process of its own: a thousand connections that say nothing (half of them end TLS first), ten that
send a head and never end their body, all opened anew when they are closed, and 500 reviews a second. Meanwhile
deployments are paused and resumed, which no webhook is asked about, and each is timed until the core has said so.
Compared with the same before the flood, in the same run.

    uv run python -m benchmarks.flood --rate 500 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from benchmarks.common import concurrently, cpu_seconds, heading, percentiles, rss_mib, say, scrape
from benchmarks.shapes import SHAPES
from benchmarks.webhook import register
from tests.support.reviews import review_of, unverified

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import NAMESPACE, Client, Reflector, load_config
from airunway.resource import ObjectKey, Resource, condition_of
from airunway.webhook import webhook_settings
from airunway.webhook.configuration import PATH
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions

METRICS = "127.0.0.1:18492"
DEPLOYMENTS = 50
IDLE, UNFINISHED, REVIEWERS = 1_000, 10, 50
"""Connections: that say nothing, that never end a body, that reviews come by."""

PATIENCE = 10.0
"""Seconds that a review waits for its answer, as long as an API server does by default."""


async def attack(port: int, *, rate: float, seconds: float) -> dict[str, Any]:
    """The flood itself; what became of it."""
    seen: Counter[str] = Counter()
    taken: list[float] = []
    ends = time.monotonic() + seconds

    async def hold(opening: bytes, *, tls: bool) -> None:
        """Keep one connection open, and open another one when it is closed."""
        while (left := ends - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1",
                        port,
                        ssl=unverified() if tls else None,
                        ssl_handshake_timeout=left if tls else None,
                    )
                    try:
                        writer.write(opening)
                        await reader.read()
                        seen["connections closed by the webhook"] += 1
                    finally:
                        writer.transport.abort()
            except (OSError, TimeoutError):
                seen["connections refused or lost"] += 1
            await asyncio.sleep(0.5)

    async def ask(http: aiohttp.ClientSession, number: int, due: float) -> None:
        shape = SHAPES["one"].deployment(f"flood-{number}", "load")
        shape["metadata"]["uid"] = f"uid-{number}"
        try:
            async with http.post(f"https://127.0.0.1:{port}{PATH}", data=orjson.dumps(review_of(shape))) as answer:
                await answer.read()
                seen[f"reviews answered with {answer.status}"] += 1
        except (aiohttp.ClientError, OSError, TimeoutError):
            seen["reviews refused or lost"] += 1
            return
        taken.append((time.perf_counter() - due) * 1000)

    opening = f"POST {PATH} HTTP/1.1\r\nHost: webhook\r\nContent-Length: 100000\r\n\r\n{{".encode()
    connector = aiohttp.TCPConnector(ssl=unverified(), limit=REVIEWERS)
    patience = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=connector, timeout=patience) as http, asyncio.TaskGroup() as group:
        for _ in range(UNFINISHED):
            group.create_task(hold(opening, tls=True))
        for number in range(IDLE):
            group.create_task(hold(b"", tls=number % 2 == 0))
        started = time.perf_counter()
        for number in range(int(rate * seconds)):
            due = started + number / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            group.create_task(ask(http, number, due))
        seen["reviews a second, sent"] = round(rate * seconds / (time.perf_counter() - started))
    return {"seen": dict(seen), "review_ms": percentiles(taken) if taken else None}


class Pauses:
    """Pauses and resumes deployments, and times the core's answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[ObjectKey, tuple[bool, asyncio.Future[float]]] = {}
        self.deployments = Reflector(client, MODEL_DEPLOYMENT, namespace="load")
        self.deployments.add_handler(self._on_change)

    def _on_change(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        wanted, future = self._waiting.get(key, (False, None))
        paused = new is not None and condition_of(new, "Paused") is not None
        if future is not None and not future.done() and paused == wanted:
            future.set_result(time.perf_counter())

    async def timed(self, seconds: float, *, rate: float = 10.0) -> list[float]:
        """Milliseconds of each, one after the other at a steady rate."""
        taken: list[float] = []
        for number in range(int(seconds * rate)):
            due = time.perf_counter() + 1 / rate
            key, wanted = ObjectKey("load", f"load-{number // 2 % DEPLOYMENTS}"), number % 2 == 0
            future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            self._waiting[key] = (wanted, future)
            body = {"metadata": {"annotations": {names.PAUSED: "true" if wanted else None}}}
            await self._client.merge_patch(MODEL_DEPLOYMENT, key, body)
            started = time.perf_counter()
            taken.append((await asyncio.wait_for(future, 60) - started) * 1000)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        return taken


async def run(arguments: argparse.Namespace, plane: ControlPlane, port: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="airunway-benchmark-"))
    parts = Processes(folder, keep=False)
    url = f"https://127.0.0.1:{port}"
    settings = webhook_settings(bind_address=f"127.0.0.1:{port}", url=url, namespace="default")
    assert settings is not None
    async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client:
        try:
            await install_definitions(client)
            await register(client)
            await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}})
            command = [sys.executable, "-m", "airunway", "controller", "--kubeconfig", str(plane.kubeconfig)]
            command += ["--webhook-bind-address", settings.bind_address, "--webhook-url", url]
            command += ["--webhook-manage-configuration", "--metrics-bind-address", METRICS, "--leader-elect"]
            command += ["--ready-file", str(folder / "ready"), "--log-level", "warning"]
            parts.start("core", command, environment={**os.environ, "POD_NAMESPACE": "default", "POD_NAME": "core"})
            while not (folder / "ready").exists():
                if exited := parts.exited():
                    raise SystemExit(f"the controller ended: {exited}, {parts.log('core').read_text()}")
                await asyncio.sleep(0.05)

            async def create(name: str) -> None:
                await client.create(MODEL_DEPLOYMENT, SHAPES["one"].deployment(name, "load"))

            await concurrently([f"load-{number}" for number in range(DEPLOYMENTS)], create)
            pauses = Pauses(client)
            following = asyncio.create_task(pauses.deployments.run())
            await pauses.deployments.synced.wait()
            await pauses.timed(3)
            say("undisturbed")
            before, undisturbed = rss_mib(parts.pids["core"])["now"], await pauses.timed(arguments.seconds / 2)
            say("flooded")
            used = cpu_seconds(parts.pids["core"])
            flood = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.flood", "--attack", str(port)),
                *("--rate", str(arguments.rate), "--seconds", str(arguments.seconds)),
                stdout=asyncio.subprocess.PIPE,
            )
            flooded = await pauses.timed(arguments.seconds - 5)
            printed, _ = await flood.communicate()
            used = cpu_seconds(parts.pids["core"]) - used
            memory, metrics = rss_mib(parts.pids["core"]), await asyncio.to_thread(scrape, METRICS)
            lost = parts.log("core").read_text().count("lost the lease")
            following.cancel()
        finally:
            parts.close(grace=5.0)
    quiet, loud = percentiles(undisturbed), percentiles(flooded)
    return {
        **heading("flood"),
        "seconds": arguments.seconds,
        "flood": json.loads(printed),
        "turned_away": metrics["airunway_webhook_turned_away_total"],
        "reconcile_ms_undisturbed": quiet,
        "reconcile_ms_flooded": loud,
        "ratio_p99": round(loud["p99"] / quiet["p99"], 2),
        "cpu_share_of_the_core": round(used / arguments.seconds, 2),
        "longest_gap_seconds": metrics["airunway_event_loop_lag_seconds"],
        "leases_lost": lost,
        "rss_mib": {"before": before, "after": memory["now"], "more_at_most": round(memory["peak"] - before, 1)},
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=500.0, help="reviews a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the flood lasts")
    parser.add_argument("--attack", type=int, help=argparse.SUPPRESS, metavar="PORT")
    arguments = parser.parse_args()
    if arguments.attack:
        print(json.dumps(asyncio.run(attack(arguments.attack, rate=arguments.rate, seconds=arguments.seconds))))
        return
    with ControlPlane("api", report=say) as plane, reserved_ports(1) as (port,):
        print(json.dumps(asyncio.run(run(arguments, plane, port)), indent=2))


if __name__ == "__main__":
    main()
