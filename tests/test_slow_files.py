"""A run of slow tests alone imports the files that have some, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools import slow_files

ROOT = Path(__file__).resolve().parent.parent
ONLY_SLOW = "slow and not (soak or ray or picker)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "test_it.py"
    path.write_text("def test_it() -> None: ...\n")
    return path


@pytest.mark.parametrize("expression", ["slow", ONLY_SLOW])
def test_a_file_without_the_word_is_left_out(file: Path, expression: str) -> None:
    assert not slow_files.imported(file, expression)

    file.write_text("@pytest.mark.slow\n" + file.read_text())

    assert slow_files.imported(file, expression)


@pytest.mark.parametrize(
    "expression",
    ["", "not (slow or soak)", "slow or apiserver", "slow and soak or ray", "slow and not (soak) or ray", "slower"],
)
def test_any_other_run_imports_it(file: Path, expression: str) -> None:
    assert slow_files.imported(file, expression)


def test_a_test_that_gets_the_marker_elsewhere_ends_the_run(tmp_path: Path, file: Path) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_itemcollected(item):\n    item.add_marker('slow')\n")
    command = [sys.executable, "-m", "pytest", "--rootdir=.", "-p", "tools.slow_files", "-o", "markers=slow", file.name]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert f"slow tests in {file}: name the marker 'slow' in the file itself" in done.stderr
