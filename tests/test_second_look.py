"""What CI asks a second time: few failures of a run that came to its end, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.second_look import MOST, unsteady

ROOT = Path(__file__).resolve().parent.parent
FAILS = "def test_{}(): assert False\n"
ENDS = "import os, pytest\ndef test_z(): pytest.exit('in the middle', returncode=2)\n"


def run(folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.second_look", *options]
    subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, check=False, capture_output=True, timeout=60
    )


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["alone", "with workers"])
def test_a_few_that_failed_are_asked_again(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(FAILS.format("a") + "def test_b(): pass\n")
    run(tmp_path, *options)
    assert unsteady(tmp_path / ".pytest_cache") == ["test_it.py::test_a"]


def test_one_test_counts_once_whatever_its_parameters(tmp_path: Path) -> None:
    many = f"import pytest\n@pytest.mark.parametrize('n', range({MOST + 1}))\ndef test_a(n): assert False\n"
    (tmp_path / "test_it.py").write_text(many)
    run(tmp_path)
    assert len(unsteady(tmp_path / ".pytest_cache")) == MOST + 1


def test_one_that_passes_then_is_asked_no_more(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILS.format("a"))
    run(tmp_path)
    (tmp_path / "test_it.py").write_text("def test_a(): pass\n")
    run(tmp_path, "--last-failed")
    assert unsteady(tmp_path / ".pytest_cache") == []


def test_more_than_a_few_say_something_about_the_change(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("".join(FAILS.format(number) for number in range(MOST + 1)))
    run(tmp_path)
    assert unsteady(tmp_path / ".pytest_cache") == []


def test_a_run_that_did_not_end_is_not_excused(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILS.format("a") + ENDS)
    run(tmp_path)
    assert (tmp_path / ".pytest_cache/v/cache/lastfailed").exists()
    assert unsteady(tmp_path / ".pytest_cache") == []


def test_a_file_that_cannot_be_read_as_python_is_not_excused(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_a(:\n")
    run(tmp_path)
    assert unsteady(tmp_path / ".pytest_cache") == []


def test_without_a_run_there_is_nothing_to_ask(tmp_path: Path) -> None:
    assert unsteady(tmp_path / ".pytest_cache") == []
