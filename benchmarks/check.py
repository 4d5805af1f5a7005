"""How much processor time does ``airunway provider check`` take for each installed provider?

The command and the processes that it starts, against an idle ``python -c pass``. No cluster. Prints JSON. The budget
is for an upstream's CRD of about 3 MB: install a provider that was made with such a CRD, as docs/providers/examples
shows with KServe's (``airunway provider new kserve --crd``). Other load on the machine raises processor time, too.

    uv run python -m benchmarks.check
    uv run python -m benchmarks.check kserve --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.common import heading, say

from airunway.plugins.registry import discover

BUDGET_S = 4.0
"""Processor seconds of one check (issue 19)."""


def cpu_of(*command: str) -> float:
    """Processor seconds of a command with all that it started. Raises CalledProcessError if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measured(*command: str, repeats: int) -> dict[str, Any]:
    samples = [round(cpu_of(*command), 2) for _ in range(repeats)]
    return {"samples": samples, "median": round(statistics.median(samples), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("providers", nargs="*", help="names of providers (default: all that are installed)")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    found = {}
    for name in arguments.providers or [each.name for each in discover(on_request=True)]:
        say(name)
        found[name] = measured("-m", "airunway", "provider", "check", name, repeats=arguments.repeats)
    result = {
        **heading("check"),
        "cpu_seconds": found,
        "bound_cpu_seconds": measured("-c", "pass", repeats=arguments.repeats),
        "budget_cpu_seconds": BUDGET_S,
        "within_budget": {name: times["median"] <= BUDGET_S for name, times in found.items()},
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
