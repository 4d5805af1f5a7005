"""Every place that docs/where.md names is there: the file, and in it the function, class, constant or code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "core" / "src" / "airunway", ROOT / "catalogue" / "src", ROOT / "ui" / "src")
ROW = re.compile(r"^\| (?P<question>[^|*]+) \| `(?P<file>[^`|]+)` \| (?P<names>[^|]+) \|$", re.MULTILINE)
PAGE = (ROOT / "docs" / "where.md").read_text(encoding="utf-8").partition("\n## ")[0]
ROWS = [(row["file"], re.findall(r"`(\w+)`", row["names"])) for row in ROW.finditer(PAGE)]


def defined(source: Path) -> Iterator[str]:
    """The functions, classes, variables and codes of doctor that a file defines."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Name(id="error" | "warning"), args=[ast.Constant(value=str(code)), *_]):
                yield code


@pytest.mark.parametrize(("file", "names"), ROWS, ids=[f"{file}-{'-'.join(names)}" for file, names in ROWS])
def test_a_place_is_there(file: str, names: list[str]) -> None:
    assert names
    place = next((folder / file for folder in PACKAGES if (folder / file).is_file()), None)
    assert place is not None, file
    assert set(names) <= set(defined(place)), f"{place.relative_to(ROOT)} does not define all of {names}"


def test_every_row_with_a_file_is_read() -> None:
    assert len(ROWS) == sum(".py`" in line for line in PAGE.splitlines() if line.startswith("|"))
