"""What a LoRA adapter says of itself in ``adapter_config.json``, as PEFT writes it: a part of a download's result."""

from __future__ import annotations

import json
import os
from pathlib import Path

CONFIG = "adapter_config.json"

_MOST = 64 << 10
"""Bytes of the file that are read: PEFT writes about one KiB."""
_LONGEST = 253
_HIGHEST_RANK = 1 << 16


def adapter_in(folder: Path) -> dict[str, object]:
    """Type, rank and base model of the adapter in a folder; empty if it has none, a `problem` if it cannot be read.

    The rank is the highest one: `rank_pattern` may give single modules a higher one than `r`.
    """
    try:
        descriptor = os.open(folder / CONFIG, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return {}
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(_MOST + 1)
    if len(text) > _MOST:
        return {"problem": f"{CONFIG} has more than {_MOST} bytes"}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"problem": f"{CONFIG} is no JSON"}
    if not isinstance(found, dict):
        return {"problem": f"{CONFIG} is no JSON object"}
    pattern = found.get("rank_pattern")
    ranks = [found.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    known = [rank for rank in ranks if type(rank) is int and 0 < rank <= _HIGHEST_RANK]
    told: dict[str, object] = {
        "type": _text(found.get("peft_type")),
        "baseModel": _text(found.get("base_model_name_or_path")),
    }
    if known:
        told["rank"] = max(known)
    return {name: value for name, value in told.items() if value} or {"problem": f"{CONFIG} names no adapter"}


def _text(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) and value.isprintable() else ""
