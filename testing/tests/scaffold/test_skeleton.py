"""``airunway provider new``: all files or none, with names that fit wherever they are used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from airunway.cli.main import app
from airunway_testing.scaffold import ScaffoldError, write_skeleton
from airunway_testing.scaffold.skeleton import names_of

ROOT = Path(__file__).parents[3]
MOST_LINES = 150
"""Lines of a provider for a simple upstream (spec/contract.md)."""


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["provider", "new", *arguments])
    return done.exit_code, done.output


def test_it_goes_where_it_is_told_to_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = run("acme", "--directory", "there/acme")
    assert code == 0
    assert "there/acme/README.md" in said
    assert run("acme")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["airunway-acme", "there"]
    assert (tmp_path / "airunway-acme" / "src" / "airunway_acme" / "provider.py").is_file()


@pytest.mark.parametrize("name", ["Acme", "9lives", "my_provider", "a b", "-x", "x-", "a--b", "a" * 31, "../up", ""])
def test_a_name_that_is_none_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = run("--directory", "there", "--", name)
    assert code == 1
    assert said.count("\n") == 1
    assert f"{name!r} cannot be the name of a provider: write small letters" in said
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_here_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="airunway_testing is installed here already: choose another name"):
        write_skeleton("testing", tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code, said = run("acme", "--directory", str(tmp_path))
    assert (code, said.count("\n")) == (1, 1)
    assert f"{tmp_path} is not empty" in said
    code, said = run("acme", "--directory", str(tmp_path / "mine.txt"))
    assert (code, said.count("\n")) == (1, 1)
    assert "is a file" in said
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mine.txt", "mine")]


@pytest.mark.parametrize("name", ["acme", "x", "four-words-of-a-name", "a" * 30])
def test_what_is_written_is_whole(tmp_path: Path, name: str) -> None:
    write_skeleton(name, tmp_path / "it")
    written = {
        str(path.relative_to(tmp_path / "it")): path.read_text()
        for path in (tmp_path / "it").rglob("*")
        if path.is_file()
    }
    for path, text in written.items():
        assert not re.search(r"\$\{|\$\$", text), path
        assert not re.search(r"MODULE|NAME|template$", path)
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith(".toml"):
            tomllib.loads(text)
        elif path.endswith(".yaml") and not path.startswith("chart/templates/"):
            list(yaml.safe_load_all(text))
    names = names_of(name)
    assert {f"src/{names.module}/provider.py", "simulator/pyproject.toml", "chart/Chart.yaml", "README.md"} <= set(
        written
    )
    (provider,) = [text for path, text in written.items() if path.endswith("/provider.py")]
    assert len(provider.splitlines()) <= MOST_LINES
    assert len(names.plural) <= 63


def test_what_is_written_is_clean(tmp_path: Path) -> None:
    """By the linters of this repository; imports in the order of a project in which ours are foreign."""
    write_skeleton("acme", tmp_path)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", ROOT / "pyproject.toml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    for folder in ("src", "simulator/src", "tests"):
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", folder],
            cwd=tmp_path,
            env={"MYPYPATH": f"{tmp_path}/src"} if folder == "tests" else {},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_it_imports_the_sdk_and_nothing_else_of_ours(tmp_path: Path) -> None:
    """A simulator knows objects and the API server alone (docs/providers/simulators.md)."""
    write_skeleton("acme", tmp_path)
    for folder, allowed in (
        ("src", r"airunway\.sdk(\.|$)|airunway_acme\."),
        ("simulator", r"airunway\.(kube|resource)$|airunway_testing\.simulators(\.|$)|airunway_acme_simulator\."),
    ):
        for path in (tmp_path / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airunway"):
                    assert re.match(allowed, node.module or ""), f"{path}: {node.module}"
