"""Whatever the documents point to is there: files, links, headings, rooms."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

import airunway

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
SOURCES = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if ".venv" not in path.parts]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as renderers name them in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    found = re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", page.read_text(encoding="utf-8"))
    assert [name for name in found if not any(f"/{path}".endswith(f"/{name}") for path in SOURCES)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8"))
    for target, anchor in links:
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(there), f"{there.name} has no heading #{anchor}"


def test_every_room_is_described_and_every_described_room_is_there() -> None:
    described = re.findall(r"^``(\w+)``", airunway.__doc__ or "", re.MULTILINE)
    rooms = [module.name for module in pkgutil.iter_modules(airunway.__path__) if module.ispkg]
    assert sorted(described) == sorted([*rooms, "resource"])


def test_the_rooms_are_described_in_the_order_of_their_imports() -> None:
    described = re.findall(r"^``(\w+)``", airunway.__doc__ or "", re.MULTILINE)
    contract = (
        (ROOT / ".importlinter").read_text(encoding="utf-8").partition("layers =\n")[2].partition("\nexhaustive")[0]
    )
    layers = [re.findall(r"\w+", line) for line in contract.splitlines()]
    height = {room: -position for position, layer in enumerate(layers) for room in layer}
    assert [height[room] for room in described] == sorted(height[room] for room in described)
