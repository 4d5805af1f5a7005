"""The documentation's site: every page is there, the search finds it, and nothing is asked of another host."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tools.generated import ROOT
from tools.site import build
from tools.site.build import SiteError, build_site, sources

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Links(HTMLParser):
    """What a page fetches, and what it leads to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.led: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.fetched.append(found.get("src") or "")
        elif tag == "link":
            self.fetched.append(found.get("href") or "")
        elif tag == "a":
            self.led.append(found.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with two versions."""
    folder = tmp_path_factory.mktemp("site")
    build_site(folder, version="0.9.0")
    shutil.copytree(folder / "0.9.0", folder / "0.10.0")
    build_site(folder)
    return folder


def test_every_page_of_docs_is_there_and_reached_from_the_first(site: Path) -> None:
    pages = {path.with_suffix(".html") for path in sources()}
    assert {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")} <= pages
    assert {path.relative_to(site / "main") for path in (site / "main" / "docs").rglob("*.html")} <= pages
    reached, left = set[Path](), [site / "main" / "README.html"]
    while left:
        page = left.pop()
        reached.add(page)
        for link in Links(page).led:
            target = (page.parent / unquote(urlsplit(link).path)).resolve()
            local = not urlsplit(link).scheme and target.suffix == ".html"
            if local and target not in reached and target not in left:
                assert target.exists(), f"{page}: {link}"
                left.append(target)
    assert {site / "main" / page for page in pages} <= reached


def test_the_search_finds_pages_without_a_server(site: Path) -> None:
    text = (site / "main" / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(re.fullmatch(r"Search\.setIndex\((.*)\)\s*", text, re.DOTALL)[1])  # type: ignore[index]
    assert {str(path.with_suffix("")) for path in sources()} == set(found["docnames"])
    for word, page in (("proven", "docs/releases/verify"), ("modeldeploy", "docs/architecture")):
        hits = [found[part].get(word, []) for part in ("terms", "titleterms")]
        numbers = [number for each in hits for number in (each if isinstance(each, list) else [each])]
        assert page in [found["docnames"][number] for number in numbers]
    assert "searchindex.js" in (site / "main" / "search.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    for page in (site / "main").rglob("*.html"):
        for address in Links(page).fetched:
            assert not urlsplit(address).netloc, f"{page}: {address}"
    for sheet in (site / "main").rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_versions_are_listed_the_newest_release_first(site: Path) -> None:
    assert (site / "versions.js").read_text() == 'window.AIRUNWAY_VERSIONS = ["0.10.0", "0.9.0", "main"];\n'
    assert "url=0.10.0/README.html" in (site / "index.html").read_text()
    page = (site / "0.9.0" / "docs" / "install" / "README.html").read_text(encoding="utf-8")
    assert '<script src="../../../versions.js">' in page
    assert "<option selected>0.9.0</option>" in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gone](no-such-page.md)", "no-such-page.md"),
        ("[gone](selection.md#no-such-heading)", "no-such-heading"),
    ],
)
def test_a_link_that_leads_nowhere_stops_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# First\n\n[more](docs/selection.md)\n")
    (tmp_path / "docs" / "selection.md").write_text(f"# Selection\n\n{text}\n")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    with pytest.raises(SiteError, match=said):
        build_site(tmp_path / "site")
    (tmp_path / "docs" / "selection.md").write_text("# Selection\n")
    assert build_site(tmp_path / "site").exists()
