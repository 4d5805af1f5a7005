"""How long does it take to choose a provider among 20 with 5 rules each, and what does one rule cost?

Pure Python, no cluster. Deployments vary (engines, GPUs, environment variables, arguments), so that nothing is measured
twice from a cache that production would not have; rules are compiled before, as in a controller that runs. The bound
of the same run is the bare evaluation of the same rules on the same specs, without anything around it. On a machine
that others use too, read the CPU times: the p99 by the clock is then that of the neighbours. Prints JSON.

    uv run python benchmarks/selection.py
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
from datetime import UTC, datetime
from typing import Any

from airunway import __version__
from airunway.api.modeldeployment import defaulted_spec
from airunway.cel import compile_expression, evaluator_name
from airunway.resource import Resource
from airunway.selection.facts import ProviderFacts, provider_facts, request_of
from airunway.selection.provider import choose_provider, recorded

PROVIDERS = 20
BUDGET_MS = 5.0
"""p99 of a selection over 20 providers with 5 rules each."""

RULES = (
    "has(spec.resources.gpu) && spec.resources.gpu.count > {n} && spec.engine.type == 'vllm'",
    "spec.engine.type in ['sglang', 'trtllm'] || spec.scaling.replicas > {n}",
    "spec.env.exists(e, e.name == 'VARIABLE_{n}' && e.value.startsWith('v'))",
    "spec.model.id.matches('(?i)llama-[0-9.]+-{n}b')",
    "has(spec.resources.memory) && quantity(spec.resources.memory).isGreaterThan(quantity('{n}Gi'))",
)
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def provider(number: int) -> ProviderFacts:
    engines = [
        {"name": name, "servingModes": ["aggregated"], "gpuSupport": True, "cpuSupport": number % 2 == 0}
        for name in ("vllm", "sglang", "llamacpp")
    ]
    rules = [{"condition": rule.replace("{n}", str(number)), "priority": number} for rule in RULES]
    return provider_facts(
        {
            "metadata": {"name": f"provider-{number:02}"},
            "spec": {"capabilities": {"engines": engines}, "selectionRules": rules},
            "status": {"ready": True, "lastHeartbeat": NOW.isoformat()},
        }
    )


def spec(number: int) -> Resource:
    return {
        "model": {"id": f"meta-llama/Llama-3.1-{number % 30}B-Instruct"},
        "engine": {"type": ("vllm", "sglang", "llamacpp")[number % 3], "args": {"max-model-len": str(number)}},
        "resources": {"gpu": {"count": number % 9}, "memory": f"{number % 128}Gi"},
        "scaling": {"replicas": number % 5},
        "env": [{"name": f"VARIABLE_{n}", "value": f"v{number}"} for n in range(20)],
    }


def timed(work: Callable[[int], object], samples: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each call, by the clock and of CPU, with the garbage collector as it is in production."""
    for number in range(50):
        work(number)
    gc.collect()
    taken, cpu = [], []
    for number in range(samples):
        started, busy = time.perf_counter(), time.thread_time()
        work(number)
        taken.append((time.perf_counter() - started) * 1000)
        cpu.append((time.thread_time() - busy) * 1000)
    return taken, cpu


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {name: round(value, 3) for name, value in (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(values)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000, help="selections that are timed")
    arguments = parser.parse_args()
    providers = [provider(number) for number in range(PROVIDERS)]
    programs = [compile_expression(condition) for facts in providers for condition, _ in facts.rules]

    def select(number: int) -> object:
        raw = spec(number)
        request = request_of(defaulted_spec(raw, engine=raw["engine"]["type"]))
        choice = choose_provider(request, providers, engine=raw["engine"]["type"], now=NOW)
        return recorded(choice.candidates)

    def evaluate(number: int) -> object:
        bindings = {"spec": spec(number)}
        return [program.backend.evaluate(bindings) for program in programs]

    (selections, cpu), (bound, _) = timed(select, arguments.samples), timed(evaluate, arguments.samples)
    chosen = spread(selections)
    result: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "versions": {"airunway": __version__, "evaluator": evaluator_name()},
        "providers": PROVIDERS,
        "rules": len(programs),
        "samples": arguments.samples,
        "selection_ms": chosen,
        "selection_cpu_ms": spread(cpu),
        "bare_evaluation_ms": spread(bound),
        "times_the_bare_evaluation": round(statistics.median(selections) / statistics.median(bound), 2),
        "budget_p99_ms": BUDGET_MS,
        "within_budget": chosen["p99"] <= BUDGET_MS,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
