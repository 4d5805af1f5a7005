"""The program of a played model image: ``dry-run --format=json`` reports a profile in the termination message.

``--seconds=2`` works for so long before, ``--exit=1`` fails, ``--output=TEXT`` reports this text instead.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

REPORT = {
    "profile": {"metadata": {"engine": "vllm", "precision": "fp8"}, "engine_args": {"max-model-len": 8192}},
    "models": [{"name": "acme/tiny", "source": "hf://acme/tiny", "size_gb": 1.5}],
}


def main(words: list[str]) -> int:
    if words[:2] != ["dry-run", "--format=json"]:
        sys.stderr.write(f"unknown command: {words}\n")
        return 2
    options = dict(each.removeprefix("--").split("=", 1) for each in words[2:])
    time.sleep(float(options.get("seconds", "0")))
    Path(os.environ["AIRUNWAY_TERMINATION_LOG"]).write_text(options.get("output", json.dumps(REPORT)), encoding="utf-8")
    return int(options.get("exit", "0"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
