"""How long do the commands take that ask a cluster, and what do they add to what they ask?

`status` of a deployment with 64 pods, `top -A` over N deployments, the first token through `chat` against the same
request sent to the model server, `logs -f` of 64 pods, and the view of a fleet (no cluster). Prints JSON.

    uv run python -m benchmarks.cli_cluster
    uv run python -m benchmarks.cli_cluster fleet chat
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from benchmarks.common import concurrently, heading, percentiles, rss_mib, say
from tests.support.faults import running
from tests.support.kubelet import Kubelet, running_kubelet
from tests.support.served import LABEL, serve, write_status

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import NAMESPACE, POD, SERVICE_ACCOUNT, Client, load_config
from airunway.resource import ObjectKey, Resource, dig
from airunway.snapshots.loads import PodMetrics
from airunway.snapshots.reading import MOST_REQUESTS, read_snapshot
from airunway.snapshots.serving import ask, endpoint_of
from airunway.view import deployment_view
from airunway.view.answers import PATHS, AnswerReader, Task, request_body
from airunway.view.fleet import fleet_view
from airunway_testing.controlplane import ControlPlane
from airunway_testing.model_server import ModelServer, Serves, model_server
from airunway_testing.operator import install_definitions

BUDGETS = {
    "fleet_ms": 100.0,
    "status_seconds": 0.5,
    "top_seconds": 3.0,
    "chat_added_ms": 20.0,
    "logs_mib": 150.0,
}
"""Issue 24."""

PODS = 64
LINES_PER_SECOND = 10_000
SPACE = "bench"
METRICS = """vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:generation_tokens_total{engine="0"} 1000.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0"} 20.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 20.0
""" + "".join(f'vllm:other_metric_{number}{{engine="0"}} 1.0\n' for number in range(400))


def fleet_ms(rows: int = 10_000, repeats: int = 7) -> dict[str, Any]:
    """The view of so many deployments."""
    fleet = [
        {
            "metadata": {"name": f"md-{number}", "namespace": f"team-{number % 50}"},
            "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
            "status": {
                "phase": ("Running", "Failed", "Deploying")[number % 3],
                "reason": "Ready",
                "engine": {"type": "vllm"},
                "provider": {"name": "vllm"},
                "replicas": {"summary": "1/1"},
            },
        }
        for number in range(rows)
    ]
    samples, busy = [], []
    for _ in range(repeats):
        started, before = time.perf_counter(), time.process_time()
        fleet_view(fleet)
        samples.append((time.perf_counter() - started) * 1000)
        busy.append((time.process_time() - before) * 1000)
    return {
        "rows": rows,
        "median_ms": round(statistics.median(samples), 1),
        "cpu_median_ms": round(statistics.median(busy), 1),
    }


async def status_seconds(client: Client, kubelet: Kubelet, kubeconfig: Path, repeats: int) -> dict[str, Any]:
    """``airunway status`` of a deployment with 64 pods, as a process and without the start of one."""
    await create(client, "many")
    await concurrently([f"many-{number}" for number in range(PODS)], lambda name: place(client, kubelet, name, "many"))
    key, requests = ObjectKey(SPACE, "many"), 0
    inside: list[float] = []
    processes: list[float] = []
    busy: list[float] = []

    def count(*_: object) -> None:
        nonlocal requests
        requests += 1

    for _ in range(repeats):
        started, before = time.perf_counter(), cpu_of_children()
        shown = await asyncio.to_thread(run, "status", "md/many", "-n", SPACE, "--kubeconfig", str(kubeconfig))
        processes.append(time.perf_counter() - started)
        busy.append(cpu_of_children() - before)
        assert f"{PODS} Pods" in shown, shown
        client.session.on_request, requests = count, 0
        started = time.perf_counter()
        deployment_view(await read_snapshot(client, key))
        inside.append(time.perf_counter() - started)
        client.session.on_request = None
    bound = [await asyncio.to_thread(timed_start) for _ in range(repeats)]
    return {
        "pods": PODS,
        "process_seconds": percentiles(processes),
        "process_cpu_seconds": percentiles(busy),
        "reading_seconds": percentiles(inside),
        "bound_start_of_a_command_seconds": percentiles(bound),
        "requests": requests,
        "most_requests": MOST_REQUESTS,
    }


def run(*words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "airunway", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cpu_of_children() -> float:
    """Processor seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed_start() -> float:
    """Seconds of a command that does nothing but start with a Kubernetes client."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import airunway.cli.main, airunway.snapshots.reading"], check=True)
    return time.perf_counter() - started


async def top_seconds(client: Client, kubelet: Kubelet, server: ModelServer, deployments: int) -> dict[str, Any]:
    """Two readings of every pod's metrics, which is what ``airunway top -A`` does, without the pause between them."""
    names = [f"top-{number}" for number in range(deployments)]

    async def one(name: str) -> None:
        await create(client, name)
        await place(client, kubelet, f"{name}-0", name, server=server)
        await write_status(client, ObjectKey(SPACE, name), engine={"type": "vllm"})

    await concurrently(names, one)
    server.metrics = METRICS
    loads = PodMetrics(client, ObjectKey("", ""))
    started, before = time.perf_counter(), time.process_time()
    await loads.rows()
    first = time.perf_counter() - started
    rows = await loads.rows()
    seconds = time.perf_counter() - started
    assert sum(row.reporting for row in rows) >= deployments, [row.unseen for row in rows][:3]
    return {
        "deployments": deployments,
        "seconds": round(seconds, 2),
        "first_reading_seconds": round(first, 2),
        # The servers of the pods are in this process, too.
        "cpu_seconds_with_servers": round(time.process_time() - before, 2),
    }


