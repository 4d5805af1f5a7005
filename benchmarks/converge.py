"""How fast, with how many writes and how much memory do N ModelDeployments get to Running?

For deployments that need one upstream object, and for those that need two: of KAITO, plain Deployments, Dynamo's
graphs whose prefill and decode are apart, RayServices, and llm-d's pools with their pickers. Everything is measured
within one run on one real API server, and compared with what that API server can do at best: the same writes, sent by a
plain client with nothing behind it. Prints JSON.

    uv run python -m benchmarks.converge --deployments 1000
    uv run python -m benchmarks.converge --shape two --brief    # one shape, and only on the way to Running
    uv run python -m benchmarks.converge --shape two --accounts rights    # core and provider with accounts of their own
    uv run python -m benchmarks.converge --shape two --accounts guards    # which guards keep to what is theirs

What guards cost is the difference of the last two: run them in turns, several times, and compare seconds and the CPU of
the API server, which other load on the machine disturbs least.
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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import shapes
from benchmarks.bound import SPECIMEN, bound, specimen_of
from benchmarks.common import concurrently, cpu_seconds, heading, percentiles, rss_mib, say, scrape
from benchmarks.shapes import SHAPES, Shape
from tests.support.audit import AuditReader, Request
from tests.support.rights import applied, granted

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, NAMESPACE, ApiError, Client, Reflector, load_config
from airunway.plugins.registry import load
from airunway.rbac.admission_policies import core_guard, provider_guard, status_guard
from airunway.rbac.rights import core_rights, provider_rights
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.controlplane import ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions
from airunway_testing.simulators import load_simulator, simulators_for

WRITES = ("create", "update", "patch", "delete")
METRICS = {"core": "127.0.0.1:18480", "provider": "127.0.0.1:18481"}


def by_component(requests: list[Request]) -> dict[str, Counter[str]]:
    """Requests of our own components: component → "verb resource/subresource" → number."""
    found: dict[str, Counter[str]] = {}
    for request in requests:
        if request.agent:
            what = f"{request.verb} {request.resource}{' (dry run)' if request.dry_run else ''}"
            found.setdefault(request.agent, Counter())[what] += 1
    return found


def writes(counts: Counter[str]) -> int:
    """Writes of a deployment's state, dry runs included; events and leases are none."""
    skipped = ("events", "inferenceproviderconfigs", "leases")
    return sum(n for what, n in counts.items() if what.split()[0] in WRITES and not what.split()[1].startswith(skipped))


async def caught_up(count: int) -> None:
    """Wait until core and provider have each gone over `count` deployments and have nothing left to do."""
    started = time.perf_counter()
    for address in METRICS.values():
        while True:
            values = await asyncio.to_thread(scrape, address)
            if values["airunway_reconcile_total"] >= count and not values["airunway_workqueue_depth"]:
                break
            if time.perf_counter() - started > 300:
                sys.exit(f"{address} has not caught up 5 minutes after its start")
            await asyncio.sleep(0.5)


class Parts:
    """The operator's processes."""

    def __init__(self, kubeconfig: Path, shape: Shape, *, own: Mapping[str, Path], options: Sequence[str]) -> None:
        """`own` are kubeconfigs of accounts, by part; `options` are further ones of the core."""
        self._folder = Path(tempfile.mkdtemp(prefix="airunway-benchmark-"))
        self._processes = Processes(self._folder, keep=False)
        self._kubeconfig = kubeconfig
        self._own = own
        self._options = options
        self._provider = shape.provider

    def start(self, name: str, *command: str) -> None:
        self._processes.start(name, [sys.executable, *command], environment=dict(os.environ))

    def start_all(self) -> None:
        """Core and provider at once, until both are ready."""
        commands = {"core": ("controller", *self._options), "provider": ("provider", "run", self._provider)}
        markers = {name: self._folder / f"{name}.ready" for name in commands}
        for name, command in commands.items():
            markers[name].unlink(missing_ok=True)
            options = ("--metrics-bind-address", METRICS[name], "--ready-file", str(markers[name]))
            kubeconfig = self._own.get(name, self._kubeconfig)
            self.start(name, "-m", "airunway", *command, *options, "--kubeconfig", str(kubeconfig))
        deadline = time.monotonic() + 60
        while waiting := [name for name, marker in markers.items() if not marker.exists()]:
            ended = [name for name in waiting if name in self._processes.exited()]
            if ended or time.monotonic() > deadline:
                sys.exit(f"{waiting[0]} did not start:\n{self._processes.log((ended or waiting)[0]).read_text()}")
            time.sleep(0.02)

    def stop(self, *parts: str) -> None:
        for part in parts:
            self._processes.stop(part, grace=10.0)

    def rss(self) -> dict[str, dict[str, float]]:
        return {name: rss_mib(pid) for name, pid in self._processes.pids.items() if name != "simulator"}

    def cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._processes.pids.items()}

    def close(self) -> None:
        self._processes.close(grace=5.0)


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """Seconds from the first create to half of all Running and to all, and to each by name; the provider's first status
    of the specimen.
    """

    created: float
    half: float
    all: float
    each: dict[str, float]
    first_status: Resource


