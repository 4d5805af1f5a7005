"""How fast, with how many writes and how much memory do N ModelDeployments get to Running?

For deployments that need one upstream object, and for those that need two. Everything is measured within one run on one
real API server, and compared with what that API server can do at best: the same writes, sent by a plain client with
nothing behind it. Prints JSON.

    uv run python -m benchmarks.converge --deployments 1000
    uv run python -m benchmarks.converge --objects two --brief    # one shape, and only on the way to Running
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airunway import __version__
from airunway.api import names
from airunway.controller.decision import CORE_CONDITIONS
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, Reflector, add_finalizer, load_config
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.audit import AuditReader, Request
from airunway_testing.controlplane import KUBERNETES_VERSION, ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions
from airunway_testing.simulators import simulators_for

PROVIDER = "kaito"
WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
SPECIMEN = "load-0"
WRITES = ("create", "update", "patch", "delete")
CONCURRENCY = 32
METRICS = {"core": "127.0.0.1:18480", "provider": "127.0.0.1:18481"}


SPECS: dict[str, Resource] = {
    "one": {  # a pod template: a Workspace
        "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
        "engine": {"type": "llamacpp"},
        "resources": {"memory": "16Gi", "cpu": "8"},
        "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
    },
    "two": {  # a preset: a ConfigMap and a Workspace
        "model": {"id": "microsoft/Phi-4-mini-instruct"},
        "engine": {"type": "vllm"},
        "resources": {"gpu": {"count": 1}},
    },
}
"""What a deployment asks for, by the number of upstream objects that it needs."""


def deployment(name: str, namespace: str, objects: str = "one") -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": SPECS[objects],
    }


async def concurrently(items: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
    """`work` on every item, CONCURRENCY at a time."""
    queue = list(items)[::-1]

    async def worker() -> None:
        while queue:
            await work(queue.pop())

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(worker())


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """What was written for one deployment: the two parts of its status, the provider's first one, and the objects."""

    core: Resource
    first: Resource
    last: Resource
    objects: tuple[tuple[Kind, Resource], ...]


async def bound(client: Client, count: int, specimen: Specimen, *, objects: str) -> float:
    """Seconds for what N deployments need, done by a plain client: no caches, no decisions, no waiting.

    Per deployment: create it, its status by the core, the provider's finalizer, the upstream objects, the provider's
    first status, that of the upstream, the provider's last one.
    """
    namespace = "bound"
    await client.create(Kind("", "v1", "Namespace", "namespaces", False), _namespace(namespace))
    manager = names.provider_manager(PROVIDER)

    async def one(name: str) -> None:
        created = await client.create(MODEL_DEPLOYMENT, deployment(name, namespace, objects))
        identity: Resource = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": namespace, "uid": created["metadata"]["uid"]},
        }

        async def tell(status: Resource, by: str) -> None:
            body = {**identity, "status": status}
            await client.apply(MODEL_DEPLOYMENT, body, manager=by, subresource="status", force=True)

        await tell(specimen.core, names.CORE_MANAGER)
        await add_finalizer(client, MODEL_DEPLOYMENT, created, f"{names.GROUP}/bound", manager=manager)
        for kind, obj in specimen.objects:
            made = name + obj["metadata"]["name"].removeprefix(SPECIMEN)
            metadata = {**obj["metadata"], "name": made, "namespace": namespace}
            await client.apply(kind, {**obj, "metadata": metadata}, manager=manager, force=True)
        await tell(specimen.first, manager)
        await client.merge_patch(
            WORKSPACE,
            ObjectKey(namespace, name),
            {"status": workspace_status(finished=True)},
            subresource="status",
            manager="simulated",
        )
        await tell(specimen.last, manager)

    started = time.perf_counter()
    await concurrently([f"bound-{number}" for number in range(count)], one)
    return time.perf_counter() - started


def workspace_status(*, finished: bool) -> Resource:
    word = "True" if finished else "False"
    reason = "workspaceSucceeded" if finished else "workspacePending"
    condition = {
        "type": "WorkspaceSucceeded",
        "status": word,
        "reason": reason,
        "message": reason,
        "lastTransitionTime": "2026-11-21T00:00:00Z",
    }
    return {"state": "Ready" if finished else "NotReady", "conditions": [condition]}


def _namespace(name: str) -> Resource:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def rss_mib(pid: int) -> dict[str, float]:
    """Resident memory of a process now and at its peak, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return {"now": round(values["VmRSS"], 1), "peak": round(values["VmHWM"], 1)}


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def scrape(address: str) -> dict[str, float]:
    """What a process says of itself, as Prometheus reads it: metric name → sum over all its label values."""
    found: defaultdict[str, float] = defaultdict(float)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if not line.startswith("#"):
                found[line.partition("{")[0].split()[0]] += float(line.rsplit(" ", 1)[1])
    return found


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


def percentiles(samples: list[float]) -> dict[str, float]:
    ordered = sorted(samples)
    return {
        "p50": round(statistics.median(ordered), 2),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
        "max": round(ordered[-1], 2),
        "samples": len(ordered),
    }


class Parts:
    """The operator's processes."""

    def __init__(self, kubeconfig: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="airunway-benchmark-"))
        self._processes = Processes(self._folder, keep=False)
        self._kubeconfig = kubeconfig

    def start(self, name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "airunway", *arguments, "--kubeconfig", str(self._kubeconfig)]
        self._processes.start(name, command, environment=dict(os.environ))

    def start_all(self) -> None:
        """Core and provider at once, until both are ready."""
        commands = {"core": ("controller",), "provider": ("provider", "run", PROVIDER)}
        markers = {name: self._folder / f"{name}.ready" for name in commands}
        for name, command in commands.items():
            markers[name].unlink(missing_ok=True)
            options = ("--metrics-bind-address", METRICS[name], "--ready-file", str(markers[name]))
            self.start(name, *command, *options)
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
    """Seconds from the first create to half of all Running and to all; the provider's first status of the specimen."""

    created: float
    half: float
    all: float
    first_status: Resource


