"""How fast, and in how much memory, a reflector brings 10,000 objects of about 3 KB from the API server into its cache.

    python benchmarks/reflector.py [--objects 10000] [--samples 5] [--kubeconfig FILE]

Starts a control plane of its own (or takes the one of ``--kubeconfig``), creates the objects as instances of a small
CRD, and measures in fresh processes, in turn:

``bound``     the API server's own rate: the same pages fetched one after the other, nothing decoded or kept
``reflector`` from `Reflector.run` to `synced`, with the projection that controllers use
``frozen``    the same with `gc.freeze()` before, as the process shell does it

Prints JSON. Seconds are from the first list request on; memory is the resident set of the process in MB (10^6 bytes)
after the sync and at its peak; `base` is the same process before.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    AlreadyExists,
    Client,
    Kind,
    Reflector,
    is_served,
    load_config,
    strip_managed_fields,
)
from airunway.kube.session import Request
from airunway.resource import ObjectKey, Resource

KIND = Kind("bench.airunway.ai", "v1", "Sample", "samples")
NAMESPACES = 10
MANAGER = "airunway-bench"
BUDGET = {"seconds": 2.0, "megabytes": 180.0}

CRD: Resource = {
    "apiVersion": CUSTOM_RESOURCE_DEFINITION.api_version,
    "kind": CUSTOM_RESOURCE_DEFINITION.kind,
    "metadata": {"name": f"{KIND.plural}.{KIND.group}"},
    "spec": {
        "group": KIND.group,
        "scope": "Namespaced",
        "names": {"kind": KIND.kind, "plural": KIND.plural, "singular": "sample"},
        "versions": [
            {
                "name": KIND.version,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for name in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}


def sample(number: int) -> Resource:
    """An object of the size and shape of a ModelDeployment with its status: about 3 KB of JSON."""
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {
            "name": f"deployment-{number:05}",
            "namespace": f"bench-{number % NAMESPACES}",
            "labels": {"app": f"app-{number}", "team": f"team-{number % 7}", "airunway.ai/managed-by": "airunway"},
            "annotations": {"airunway.ai/spec-hash": f"{number:064x}"},
        },
        "spec": {
            "model": {"id": f"example-org/model-{number}", "source": "huggingface", "servedName": f"model-{number}"},
            "engine": {
                "type": "vllm",
                "contextLength": 8192,
                "args": {f"arg-{i}": f"value-{number}-{i}" for i in range(8)},
            },
            "provider": {"name": "example", "overrides": {}},
            "serving": {"mode": "aggregated"},
            "scaling": {"replicas": number % 5},
            "resources": {"gpu": {"count": 1, "type": "nvidia.com/gpu"}, "memory": "64Gi", "cpu": "16"},
            "env": [{"name": f"VARIABLE_{i}", "value": f"value {number} of {i}"} for i in range(6)],
        },
        "status": {
            "phase": "Running",
            "message": "2/2 replicas are ready",
            "replicas": {"desired": 2, "ready": 2, "available": 2},
            "endpoint": {
                "service": f"deployment-{number:05}",
                "port": 8000,
                "url": f"http://deployment-{number:05}:8000",
            },
            "conditions": [
                {
                    "type": name,
                    "status": "True",
                    "reason": f"{name}Succeeded",
                    "message": f"{name} of deployment {number} is as it should be",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "observedGeneration": 1,
                }
                for name in ("Validated", "EngineSelected", "ProviderSelected", "ProviderCompatible", "Ready")
            ],
        },
    }


async def fill(kubeconfig: Path, count: int) -> int:
    """Makes the objects that are not there yet; returns the bytes of one."""
    async with Client(load_config(kubeconfig=kubeconfig)) as client:
        await client.apply(CUSTOM_RESOURCE_DEFINITION, CRD, manager=MANAGER, force=True)
        while not await is_served(client, KIND):
            await asyncio.sleep(0.1)
        for number in range(NAMESPACES):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"bench-{number}"}}
            try:
                await client.create(NAMESPACE, body)
            except AlreadyExists:
                continue
        numbers = iter(range(count))

        async def worker() -> None:
            for number in numbers:
                try:
                    await client.apply(KIND, sample(number), manager=MANAGER)
                except AlreadyExists:
                    continue

        await asyncio.gather(*(worker() for _ in range(24)))
        one = await client.get(KIND, ObjectKey("bench-0", "deployment-00000"))
        return len(json.dumps(one, separators=(",", ":")))


def memory() -> dict[str, float]:
    """Resident set now and at its peak, in bytes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: float(fields[key].split()[0]) * 1024 for name, key in (("rss", "VmRSS"), ("peak", "VmHWM"))}


