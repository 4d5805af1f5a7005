"""The program of a played model image: ``dry-run --format=json`` prints a profile, between lines of a log.

``--seconds=2`` works for so long before, ``--exit=1`` fails, ``--output=TEXT`` prints this text instead, ``--bytes=N``
prints a profile of at least so many bytes, ``--endless`` prints for ever, ``--stderr=TEXT`` writes to stderr, and
``--into=file`` writes the report into the file of AIRUNWAY_TERMINATION_LOG instead.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

MODEL_SERVER = "model-server"
"""Entrypoint of the image."""

REPORT = {
    "profile": {"metadata": {"engine": "vllm", "precision": "fp8"}, "engine_args": {"max-model-len": 8192}},
    "models": [{"name": "acme/tiny", "source": "hf://acme/tiny", "size_gb": 1.5}],
}
_GPUS = ("MI300X", "MI325X", "MI355X", "H100")
_FLAGS = (
    "max-model-len",
    "gpu-memory-utilization",
    "tensor-parallel-size",
    "max-num-seqs",
    "max-num-batched-tokens",
    "kv-cache-dtype",
    "distributed-executor-backend",
    "enable-chunked-prefill",
    "compilation-config",
    "tokenizer-mode",
)
_VARIABLES = ("VLLM_ROCM_USE_AITER", "VLLM_USE_TRITON_FLASH_ATTN", "HIP_FORCE_DEV_KERNARG", "NCCL_MIN_NCHANNELS")


def install(folder: Path) -> Path:
    """Write the program into a folder, under the name of the image's entrypoint; gives the path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / MODEL_SERVER
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    return program


def large(size: int) -> list[dict[str, object]]:
    """A report of many profiles, as an image for several GPUs has it, of at least so many bytes as JSON."""
    chance = random.Random(size)
    found: list[dict[str, object]] = [dict(REPORT)]
    length = 0
    while length < size:
        gpu, tensor = chance.choice(_GPUS), chance.choice((1, 2, 4, 8))
        profile = {
            "aim_id": "acme/tiny",
            "metadata": {"engine": "vllm", "gpu": gpu, "gpu_count": tensor, "precision": "fp8", "metric": "latency"},
            "engine_args": {
                flag: chance.choice((True, chance.randint(1, 262144), "auto", round(chance.random(), 2)))
                for flag in chance.sample(_FLAGS, 8)
            },
            "env_vars": {name: str(chance.randint(0, 1)) for name in _VARIABLES},
        }
        file = f"profiles/acme/tiny/vllm-{gpu.lower()}-fp8-tp{tensor}-latency-{chance.randint(0, 9999)}.yaml"
        found.append({"filename": file, "profile": profile, "models": REPORT["models"]})
        length += len(json.dumps(found[-1]))
    return found


def main(words: list[str]) -> int:
    if words[:2] != ["dry-run", "--format=json"]:
        sys.stderr.write(f"unknown command: {words}\n")
        return 2
    options = {name: value for name, _, value in (each.removeprefix("--").partition("=") for each in words[2:])}
    time.sleep(float(options.get("seconds", "0")))
    sys.stderr.write(options.get("stderr", ""))
    if "endless" in options:
        while True:
            sys.stdout.write("INFO still selecting a profile\n")
    if "into" in options:
        Path(os.environ["AIRUNWAY_TERMINATION_LOG"]).write_text(output_of(options), encoding="utf-8")
    else:
        sys.stdout.write(f"[1/2] INFO selecting a profile\n{output_of(options)}\nINFO done\n")
    return int(options.get("exit", "0"))


def output_of(options: Mapping[str, str]) -> str:
    if "bytes" in options:
        return json.dumps(large(int(options["bytes"])))
    return options.get("output", json.dumps(REPORT))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
