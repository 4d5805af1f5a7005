"""How long does a provider think about a deployment: `can_handle` and `translate_spec`, through the plugin host?

Pure Python, no cluster. Deployments vary in engine, size and source; those that the provider cannot run are asked about
too, but have no translation. The bound of the same run is reading the deployment alone (JSON to types), which every
pass has to do. Besides the time by the clock the processor's is printed: on a machine that others use the one has
their work in it, the other has not. Prints JSON.

    uv run python benchmarks/translate.py --provider kaito
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airunway import __version__
from airunway.api import names
from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.host import assumed_context
from airunway.plugins.registry import load
from airunway.resource import Resource

BUDGET_MS = 2.0
"""p99 of `translate_spec` and `can_handle` together."""

SPECS: tuple[Resource, ...] = (
    {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "engine": {"type": "vllm", "contextLength": 8192, "args": {"gpu-memory-utilization": "0.9"}},
        "resources": {"gpu": {"count": 1, "type": "nvidia.com/gpu"}, "memory": "64Gi", "cpu": "8"},
        "secrets": {"huggingFaceToken": "token"},
    },
    {
        "model": {"id": "microsoft/phi-4-mini-instruct"},
        "engine": {"type": "vllm"},
        "resources": {"gpu": {"count": 2}},
        "env": [{"name": f"VARIABLE_{n}", "value": str(n)} for n in range(50)],
        "nodeSelector": {f"label-{n}": "yes" for n in range(10)},
        "tolerations": [{"key": f"taint-{n}", "operator": "Exists"} for n in range(5)],
        "podTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
    },
    {
        "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
        "engine": {"type": "llamacpp", "args": {"threads": "8"}},
        "resources": {"memory": "16Gi", "cpu": "8"},
        "image": "example.org/llama-cpp-runner:latest",
    },
    {"model": {"id": "org/model"}, "engine": {"type": "sglang"}, "resources": {"gpu": {"count": 1}}},
    {
        "model": {"id": "org/model"},
        "engine": {"type": "vllm"},
        "serving": {"mode": "disaggregated"},
        "scaling": {role: {"gpu": {"count": 4}, "memory": "64Gi"} for role in ("prefill", "decode")},
    },
)


def deployment(number: int) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": f"model-{number}", "namespace": "team", "uid": f"uid-{number}", "generation": 1},
        "spec": SPECS[number % len(SPECS)],
    }


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {name: round(value, 3) for name, value in (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(values)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--provider", default="kaito", help="name of an installed provider")
    parser.add_argument("--samples", type=int, default=4000, help="deployments that are timed")
    arguments = parser.parse_args()
    host = load(arguments.provider)
    assumed = assumed_context(host, engine="", now=datetime(2026, 11, 21, 12, 0, tzinfo=UTC))
    reading: list[float] = []
    thinking: list[float] = []
    working: list[float] = []
    translated = 0
    for number in range(-100, arguments.samples):
        if number == 0:
            gc.collect()
            reading, thinking, working, translated = [], [], [], 0
        obj = deployment(number)
        started = time.perf_counter()
        typed = parse_deployment(obj)
        read, spent = time.perf_counter(), time.thread_time()
        context = replace(assumed, engine=obj["spec"]["engine"]["type"])
        if not host.can_handle(typed, context).blockers:
            host.translate_spec(typed, context)
            translated += 1
        done = time.perf_counter()
        reading.append((read - started) * 1000)
        thinking.append((done - read) * 1000)
        working.append((time.thread_time() - spent) * 1000)
    taken = spread(thinking)
    result: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "versions": {"airunway": __version__, "provider": host.manifest.version},
        "provider": arguments.provider,
        "samples": arguments.samples,
        "translated": translated,
        "can_handle_and_translate_spec_ms": taken,
        "of_these_on_a_processor_ms": spread(working),
        "reading_the_deployment_ms": spread(reading),
        "times_the_reading": round(statistics.median(thinking) / statistics.median(reading), 2),
        "budget_p99_ms": BUDGET_MS,
        "within_budget": taken["p99"] <= BUDGET_MS,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
