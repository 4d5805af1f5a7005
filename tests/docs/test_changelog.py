"""What users notice is in the changelog, whatever else is in a fragment's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.changelog import FRAGMENTS, WRITTEN, ChangelogError, changelog

NAMES = ("12.added.md", "12.added.10.md", "18.fixed.guards.md", "18.fixed.release.md", "18.security.md", "9.removed.md")


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_fragment_is_in_it() -> None:
    changes = words(changelog("1.0", "2026-01-31"))
    fragments = sorted(FRAGMENTS.glob("*.md"))
    assert "No significant changes" not in changes or not fragments
    assert [path.name for path in fragments if words(path.read_text()) not in changes] == []


def test_a_section_that_is_written_by_hand_stands_as_it_is() -> None:
    section = changelog("0.1.0", "2026-01-31")
    heading, _, text = section.partition("\n")
    assert heading == "## 0.1.0 (2026-01-31)"
    assert text.strip() in WRITTEN.read_text(encoding="utf-8")
    assert len(words(section).split()) <= 400


def test_fragments_of_one_issue_and_kind_all_count(tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_text(f"Thing {number}.\n")
    changes = changelog("1.0", "2026-01-31", fragments=tmp_path)
    assert changes.startswith("## 1.0 (2026-01-31)")
    for number, name in enumerate(NAMES):
        issue, kind = name.split(".")[:2]
        section = changes.partition(f"### {kind.title()}")[2].partition("###")[0]
        assert f"- Thing {number}. (#{issue})" in section, name


def test_a_kind_that_there_is_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "12.fix.md").write_text("Thing.\n")
    with pytest.raises(ChangelogError, match=r"12.fix.md is of no kind .* ISSUE.security\|added\|changed"):
        changelog("1.0", "2026-01-31", fragments=tmp_path)
