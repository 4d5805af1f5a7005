"""The pages that are generated from code say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "tool",
    [
        "tools.cache_faults_page",
        "tools.conditions_page",
        "tools.doctor_page",
        "tools.fields_page",
        "tools.sdk_reference",
        "tools.view_page",
    ],
)
def test_the_page_is_current(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", tool, "--check"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
