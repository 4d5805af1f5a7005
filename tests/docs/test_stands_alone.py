"""The repository stands alone: no text of it cites a document that a stranger does not have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

ELSEWHERE = re.compile(
    r"\b[Rr]ulings? \d|\bseed 00\d|\b00[0-4] §"
    r"|\bspec/(?:api|core|paths|platform|platform-cases|providers|quality|status)\.md"
)
"""How the documents of before this repository are cited."""

WITH_RECORDINGS = {"core/tests/configs/test_path_template.py"}
"""Tests that compare with a page kept beside the checkout, and skip without it."""


def test_no_text_cites_a_document_that_is_not_in_the_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.yaml", "*.tpl", "*.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    citing = [
        f"{name}:{number}: {line.strip()}"
        for name in listed.stdout.split()
        if name not in WITH_RECORDINGS and (ROOT / name).is_file() and Path(name) != Path(__file__).relative_to(ROOT)
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert citing == []
