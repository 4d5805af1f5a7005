"""A plugin of pytest: a run of slow tests alone (``-m slow``) imports only files that have some.

Each process that runs tests imports all files to find its own. Three in four have no slow test, which their text shows:
it does not have the word.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

__all__ = ["imported"]

_MARKER = "slow"


def imported(path: Path, expression: str) -> bool:
    """Whether a run of the tests that the marker expression selects has to import the file of tests."""
    plain = re.sub(r"\([^()]*\)", "", expression)
    asks = expression.split()[:2] in ([_MARKER], [_MARKER, "and"]) and " or " not in plain
    return not asks or path.suffix != ".py" or _MARKER in path.read_text(encoding="utf-8")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of tests without the word."""
    named = collection_path.name.startswith("test_") and collection_path.is_file()
    return None if not named or imported(collection_path, config.option.markexpr) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Insist on the word: a test that gets the marker elsewhere would not be found."""
    files = {item.path for item in items if item.get_closest_marker(_MARKER)}
    without = sorted(str(path) for path in files if not imported(path, _MARKER))
    if without:
        raise pytest.UsageError(f"slow tests in {', '.join(without)}: name the marker {_MARKER!r} in the file itself")