async def chat_added_ms(client: Client, kubelet: Kubelet, server: ModelServer, samples: int) -> dict[str, Any]:
    """How much later the first token arrives than by a request to the server itself."""
    key = ObjectKey(SPACE, "chat")
    await create(client, key.name)
    await serve(client, kubelet, key, server)
    endpoint = endpoint_of(await client.get(MODEL_DEPLOYMENT, key))
    assert endpoint is not None
    body = request_body(Task.CHAT, model="llama", messages=[{"role": "user", "content": "one two three"}])

    async def proxied() -> float:
        started = time.perf_counter()
        async with aclosing(ask(client, endpoint, Task.CHAT, body, silence=30)) as pieces:
            async for piece in pieces:
                if piece.text:
                    return time.perf_counter() - started
        raise AssertionError("no text")

    async with aiohttp.ClientSession() as session:

        async def direct() -> float:
            started = time.perf_counter()
            reader = AnswerReader(Task.CHAT)
            url = f"http://{server.address}:{server.port}{PATHS[Task.CHAT]}"
            async with session.post(url, json=body) as answer:
                async for line in answer.content:
                    if any(piece.text for piece in reader.line(line.decode().rstrip("\n"))):
                        return time.perf_counter() - started
            raise AssertionError("no text")

        times: dict[str, list[float]] = {"direct": [], "chat": []}
        for number in range(samples + 3):  # the first ones open connections
            for name, work in (("direct", direct), ("chat", proxied)):
                taken = await work()
                if number >= 3:
                    times[name].append(taken * 1000)
    added = statistics.median(times["chat"]) - statistics.median(times["direct"])
    return {**{f"{name}_ms": percentiles(each) for name, each in times.items()}, "added_ms": round(added, 2)}


async def logs_mib(client: Client, kubelet: Kubelet, kubeconfig: Path, seconds: float) -> dict[str, Any]:
    """``airunway logs -f`` of 64 pods that write 10,000 lines a second together: memory, and the order of each pod."""
    await create(client, "chatty")
    names = [f"chatty-{number}" for number in range(PODS)]
    await concurrently(names, lambda name: place(client, kubelet, name, "chatty"))
    for name in names:
        kubelet.write(name, "model", "0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunway", "logs", "md/chatty", "-f", "-n", SPACE, "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    assert process.stdout is not None
    seen: dict[str, int] = {}
    disorder = 0

    async def read() -> None:
        nonlocal disorder
        assert process.stdout is not None
        async for line in process.stdout:
            prefix, _, text = line.decode().partition("] ")
            number = int(text.split()[0])
            disorder += number != seen.get(prefix, -1) + 1
            seen[prefix] = number

    reading = asyncio.create_task(read())
    while len(seen) < PODS:
        await asyncio.sleep(0.05)
    started, number, peak = time.perf_counter(), 0, 0.0
    each = LINES_PER_SECOND // PODS // 20
    while time.perf_counter() - started < seconds:
        for name in names:
            kubelet.write(name, "model", *(f"{number + place + 1} {'x' * 100}" for place in range(each)))
        number += each
        await asyncio.sleep(max(0.0, started + number * PODS / LINES_PER_SECOND - time.perf_counter()))
        peak = max(peak, rss_mib(process.pid)["peak"])
    written = time.perf_counter() - started
    while min(seen.values()) < number and time.perf_counter() - started < seconds + 60:
        await asyncio.sleep(0.05)
        peak = max(peak, rss_mib(process.pid)["peak"])
    drained = time.perf_counter() - started
    process.terminate()
    await process.wait()
    await asyncio.gather(reading, return_exceptions=True)
    return {
        "pods": PODS,
        "lines": number * PODS,
        "lines_per_second": round(number * PODS / written),
        "seconds_to_write": round(written, 1),
        "seconds_to_print": round(drained, 1),
        "lines_out_of_order": disorder,
        "missing": number * PODS - sum(seen.values()),
        "peak_mib": peak,
    }


async def create(client: Client, name: str) -> None:
    body: Resource = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
    }
    await client.create(MODEL_DEPLOYMENT, body)


