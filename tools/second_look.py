"""Which failed tests CI asks once more, alone: ``python -m tools.second_look`` prints them, or ends with 1.

Thousands of tests on a real control plane and two busy cores meet, now and then, a moment that the author of one did
not think of. That is a defect, of the test or of the product, and it is printed; but it says little about the change
that CI judges, which fails a second time if it is at fault. More than a few failures, or a run that did not come to its
end, are no such moment. One test with several parameters is one: what they share fails for all of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

MOST = 8
"""More failed tests than these are not asked again: fewer than one in a thousand are chance, more are a cause."""

_ENDED = "airunway/ended"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note how the run ended, beside the failed tests that pytest itself notes."""
    cache = getattr(session.config, "cache", None)  # not there with -p no:cacheprovider
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set(_ENDED, int(exitstatus))


def unsteady(cache: Path) -> list[str]:
    """The tests to ask again, by what pytest keeps in `cache` (its folder): none if a second look would say nothing."""
    failed = sorted(_read(cache / "v" / "cache" / "lastfailed") or ())
    ended = _read(cache / "v" / _ENDED)
    functions = {test.partition("[")[0] for test in failed}
    return failed if ended == pytest.ExitCode.TESTS_FAILED and len(functions) <= MOST else []


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def main() -> int:
    tests = unsteady(Path(".pytest_cache"))
    sys.stdout.writelines(f"{test}\n" for test in tests)
    return 0 if tests else 1


if __name__ == "__main__":
    sys.exit(main())
