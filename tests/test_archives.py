"""Archives are unpacked into their folder, with filters of Python and without."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from tools.archives import unpack


@pytest.fixture(params=["filters", "none"], autouse=True)
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "none":  # before 3.11.4
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


def archive_of(name: str, *, link: str = "") -> tarfile.TarFile:
    buffer, member = io.BytesIO(), tarfile.TarInfo(name)
    if link:
        member.type, member.linkname = tarfile.SYMTYPE, link
    member.size = 0 if link else 2
    with tarfile.open(fileobj=buffer, mode="w") as made:
        made.addfile(member, io.BytesIO(b"hi"))
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


def test_files_and_folders_are_unpacked(tmp_path: Path) -> None:
    with archive_of("a/b") as archive:
        unpack(archive, tmp_path / "new")
    assert (tmp_path / "new/a/b").read_text() == "hi"


def test_a_link_inside_of_the_folder_is_unpacked(tmp_path: Path) -> None:
    with archive_of("a/b/c", link="../d") as archive:
        unpack(archive, tmp_path / "new")
    assert (tmp_path / "new/a/b/c").readlink() == Path("../d")


@pytest.mark.parametrize(("name", "link"), [("../out", ""), ("a/../../out", ""), ("in", "../out"), ("in", "/etc")])
def test_nothing_lands_or_leads_outside(tmp_path: Path, name: str, link: str) -> None:
    with archive_of(name, link=link) as archive, pytest.raises(tarfile.TarError):
        unpack(archive, tmp_path / "new")
    assert not (tmp_path / "out").exists()