async def place(client: Client, kubelet: Kubelet, name: str, owner: str, server: ModelServer | None = None) -> None:
    """A pod that runs and is ready; with a server at its address."""
    port = {"ports": [{"name": "http", "containerPort": server.port}]} if server is not None else {}
    body: Resource = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": {LABEL: owner}},
        "spec": {"containers": [{"name": "model", "image": "registry.example/engine:1", **port}]},
    }
    await kubelet.place(body)
    container = {"name": "model", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": running()}
    address = {"podIP": server.address, "podIPs": [{"ip": server.address}]} if server is not None else {}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [container],
        **address,
    }
    await client.merge_patch(POD, ObjectKey(SPACE, name), {"status": status}, subresource="status")


@asynccontextmanager
async def stage(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[Client, Kubelet, ModelServer]]:
    async with Client(load_config(kubeconfig=kubeconfig)) as client:
        await install_definitions(client)
        await client.create(NAMESPACE, {"metadata": {"name": SPACE}})
        while not await client.find(SERVICE_ACCOUNT, ObjectKey(SPACE, "default")):
            await asyncio.sleep(0.1)  # without its account the API server takes no pod
        async with (
            running_kubelet(client, folder, node="bench") as kubelet,
            model_server(models={"llama": Serves.CHAT}) as server,
        ):
            yield client, kubelet, server


async def measured(wanted: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "fleet" in wanted:
        found["fleet"] = fleet_ms()
    if not set(wanted) - {"fleet"}:
        return found
    with tempfile.TemporaryDirectory() as folder, ControlPlane(level="cluster") as cluster:
        async with stage(cluster.kubeconfig, Path(folder)) as (client, kubelet, server):
            kubeconfig = cluster.kubeconfig
            parts: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
                "status": lambda: status_seconds(client, kubelet, kubeconfig, arguments.samples),
                "chat": lambda: chat_added_ms(client, kubelet, server, arguments.samples * 20),
                "top": lambda: top_seconds(client, kubelet, server, arguments.deployments),
                "logs": lambda: logs_mib(client, kubelet, kubeconfig, arguments.seconds),
            }
            for name, work in parts.items():
                if name in wanted:
                    say(name)
                    found[name] = await work()
    return found


def within(found: dict[str, Any]) -> dict[str, bool]:
    """Which budgets are met."""
    places = {
        "fleet_ms": ("fleet", "median_ms"),
        "status_seconds": ("status", "process_seconds", "p50"),
        "top_seconds": ("top", "seconds"),
        "chat_added_ms": ("chat", "added_ms"),
        "logs_mib": ("logs", "peak_mib"),
    }
    values = {name: dig(found, *place) for name, place in places.items()}
    return {name: value <= BUDGETS[name] for name, value in values.items() if value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = ["fleet", "status", "chat", "top", "logs"]
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(every)} (default: all)")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--deployments", type=int, default=200, help="of top")
    parser.add_argument("--seconds", type=float, default=15.0, help="of logs")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have byte code from the second start on
    load = [round(each, 2) for each in os.getloadavg()]
    found = asyncio.run(measured(arguments.parts or every, arguments))
    result = {
        **heading("cli_cluster"),
        **found,
        "budgets": BUDGETS,
        "within_budget": within(found),
        "load_average": {"before": load, "after": [round(each, 2) for each in os.getloadavg()]},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