async def converge(client: Client, count: int, *, deployment: Callable[[str, str], Resource]) -> Convergence:
    """Create that many, which `deployment` makes of a name and a namespace, and wait until all are Running."""
    running: dict[str, float] = {}
    first_status: list[Resource] = []
    done = asyncio.Event()
    deployments = Reflector(client, MODEL_DEPLOYMENT, namespace="load")

    def on_change(key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        status = (new or {}).get("status") or {}
        if key.name == SPECIMEN and not first_status and "observedGeneration" in status:
            first_status.append(status)
        if status.get("phase") == "Running" and key.name not in running:
            running[key.name] = time.perf_counter() - started
            if len(running) == count:
                done.set()

    deployments.add_handler(on_change)
    following = asyncio.create_task(deployments.run())
    await deployments.synced.wait()
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}})

    async def create(name: str) -> None:
        await client.create(MODEL_DEPLOYMENT, deployment(name, "load"))

    started = time.perf_counter()
    await concurrently([f"load-{number}" for number in range(count)], create)
    created = time.perf_counter() - started
    try:
        async with asyncio.timeout(900):
            await done.wait()
    except TimeoutError:
        sys.exit(f"only {len(running)} of {count} are Running after 15 minutes")
    following.cancel()
    moments = sorted(running.values())
    half = moments[(count - 1) // 2]
    return Convergence(created=created, half=half, all=moments[-1], each=running, first_status=first_status[0])


async def latencies(client: Client, count: int, samples: int, *, shape: Shape) -> list[float]:
    """Milliseconds from an upstream status change (answered by the API server) to the deployment's own status."""
    waiting: dict[str, tuple[bool, asyncio.Future[float]]] = {}
    deployments = Reflector(client, MODEL_DEPLOYMENT, namespace="load")

    def on_change(key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        wanted, future = waiting.get(key.name, (False, None))
        if future is None or future.done() or new is None:
            return
        if (dig(new, "status", "phase") == "Running") == wanted:
            future.set_result(time.perf_counter())

    deployments.add_handler(on_change)
    following = asyncio.create_task(deployments.run())
    await deployments.synced.wait()
    result = []
    for number in range(samples):
        name = f"load-{(number // 2 * 37) % count}"
        finished = number % 2 == 1
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        waiting[name] = (finished, future)
        await client.merge_patch(
            shape.primary,
            ObjectKey("load", name),
            {"status": shape.status(finished)},
            subresource="status",
            manager="simulated",
        )
        started = time.perf_counter()
        result.append((await asyncio.wait_for(future, 60) - started) * 1000)
        waiting.clear()
    following.cancel()
    return result


@asynccontextmanager
async def accounts_of(
    wanted: str | None, client: Client, plane: ControlPlane, shape: Shape, *, definitions: Sequence[Resource]
) -> AsyncIterator[tuple[dict[str, Path], list[str]]]:
    """Kubeconfigs of accounts with exactly their rights (``guards``: and kept to what is theirs), by part; and further
    options of the core. Without `wanted` both parts are the administrator. Installs the CRDs first.
    """
    await install_definitions(client, definitions)
    if wanted is None:
        yield {}, []
        return
    home, manifest = "airunway-system", load(shape.provider).manifest
    users = {
        "core": f"system:serviceaccount:{home}:{names.CORE_MANAGER}",
        "provider": f"system:serviceaccount:{home}:{names.provider_manager(shape.provider)}",
    }
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}})
    guards = [
        *core_guard(users["core"]),
        *provider_guard(manifest, users["provider"], own=home),
        *status_guard([*users.values(), "admin"]),  # who measures the bound
    ]
    async with (
        granted(client, core_rights(), user=users["core"], namespace=home),
        granted(client, provider_rights(manifest), user=users["provider"], namespace=home),
        applied(client, guards if wanted == "guards" else []),
    ):
        kubeconfigs = {part: plane.kubeconfig_for(user) for part, user in users.items()}
        if wanted == "guards":
            await _in_force(client, shape.provider, home)
        yield kubeconfigs, ["--guard-parameters"] if wanted == "guards" else []


async def _in_force(client: Client, provider: str, namespace: str) -> None:
    """Returns once the API server knows the guards, and the kind of their parameters: it looks every 30 seconds."""
    metadata = {"name": "probe", "namespace": namespace, "labels": {names.PROVIDER: provider}}
    probe = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind, "metadata": metadata}
    async with asyncio.timeout(90):
        while True:
            try:
                await client.create(CONFIG_MAP, probe, dry_run=True)
            except ApiError as error:
                if "no params found" in error.message:
                    return
            await asyncio.sleep(0.5)