async def converge(client: Client, count: int, *, objects: str) -> Convergence:
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
    await client.create(Kind("", "v1", "Namespace", "namespaces", False), _namespace("load"))

    async def create(name: str) -> None:
        await client.create(MODEL_DEPLOYMENT, deployment(name, "load", objects))

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
    return Convergence(created=created, half=half, all=moments[-1], first_status=first_status[0])


async def latencies(client: Client, count: int, samples: int) -> list[float]:
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
            WORKSPACE,
            ObjectKey("load", name),
            {"status": workspace_status(finished=finished)},
            subresource="status",
            manager="simulated",
        )
        started = time.perf_counter()
        result.append((await asyncio.wait_for(future, 60) - started) * 1000)
        waiting.clear()
    following.cancel()
    return result


async def run(arguments: argparse.Namespace, plane: ControlPlane, objects: str) -> dict[str, Any]:
    host = load(PROVIDER)
    simulator = next(iter(simulators_for([(host.primary_kind.group, host.primary_kind.kind)])), None)
    assert simulator is not None
    assert plane.audit_log is not None
    count = arguments.deployments
    parts = Parts(plane.kubeconfig)
    found: dict[str, Any] = {}
    async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client:
        await install_definitions(client, simulator.custom_resource_definitions())
        try:
            parts.start("simulator", "simulate", PROVIDER, "--level", "api")
            parts.start_all()
            say(f"converging, {objects} upstream object(s) each")
            audit, before = AuditReader(plane.audit_log), parts.cpu()
            speed = await converge(client, count, objects=objects)
            used = {name: seconds - before[name] for name, seconds in parts.cpu().items()}
            until_running = by_component(audit.read())
            memory = {"unscraped": parts.rss()}
            specimen = await _specimen(client, speed.first_status, objects)
            say(f"all Running after {speed.all:.2f} s")
            if not arguments.brief:
                found = await _afterwards(arguments, client, parts, audit, memory)
            parts.stop("core", "provider", "simulator")
            say("the API server's own rate")
            minimum = await bound(client, count, specimen, objects=objects)
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
        "writes_per_deployment": {name: round(writes(counts) / count, 3) for name, counts in until_running.items()},
        "requests_until_running": {name: dict(counts.most_common()) for name, counts in until_running.items()},
        **found,
        "rss_mib": memory,
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


async def _afterwards(
    arguments: argparse.Namespace, client: Client, parts: Parts, audit: AuditReader, memory: dict[str, Any]
) -> dict[str, Any]:
    """Once all are Running: at rest, after a restart, and how fast a change upstream is told."""
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
    delays = await latencies(client, arguments.deployments, arguments.samples)
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


async def _specimen(client: Client, first: Resource, objects: str) -> Specimen:
    finished = await client.get(MODEL_DEPLOYMENT, ObjectKey("load", SPECIMEN))
    live = [(WORKSPACE, await client.get(WORKSPACE, ObjectKey("load", SPECIMEN)))]
    if objects == "two":
        config = live[0][1]["inference"]["config"]
        live.insert(0, (CONFIG_MAP, await client.get(CONFIG_MAP, ObjectKey("load", config))))
    return Specimen(
        core=_part(finished["status"], core=True),
        first=_part(first, core=False),
        last=_part(finished["status"], core=False),
        objects=tuple((kind, _wanted(obj)) for kind, obj in live),
    )


def _part(status: Resource, *, core: bool) -> Resource:
    """The core's part of a status, or the provider's."""
    part = {key: value for key, value in status.items() if (key in ("engine", "selection")) is core}
    conditions = [c for c in status["conditions"] if (c["type"] in CORE_CONDITIONS) is core]
    provider = {k: v for k, v in status.get("provider", {}).items() if (k in ("name", "selectedReason")) is core}
    keep = ("engine", "selection") if core else tuple(part)
    return {**{key: part[key] for key in keep if key in part}, "provider": provider, "conditions": conditions}


def _wanted(live: Resource) -> Resource:
    """An object as it was applied, without its owner: that one's name is another."""
    content = {key: value for key, value in live.items() if key not in ("status", "metadata")}
    metadata = {key: live["metadata"][key] for key in ("name", "labels", "annotations") if key in live["metadata"]}
    return {**content, "metadata": metadata}


def say(text: str) -> None:
    print(f"{text} …", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=1000)
    parser.add_argument("--objects", choices=[*SPECS, "both"], default="both", help="upstream objects of a deployment")
    parser.add_argument("--brief", action="store_true", help="leave out rest, restart and latency")
    parser.add_argument("--samples", type=int, default=400, help="upstream status changes to time")
    parser.add_argument("--rest", type=int, default=30, help="seconds to watch the operator doing nothing")
    arguments = parser.parse_args()
    shapes = list(SPECS) if arguments.objects == "both" else [arguments.objects]
    result: dict[str, Any] = {
        "benchmark": "converge",
        "airunway": __version__,
        "kubernetes": KUBERNETES_VERSION,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "deployments": arguments.deployments,
    }
    for objects in shapes:
        with ControlPlane("api", audit="Metadata", report=say) as plane:
            result[f"{objects}_objects" if objects != "one" else "one_object"] = asyncio.run(
                run(arguments, plane, objects)
            )
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
