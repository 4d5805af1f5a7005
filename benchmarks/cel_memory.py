"""Does evaluating rules on ever new values keep memory? (cel-cpp's binding frees no argument of a Python function.)

Pure Python, no cluster. Every evaluation has values that no other had, as a hostile user's reviews would: selection
rules with quantities, texts, loops and optional syntax, rules that fail, and the whole validation of a deployment with
eight sized volumes. Memory is the resident set after a garbage collection; what caches hold is in it before it is
first read. Prints JSON.

    uv run python benchmarks/cel_memory.py [--evaluations 1000000]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

from airunway import __version__
from airunway.api import names
from airunway.cel import evaluator_name
from airunway.resource import Resource
from airunway.selection.facts import request_of
from airunway.selection.provider import evaluate_rules
from airunway.validation import validate

RULES = (
    "has(spec.resources.memory) && quantity(spec.resources.memory).isGreaterThan(quantity('16Gi'))",
    "quantity(spec.resources.memory).add(quantity('1Gi')).compareTo(quantity(spec.resources.cpu)) > 0",
    "isQuantity(spec.model.id)",
    "spec.?model.?id.orValue('').matches('model-[0-9]+7')",
    "'%s %d'.format([spec.model.id, spec.scaling.replicas]) == 'x'",
    "spec.env.exists(e, e.value.upperAscii().endsWith('7'))",
    "int(spec.model.id) > 1",
)
WARM_UP = 4000
"""Evaluations before memory is first read: programs are compiled, caches full, the allocator's arenas there."""
GROWTH_LIMIT = 4.0
"""MiB that memory may grow by after that, whatever the number of evaluations."""
VOLUMES = 8


def spec(number: int) -> Resource:
    return {
        "model": {"id": f"org/model-{number}"},
        "resources": {"memory": f"{number}Mi", "cpu": f"{number}m", "gpu": {"count": number % 8}},
        "scaling": {"replicas": number},
        "env": [{"name": "A", "value": f"v{number}"}],
    }


def deployment(number: int) -> Resource:
    volumes = [
        {"name": f"v{n}", "mountPath": f"/mnt/{n}", "size": f"{number * VOLUMES + n}Mi", "purpose": "custom"}
        for n in range(VOLUMES)
    ]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "llama"},
        "spec": {
            "model": {"id": f"org/model-{number}", "storage": {"volumes": volumes}},
            "resources": {"memory": f"{number % 4_000_000}Mi", "cpu": f"{number % 512_000}m"},
        },
    }


def select(number: int) -> None:
    evaluate_rules([(rule, 1) for rule in RULES], request_of(spec(number)))


def review(number: int) -> None:
    validate(deployment(number), old=deployment(number + 1))


def resident() -> float:
    """MiB of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(work: Callable[[int], None], times: int, *, first: int = 1) -> float:
    """MiB by which memory grew over `times` calls with ever new numbers, after a warm-up."""
    for number in range(first, first + WARM_UP):
        work(number)
    before = resident()
    for number in range(first + WARM_UP, first + WARM_UP + times):
        work(number)
    return resident() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=1_000_000, help="evaluations of selection rules")
    evaluations = parser.parse_args().evaluations
    rules = growth(select, evaluations // len(RULES))
    # A validation runs about forty rules.
    reviews = growth(review, evaluations // 40)
    result = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "versions": {"airunway": __version__, "evaluator": evaluator_name()},
        "evaluations_of_rules": evaluations // len(RULES) * len(RULES),
        "validations": evaluations // 40,
        "growth_mib": {"rules": round(rules, 2), "validations": round(reviews, 2)},
        "resident_mib": round(resident(), 1),
        "limit_mib": GROWTH_LIMIT,
        "within_limit": max(rules, reviews) <= GROWTH_LIMIT,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
