"""What a missing recording means: a skip where somebody works, a failure in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.mark.parametrize(
    ("variables", "outcome"),
    [
        ({}, "1 skipped"),
        ({"CI": "true"}, "1 error"),
        ({"CI": "true", "AIRUNWAY_WITHOUT_RECORDINGS": "1"}, "1 skipped"),
        ({"CI": "true", "AIRUNWAY_WITHOUT_RECORDINGS": "0"}, "1 error"),
    ],
    ids=["at home", "CI", "CI that says so", "CI that says no"],
)
def test_missing_recordings_fail_in_ci_and_are_named(variables: dict[str, str], outcome: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copy(CONFTEST, checkout)
    (checkout / "test_it.py").write_text("def test_it(recordings): pass\n")
    clean = {k: v for k, v in os.environ.items() if k not in ("CI", "AIRUNWAY_WITHOUT_RECORDINGS", "PYTEST_ADDOPTS")}
    command = [sys.executable, "-m", "pytest", "-rsE", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command,
        cwd=checkout,
        env={**clean, **variables, "PYTHONPATH": str(CONFTEST.parent)},  # for `tools`, as pyproject.toml has it
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert "../shared/upstream-crds/kaito" in done.stdout
    assert ("AIRUNWAY_WITHOUT_RECORDINGS=1" in done.stdout) == (outcome == "1 error")
