"""Generated files: written anew, or with ``--check`` compared with what is there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ROOT", "stale", "write"]

ROOT = Path(__file__).resolve().parents[1]


def stale(texts: Mapping[str, str]) -> list[str]:
    """Those of the files, by their paths from the root, whose text is another one."""
    return [name for name, text in texts.items() if not _is(ROOT / name, text)]


def write(texts: Mapping[str, str]) -> int:
    """The exit code of a tool: with ``--check`` nothing is written, and 1 says that a file is stale."""
    found = stale(texts)
    if "--check" not in sys.argv:
        for name in found:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(texts[name], encoding="utf-8")
        return 0
    for name in found:
        sys.stdout.write(f"{name}: stale, run `make generate`\n")
    return 1 if found else 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text
