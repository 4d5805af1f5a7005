"""The same input gives the same bytes: whatever the order of its keys, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import orjson


def reordered(node: Any) -> Any:
    """JSON with the keys of every object the other way round."""
    if isinstance(node, dict):
        return {key: reordered(value) for key, value in reversed(node.items())}
    return [reordered(value) for value in node] if isinstance(node, list) else node


def outputs_of_processes(program: str, inputs: Sequence[Any]) -> set[bytes]:
    """What a program with `inputs` as JSON writes, in processes that hash differently: one output if all is well."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            input=orjson.dumps(inputs),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "4242")
    }
