"""How fast, with how many writes and how much memory do N ModelDeployments get to Running?

Everything is measured within one run on one real API server, and compared with what that API server can do at best:
the same minimal set of writes, sent by a plain client with nothing behind it. Prints JSON.

    uv run python benchmarks/converge.py --deployments 1000
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
from pathlib import Path
from typing import Any

from airunway import __version__
from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, Reflector, load_config
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.audit import AuditReader, Request
from airunway_testing.controlplane import KUBERNETES_VERSION, ControlPlane
from airunway_testing.controlplane.processes import Processes
from airunway_testing.operator import install_definitions
from airunway_testing.simulators import simulators_for

PROVIDER = "kaito"
WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
WRITES = ("create", "update", "patch", "delete")
CONCURRENCY = 32
METRICS = {"core": "127.0.0.1:18480", "provider": "127.0.0.1:18481"}


def deployment(name: str, namespace: str) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
            "engine": {"type": "llamacpp"},
            "resources": {"memory": "16Gi", "cpu": "8"},
            "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
        },
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


async def bound(client: Client, count: int, specimen: tuple[Resource, Resource, Resource]) -> float:
    """Seconds for the least that N deployments need, done by a plain client: no caches, no decisions, no waiting.

    Per deployment: create it, its status by the core, the provider's finalizer, the upstream object, that one's
    status, the final status. `specimen` is a finished deployment, the core's part of its status, and its Workspace.
    """
    finished, core_status, workspace = specimen
    namespace = "bound"
    await client.create(Kind("", "v1", "Namespace", "namespaces", False), _namespace(namespace))

    async def one(name: str) -> None:
        created = await client.create(MODEL_DEPLOYMENT, deployment(name, namespace))
        identity: Resource = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": namespace, "uid": created["metadata"]["uid"]},
        }
        await client.apply(
            MODEL_DEPLOYMENT, {**identity, "status": core_status}, manager=names.CORE_MANAGER, subresource="status"
        )
        manager = names.provider_manager(PROVIDER)
        metadata = {**identity["metadata"], "finalizers": [f"{names.GROUP}/bound"]}
        await client.apply(MODEL_DEPLOYMENT, {**identity, "metadata": metadata}, manager=manager)
        child = {**workspace, "metadata": {**workspace["metadata"], "name": name, "namespace": namespace}}
        await client.apply(WORKSPACE, child, manager=manager)
        patch = {"status": workspace_status(finished=True)}
        await client.merge_patch(
            WORKSPACE, ObjectKey(namespace, name), patch, subresource="status", manager="simulated"
        )
        theirs = {key: value for key, value in finished["status"].items() if key not in ("engine", "selection")}
        await client.apply(
            MODEL_DEPLOYMENT, {**identity, "status": theirs}, manager=manager, subresource="status", force=True
        )

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


def by_component(requests: list[Request]) -> dict[str, Counter[str]]:
    """Requests of our own components: component → "verb resource/subresource" → number."""
    found: dict[str, Counter[str]] = {}
    for request in requests:
        if request.agent:
            found.setdefault(request.agent, Counter())[f"{request.verb} {request.resource}"] += 1
    return found


def writes(counts: Counter[str]) -> int:
    # Events and leases are not part of a deployment's state.
    skipped = ("events", "inferenceproviderconfigs", "leases")
    return sum(
        n for what, n in counts.items() if what.split()[0] in WRITES and not what.split()[-1].startswith(skipped)
    )


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

    def close(self) -> None:
        self._processes.close(grace=5.0)


async def converge(client: Client, count: int) -> float:
    """Seconds from the first create to the last Running."""
    running: set[str] = set()
    done = asyncio.Event()
    deployments = Reflector(client, MODEL_DEPLOYMENT, namespace="load")

    def on_change(key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        if new is not None and dig(new, "status", "phase") == "Running":
            running.add(key.name)
            if len(running) == count:
                done.set()

    deployments.add_handler(on_change)
    following = asyncio.create_task(deployments.run())
    await deployments.synced.wait()
    await client.create(Kind("", "v1", "Namespace", "namespaces", False), _namespace("load"))

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
    print(f"  created in {created:.2f} s", file=sys.stderr)
    following.cancel()
    return time.perf_counter() - started


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


async def run(arguments: argparse.Namespace, plane: ControlPlane) -> dict[str, Any]:
    host = load(PROVIDER)
    simulator = next(iter(simulators_for([(host.primary_kind.group, host.primary_kind.kind)])), None)
    assert simulator is not None
    assert plane.audit_log is not None
    count = arguments.deployments
    parts = Parts(plane.kubeconfig)
    async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="benchmark") as client:
        await install_definitions(client, simulator.custom_resource_definitions())
        try:
            parts.start("simulator", "simulate", PROVIDER, "--level", "api")
            parts.start_all()
            say("converging")
            audit = AuditReader(plane.audit_log)
            seconds = await converge(client, count)
            convergence = by_component(audit.read())
            say(f"all Running after {seconds:.2f} s; at rest for {arguments.rest} s")
            await asyncio.sleep(5)
            audit.read()
            await asyncio.sleep(arguments.rest)
            rest = by_component(audit.read())
            memory = {"unscraped": parts.rss()}
            for address in METRICS.values():
                await asyncio.to_thread(scrape, address)
            memory["scraped"] = parts.rss()
            say("restarting core and provider")
            parts.stop("core", "provider")
            restart_started = time.perf_counter()
            parts.start_all()
            await caught_up(count)
            restart_seconds = time.perf_counter() - restart_started
            await asyncio.sleep(5)
            restart = by_component(audit.read())
            memory["restarted"] = parts.rss()
            say("latencies")
            parts.stop("simulator")
            delays = await latencies(client, count, arguments.samples)
            specimen = await _specimen(client)
            parts.stop("core", "provider")
            say("the API server's own rate")
            minimum = await bound(client, count, specimen)
        finally:
            parts.close()
    ours = {name: counts for name, counts in convergence.items() if not name.startswith("simulated")}
    return {
        "benchmark": "converge",
        "airunway": __version__,
        "kubernetes": KUBERNETES_VERSION,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "deployments": count,
        "seconds_to_all_running": round(seconds, 2),
        "seconds_of_the_api_bound_minimum": round(minimum, 2),
        "ratio": round(seconds / minimum, 2),
        "writes_per_deployment": {name: round(writes(counts) / count, 3) for name, counts in ours.items()},
        "requests_while_converging": {name: dict(counts.most_common()) for name, counts in ours.items()},
        "at_rest": {
            "seconds": arguments.rest,
            "writes": sum(writes(counts) for counts in rest.values()),
            "requests_per_second": round(sum(sum(counts.values()) for counts in rest.values()) / arguments.rest, 3),
            "requests": {name: dict(counts) for name, counts in rest.items()},
        },
        "restart": {
            "seconds_to_caught_up": round(restart_seconds, 1),
            "writes": sum(writes(counts) for name, counts in restart.items() if not name.startswith("simulated")),
            "requests": {name: dict(counts) for name, counts in restart.items()},
        },
        "status_latency_ms": percentiles(delays),
        "rss_mib": memory,
    }


async def _specimen(client: Client) -> tuple[Resource, Resource, Resource]:
    finished = await client.get(MODEL_DEPLOYMENT, ObjectKey("load", "load-0"))
    status = finished["status"]
    core = {key: status[key] for key in ("engine", "selection") if key in status}
    core["provider"] = {key: status["provider"][key] for key in ("name", "selectedReason")}
    core["conditions"] = [
        c for c in status["conditions"] if c["type"] in ("Validated", "EngineSelected", "ProviderSelected")
    ]
    theirs = {**status, "provider": {k: v for k, v in status["provider"].items() if k.startswith("resource")}}
    theirs["conditions"] = [c for c in status["conditions"] if c not in core["conditions"]]
    live = await client.get(WORKSPACE, ObjectKey("load", "load-0"))
    workspace = {key: value for key, value in live.items() if key not in ("status", "metadata")}
    metadata = live["metadata"]
    workspace["metadata"] = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    return {**finished, "status": theirs}, core, workspace


def say(text: str) -> None:
    print(f"{text} …", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=400, help="upstream status changes to time")
    parser.add_argument("--rest", type=int, default=30, help="seconds to watch the operator doing nothing")
    arguments = parser.parse_args()
    with ControlPlane("api", audit="Metadata", report=say) as plane:
        print(json.dumps(asyncio.run(run(arguments, plane)), indent=2))


if __name__ == "__main__":
    main()