async def measure_bound(kubeconfig: Path) -> dict[str, float]:
    """The pages as bytes; only the continue token is looked for, at the end, where this kind of list has it."""
    async with Client(load_config(kubeconfig=kubeconfig)) as client:
        await client.get_path("/version")
        started, size, token = time.perf_counter(), 0, ""
        while True:
            params = {"limit": "500"} | ({"continue": token} if token else {})
            body = await client.session.read(Request("list", "GET", KIND.path(), KIND.plural, params))
            size += len(body)
            # The server writes the list's own metadata last: {"continue":"...",...}}
            token = json.loads(b"{" + body[body.rindex(b'"metadata":{"continue"') :])["metadata"]["continue"]
            if not token:
                break
        return {"seconds": time.perf_counter() - started, "bytes": float(size)}


async def measure_reflector(kubeconfig: Path, *, freeze: bool) -> dict[str, float]:
    async with Client(load_config(kubeconfig=kubeconfig)) as client:
        await client.get_path("/version")
        if freeze:
            gc.freeze()
        base = memory()["rss"]
        reflector = Reflector(client, KIND, project=strip_managed_fields(keep=MANAGER))
        started, cpu = time.perf_counter(), time.process_time()
        task = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        used = memory()
        objects = len(reflector)
        task.cancel()
        await asyncio.wait({task})
        return {
            "seconds": seconds,
            "cpu": cpu,
            "objects": objects,
            "base": base,
            "rss": used["rss"],
            "peak": used["peak"],
        }


def in_fresh_process(mode: str, kubeconfig: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", mode, "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def summary(samples: list[dict[str, float]]) -> dict[str, object]:
    """Median, spread and samples of each number."""
    table: dict[str, object] = {}
    for name in samples[0]:
        scale = 1e6 if name in ("rss", "peak", "base", "bytes") else 1.0
        values = [round(one[name] / scale, 3) for one in samples]
        label = f"{name}_mb" if scale > 1 else name
        table[label] = {"median": statistics.median(values), "spread": [min(values), max(values)], "samples": values}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--measure", choices=("bound", "reflector", "frozen"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure == "bound":
        print(json.dumps(asyncio.run(measure_bound(options.kubeconfig))))
        return
    if options.measure:
        print(json.dumps(asyncio.run(measure_reflector(options.kubeconfig, freeze=options.measure == "frozen"))))
        return

    with ExitStack() as stack:
        kubeconfig = options.kubeconfig
        if kubeconfig is None:
            from airunway_testing.controlplane import ControlPlane

            kubeconfig = stack.enter_context(ControlPlane("api")).kubeconfig
        size = asyncio.run(fill(kubeconfig, options.objects))
        runs: dict[str, list[dict[str, float]]] = {"bound": [], "reflector": [], "frozen": []}
        for _ in range(options.samples):
            for mode, samples in runs.items():
                samples.append(in_fresh_process(mode, kubeconfig))
    medians = {mode: statistics.median(one["seconds"] for one in samples) for mode, samples in runs.items()}
    megabytes = statistics.median(one["rss"] for one in runs["reflector"]) / 1e6
    print(
        json.dumps(
            {
                "benchmark": "reflector",
                "objects": options.objects,
                "bytes_per_object": size,
                "machine": {"cpus": os.cpu_count(), "platform": platform.platform()},
                "versions": {"python": platform.python_version(), **{p: version(p) for p in ("aiohttp", "orjson")}},
                "budget": BUDGET,
                "within_budget": medians["reflector"] <= BUDGET["seconds"] and megabytes <= BUDGET["megabytes"],
                "times_the_bound": round(medians["reflector"] / medians["bound"], 2),
                "results": {mode: summary(samples) for mode, samples in runs.items()},
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
