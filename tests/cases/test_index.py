"""The index in README.md and the tests agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
README = (HERE / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.*) \|$", README, re.MULTILINE)
NAMED = re.findall(r"`([\w/.-]+\.py)::(\w+)`", README)


def names_of_tests(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, functions) and node.name.startswith("test_")}


def resolved(name: str) -> Path:
    """Names without a folder are of this folder, others are seen from the top of the repository."""
    return ROOT / name if "/" in name else HERE / name


def test_every_test_that_the_index_names_exists() -> None:
    assert len(NAMED) > 50
    missing = [f"{file}::{name}" for file, name in NAMED if name not in names_of_tests(resolved(file))]
    assert missing == []


def test_every_case_of_both_lists_is_in_the_index_once() -> None:
    split = README.index("## The list of AIM Engine")
    first = [int(number) for number, _ in re.findall(r"^\| (\d+) \| (.*) \|$", README[:split], re.MULTILINE)]
    second = [int(number) for number, _ in re.findall(r"^\| (\d+) \| (.*) \|$", README[split:], re.MULTILINE)]
    assert first == list(range(1, 66))
    assert second == list(range(1, 76))


def test_every_case_has_a_test_or_says_where_it_belongs() -> None:
    bare = [number for number, text in ROWS if "::" not in text and "Later" not in text and "Not ours" not in text]
    assert bare == []


def test_every_test_of_this_folder_is_in_the_index() -> None:
    named = {(file, name) for file, name in NAMED if "/" not in file}
    there = {(path.name, name) for path in HERE.glob("test_*.py") for name in names_of_tests(path)}
    assert {entry for entry in there - named if entry[0] != "test_index.py"} == set()
