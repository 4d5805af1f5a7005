"""Workers begin with the files that take longest; who runs tests alone gets them in their order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.longest_first import LONGEST

ROOT = Path(__file__).resolve().parent.parent


def test_every_file_that_is_named_is_there() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


@pytest.mark.parametrize(
    ("options", "first"), [((), "test_a.py"), (("-n1", "--dist", "loadfile", "--no-loadscope-reorder"), LONGEST[1])]
)
def test_workers_begin_with_the_longest(tmp_path: Path, options: tuple[str, ...], first: str) -> None:
    for name in ("test_a.py", LONGEST[1]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("def test_it(): pass\n")
    command = [sys.executable, "-m", "pytest", "-v", "--rootdir=.", "-p", "tools.longest_first", *options]
    done = subprocess.run(
        [*command, "test_a.py", LONGEST[1]],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    (line, *_) = [line for line in done.stdout.splitlines() if "PASSED" in line]
    assert first in line, done.stdout + done.stderr
