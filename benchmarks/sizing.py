"""How long does sizing take: one model against the nodes of a cluster, and reading its facts?

Pure Python, no cluster. The bound of the same run is one estimate. The times are CPU times, of this process alone.
Prints JSON.

    uv run python benchmarks/sizing.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable

from airunway import __version__
from airunway.resource import Resource
from airunway.sizing.catalogue import nearest, of_entry
from airunway.sizing.estimate import Layout, estimate
from airunway.sizing.fit import fit
from airunway.sizing.nodes import free_gpus, gpu_named
from airunway.sizing.workload import WorkerSettings

BUDGET_MS = 5.0
"""One model against a node of each kind (issue 24)."""
MODEL = "meta-llama/Llama-3.3-70B-Instruct"


def node(number: int) -> Resource:
    product = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-L4", "NVIDIA-A100-SXM4-80GB", "NVIDIA-L40S")[number % 4]
    return {
        "kind": "Node",
        "metadata": {"name": f"n{number}", "labels": {"nvidia.com/gpu.product": product}},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}},
    }


def pod(number: int) -> Resource:
    resources = {"requests": {"nvidia.com/gpu": "1"}}
    return {
        "spec": {"nodeName": f"n{number % 100}", "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Running"},
    }


def milliseconds(work: Callable[[], object], samples: int) -> dict[str, float]:
    """CPU time of one call: median and 99th percentile."""
    work()
    taken = []
    for _ in range(samples):
        started = time.process_time_ns()
        work()
        taken.append((time.process_time_ns() - started) / 1e6)
    taken.sort()
    return {"median": round(statistics.median(taken), 3), "p99": round(taken[int(len(taken) * 0.99)], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=500, help="calls of each that are timed")
    samples = parser.parse_args().samples
    entry = nearest(MODEL)
    if entry is None:
        raise SystemExit(f"the catalogue has no {MODEL}")
    model, workload = of_entry(entry, origin="catalogue"), WorkerSettings(engine="vllm", context=32768)
    four = free_gpus([node(number) for number in range(4)], [])
    hundred, pods = [node(number) for number in range(100)], [pod(number) for number in range(400)]
    found = {
        "estimate": milliseconds(lambda: estimate(model, workload, gpu_named("h100"), Layout()), samples),
        "fit_4_kinds": milliseconds(lambda: fit(model, workload, four), samples),
        "facts": milliseconds(lambda: of_entry(entry, origin="catalogue"), samples),
        "fit_100_nodes_400_pods": milliseconds(
            lambda: fit(model, workload, free_gpus(hundred, pods)), max(10, samples // 10)
        ),
    }
    result = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "versions": {"airunway": __version__},
        "samples": samples,
        "cpu_milliseconds": found,
        "budget_milliseconds": BUDGET_MS,
        "within_budget": found["facts"]["median"] + found["fit_4_kinds"]["median"] <= BUDGET_MS,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
