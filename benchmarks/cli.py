"""How long does a user wait for the command line: `airunway --help`, and `airunway render` of one manifest?

Each sample is a process of its own, as a user starts it, without a cluster. The bound of the same run is the Python
interpreter that starts and does nothing. Prints JSON.

    uv run python benchmarks/cli.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from airunway import __version__

BUDGETS = {"--help": 0.3, "render": 0.6}
"""Seconds."""

MANIFEST = """
apiVersion: airunway.ai/v1alpha1
kind: ModelDeployment
metadata: {name: gemma}
spec:
  model: {id: google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf}
  engine: {type: llamacpp}
  resources: {memory: 16Gi, cpu: "8"}
  image: example.org/llama-cpp-runner:latest
"""


def seconds(command: list[str]) -> float:
    """Raises CalledProcessError if the command fails: what fails fast proves nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    started = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def spread(values: list[float]) -> dict[str, float]:
    return {
        name: round(value, 3)
        for name, value in (("median", statistics.median(values)), ("min", min(values)), ("max", max(values)))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=15, help="starts of each command that are timed")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have byte code from the second start on
    program = Path(sys.executable).parent / "airunway"
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "gemma.yaml"
        manifest.write_text(MANIFEST)
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "--help": [str(program), "--help"],
            "render": [str(program), "render", "-f", str(manifest)],
            "explain": [str(program), "explain", "-f", str(manifest), "--providers", "installed"],
            "validate": [str(program), "validate", str(manifest)],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for sample in range(arguments.samples + 1):  # the first start only warms the disk
            for name, command in commands.items():
                elapsed = seconds(command)
                if sample:
                    taken[name].append(elapsed)
    result: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "versions": {"airunway": __version__},
        "samples": arguments.samples,
        "seconds": {name: spread(values) for name, values in taken.items()},
        "budget_seconds": BUDGETS,
        "within_budget": {name: statistics.median(taken[name]) <= budget for name, budget in BUDGETS.items()},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