async def run(arguments: argparse.Namespace, plane: ControlPlane, name: str) -> dict[str, Any]:
    shape = SHAPES[name]
    played = [] if shape.kinds_of else simulators_for([(shape.primary.group, shape.primary.kind)])
    simulator = next(iter(played), None)
    brings = load_simulator(shape.kinds_of) if shape.kinds_of else simulator
    assert plane.audit_log is not None
    count = arguments.deployments
    found: dict[str, Any] = {}
    async with (
        Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client,
        accounts_of(
            arguments.accounts,
            client,
            plane,
            shape,
            definitions=brings.custom_resource_definitions() if brings is not None else [],
        ) as (own, options),
    ):
        parts = Parts(plane.kubeconfig, shape, own=own, options=options)
        try:
            where = ("--kubeconfig", str(plane.kubeconfig))
            if simulator is not None:
                parts.start("simulator", "-m", "airunway", "simulate", shape.provider, "--level", "api", *where)
            else:
                parts.start("simulator", shapes.__file__, name, str(plane.kubeconfig))
            parts.start_all()
            say(f"converging: {name}")
            server = plane.pids["kube-apiserver"]
            audit, before, served = AuditReader(plane.audit_log), parts.cpu(), cpu_seconds(server)
            speed = await converge(client, count, deployment=shape.deployment)
            used = {name: seconds - before[name] for name, seconds in parts.cpu().items()}
            served = cpu_seconds(server) - served
            until_running = by_component(audit.read())
            memory = {"unscraped": parts.rss()}
            passes = {
                part: (await asyncio.to_thread(scrape, at))["airunway_reconcile_total"] for part, at in METRICS.items()
            }
            specimen = await specimen_of(client, shape, first=speed.first_status)
            say(f"all Running after {speed.all:.2f} s")
            if not arguments.brief:
                found = await _afterwards(arguments, client, parts, audit, memory, shape)
            parts.stop("core", "provider", "simulator")
            say("the API server's own rate")
            minimum = await bound(client, count, specimen, shape=shape)
        finally:
            parts.close()
    return {
        "seconds_to_all_running": round(speed.all, 2),
        "seconds_to_half_running": round(speed.half, 2),
        "half_of_all": round(speed.half / speed.all, 2),
        "seconds_to_all_created": round(speed.created, 2),
        "seconds_of_the_api_bound_minimum": round(minimum, 2),
        "ratio": round(speed.all / minimum, 2),
        "cpu_ms_per_deployment": {name: round(seconds / count * 1000, 2) for name, seconds in used.items()},
        "cpu_ms_of_the_api_server_per_deployment": round(served / count * 1000, 2),
        "passes_per_deployment": {name: round(number / count, 2) for name, number in passes.items()},
        "writes_per_deployment": {name: round(writes(counts) / count, 3) for name, counts in until_running.items()},
        "requests_until_running": {name: dict(counts.most_common()) for name, counts in until_running.items()},
        **found,
        "rss_mib": memory,
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


async def _afterwards(
    arguments: argparse.Namespace,
    client: Client,
    parts: Parts,
    audit: AuditReader,
    memory: dict[str, Any],
    shape: Shape,
) -> dict[str, Any]:
    """Once all are Running: at rest, after a restart, and how fast a change upstream reaches the status."""
    say(f"at rest for {arguments.rest} s")
    await asyncio.sleep(5)
    late = by_component(audit.read())
    await asyncio.sleep(arguments.rest)
    rest = by_component(audit.read())
    for address in METRICS.values():
        await asyncio.to_thread(scrape, address)
    memory["scraped"] = parts.rss()
    say("restarting core and provider")
    parts.stop("core", "provider")
    started = time.perf_counter()
    parts.start_all()
    await caught_up(arguments.deployments)
    seconds = time.perf_counter() - started
    await asyncio.sleep(5)
    restart = by_component(audit.read())
    memory["restarted"] = parts.rss()
    say("latencies")
    parts.stop("simulator")
    delays = await latencies(client, arguments.deployments, arguments.samples, shape=shape)
    return {
        "requests_just_after": {name: dict(counts) for name, counts in late.items()},
        "at_rest": {
            "seconds": arguments.rest,
            "writes": sum(writes(counts) for counts in rest.values()),
            "requests_per_second": round(sum(sum(counts.values()) for counts in rest.values()) / arguments.rest, 3),
            "requests": {name: dict(counts) for name, counts in rest.items()},
        },
        "restart": {
            "seconds_to_caught_up": round(seconds, 1),
            "writes": sum(writes(counts) for name, counts in restart.items() if not name.startswith("simulated")),
            "requests": {name: dict(counts) for name, counts in restart.items()},
        },
        "status_latency_ms": percentiles(delays),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=1000)
    parser.add_argument("--shape", choices=[*SHAPES, "all"], default="all", help="what is deployed")
    parser.add_argument("--brief", action="store_true", help="leave out rest, restart and latency")
    parser.add_argument("--accounts", choices=["rights", "guards"], help="accounts with their rights, or guarded too")
    parser.add_argument("--samples", type=int, default=400, help="upstream status changes to time")
    parser.add_argument("--rest", type=int, default=30, help="seconds to watch the operator doing nothing")
    arguments = parser.parse_args()
    wanted = list(SHAPES) if arguments.shape == "all" else [arguments.shape]
    result: dict[str, Any] = {**heading("converge"), "deployments": arguments.deployments}
    for shape in wanted:
        with ControlPlane("api", audit="Metadata", report=say) as plane:
            result[shape] = asyncio.run(run(arguments, plane, shape))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
