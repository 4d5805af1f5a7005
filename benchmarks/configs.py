"""How long do the pure parts of runtime configs take: resolve + merge + hash, rendering a path, matching labels?

Pure Python, no cluster. Configs and deployments vary, so that nothing is measured twice from a cache. The bound of the
same run is reading and hashing the two stored configs alone (JSON to dicts, sha256). On a machine that others use too,
read the CPU times: the p99 by the clock is then that of the neighbours. Prints JSON.

    uv run python benchmarks/configs.py
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable

import orjson

from airunway import __version__
from airunway.configs import EffectiveConfig, path_of, propagated, resolve
from airunway.resource import Resource, digest

RESOLVE_BUDGET_MS = 0.3
"""p99 of resolve + merge + hash (issue 21)."""
RENDER_BUDGET_MS = 0.1
"""p99 of rendering a path (issue 21)."""

TEMPLATE = "/ml/{.metadata.namespace}/{.metadata.labels['project']}/{.metadata.name}"


def configs(number: int) -> tuple[Resource, Resource]:
    """A RuntimeConfig that inherits, and the ClusterRuntimeConfig of its name."""
    cluster = {
        "metadata": {"name": "default"},
        "spec": {
            "defaultStorageClassName": "fast-nvme",
            "routing": {
                "gatewayRef": {"name": "inference-gateway", "namespace": "gateways"},
                "annotations": {f"example.com/annotation-{n}": str(number) for n in range(5)},
            },
            "env": [{"name": f"CLUSTER_{n}", "value": f"value {number}"} for n in range(10)],
            "labelPropagation": {"enabled": True, "match": [f"org.example/*-{n}" for n in range(10)]},
        },
    }
    namespaced = {
        "metadata": {"name": "default", "namespace": f"team-{number}"},
        "spec": {
            "inherit": "Cluster",
            "routing": {"enabled": True, "pathTemplate": TEMPLATE, "requestTimeout": "90s"},
            "env": [{"name": f"{('CLUSTER', 'OWN')[n % 2]}_{n}", "value": f"own {number}"} for n in range(10)],
            "imagePullSecrets": [{"name": "registry"}],
            "secrets": {"huggingFaceToken": "hf-token"},
            "statusPolicy": {"capacityBlockedAfter": "30m"},
        },
    }
    return namespaced, cluster


def deployment(number: int) -> Resource:
    return {
        "metadata": {
            "name": f"llama-{number}",
            "namespace": f"team-{number % 50}",
            "uid": f"uid-{number}",
            "labels": {"project": f"project-{number % 9}", **{f"org.example/key-{n}": "x" for n in range(10)}},
        },
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
    }


def effective(number: int) -> EffectiveConfig:
    namespaced, cluster = configs(number)
    found = resolve("default", namespaced=namespaced, cluster=cluster).config
    if found is None:
        raise RuntimeError("the benchmark's own config was not found")
    return found


def timed(prepare: Callable[[int], object], work: Callable[[object], object], samples: int) -> tuple[list[float], ...]:
    """Milliseconds of `work` on what `prepare` returns, by the clock and of CPU, as the garbage collector runs."""
    for number in range(50):
        work(prepare(number))
    gc.collect()
    taken, cpu = [], []
    for number in range(samples):
        prepared = prepare(number + 1000)
        started, busy = time.perf_counter(), time.thread_time()
        work(prepared)
        cpu.append((time.thread_time() - busy) * 1000)
        taken.append((time.perf_counter() - started) * 1000)
    return taken, cpu


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {name: round(value, 4) for name, value in (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(values)))}


def bound(pair: object) -> object:
    return digest(orjson.loads(orjson.dumps(pair)))


def resolved(pair: object) -> object:
    namespaced, cluster = pair if isinstance(pair, tuple) else (None, None)
    return resolve("default", namespaced=namespaced, cluster=cluster)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=5000, help="calls that are timed")
    samples = parser.parse_args().samples
    config = effective(0)

    def rendered(obj: object) -> object:
        return path_of(obj if isinstance(obj, dict) else {}, config)

    def labelled(obj: object) -> object:
        return propagated(obj["metadata"]["labels"] if isinstance(obj, dict) else {}, config)

    times = {
        "bound": timed(configs, bound, samples),
        "resolve": timed(configs, resolved, samples),
        "render": timed(deployment, rendered, samples),
        "propagate": timed(deployment, labelled, samples),
    }
    told = {name: {"clock_ms": spread(clock), "cpu_ms": spread(cpu)} for name, (clock, cpu) in times.items()}
    result = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "versions": {"airunway": __version__},
        "samples": samples,
        **told,
        "ratio_resolve_to_bound": round(told["resolve"]["cpu_ms"]["p50"] / told["bound"]["cpu_ms"]["p50"], 1),
        "budget_ms": {"resolve": RESOLVE_BUDGET_MS, "render": RENDER_BUDGET_MS},
        "within_budget": told["resolve"]["cpu_ms"]["p99"] <= RESOLVE_BUDGET_MS
        and told["render"]["cpu_ms"]["p99"] <= RENDER_BUDGET_MS,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
