"""Parts of other writers: taken over, copied or left alone; nothing that a dead or slow one does reaches a tree."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

import pytest

from airunway_downloader.files import RemoteFile
from airunway_downloader.tree import Tree

DATA = bytes(range(256)) * 40
FILE = RemoteFile(path="model.safetensors", size=len(DATA), sha256=hashlib.sha256(DATA).hexdigest())


def tree(root: Path, *, node: str, writer: str) -> Tree:
    return Tree(root, node=node, writer=writer, goes_on=lambda: None)


def begun(root: Path, size: int, *, node: str = "node-a") -> Path:
    """The part that a writer left when it died."""
    one = tree(root, node=node, writer="dead")
    one.prepare([FILE])
    with one.part(FILE) as part:
        one.write(part, DATA[:size], FILE.size)
        return part.path


@pytest.mark.parametrize("node", ["node-a", "node-b"])
def test_a_dead_writers_part_goes_on(tmp_path: Path, node: str) -> None:
    left = begun(tmp_path, 1000)
    two = tree(tmp_path, node=node, writer="second")
    with two.part(FILE) as part:
        assert part.offset == 1000
        assert not left.exists()
        two.write(part, DATA[1000:], FILE.size)
        assert part.mismatch() == ""
        two.place(part, FILE.size)
    assert (tmp_path / "model/model.safetensors").read_bytes() == DATA


def test_a_part_of_another_node_is_copied(tmp_path: Path) -> None:
    """Its writer may only have been cut off, and goes on writing into what it has open."""
    left = begun(tmp_path, 1000)
    with left.open("r+b") as zombie:
        two = tree(tmp_path, node="node-b", writer="second")
        with two.part(FILE) as part:
            zombie.write(b"X" * 2000)
            zombie.flush()
            two.write(part, DATA[1000:], FILE.size)
            two.place(part, FILE.size)
    assert (tmp_path / "model/model.safetensors").read_bytes() == DATA


def test_a_part_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    left = begun(tmp_path, 1000)
    with left.open("r+b") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        with tree(tmp_path, node="node-a", writer="second").part(FILE) as part:
            assert part.offset == 0
            assert part.path != left
        assert left.stat().st_size == 1000


def test_a_part_that_is_too_long_begins_anew(tmp_path: Path) -> None:
    left = begun(tmp_path, 1000)
    left.write_bytes(DATA + b"more")
    with tree(tmp_path, node="node-a", writer="second").part(FILE) as part:
        assert part.offset == 0


def test_the_largest_part_is_taken_and_the_others_go(tmp_path: Path) -> None:
    begun(tmp_path, 1000)
    longer = begun(tmp_path, 10).with_name("x")
    longer.write_bytes(DATA[:3000])
    os.rename(longer, longer.with_name(f"{_key(tmp_path)}.node-a.third"))
    with tree(tmp_path, node="node-a", writer="second").part(FILE) as part:
        assert part.offset == 3000
        assert [path.name for path in part.path.parent.iterdir()] == [part.path.name]


def _key(root: Path) -> str:
    (path,) = (root / ".airunway/parts").glob("*.node-a.dead")
    return path.name.partition(".")[0]


def test_parts_of_other_files_go_unless_their_writer_lives(tmp_path: Path) -> None:
    left = begun(tmp_path, 1000)
    other = RemoteFile(path="other", size=1, sha256="0" * 64)
    with left.open("r+b") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        tree(tmp_path, node="node-a", writer="second").prepare([other])
        assert left.exists()
    tree(tmp_path, node="node-a", writer="second").prepare([other])
    assert not left.exists()


def test_a_link_in_the_place_of_a_part_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    root = tmp_path / "claim"
    root.mkdir()
    left = begun(root, 1000)
    left.unlink()
    left.symlink_to(outside)
    with tree(root, node="node-a", writer="second").part(FILE) as part:
        assert part.offset == 0
    with tree(root, node="node-a", writer="dead").part(FILE) as part:
        assert not part.path.is_symlink()
    assert outside.read_text() == "mine"


def test_a_marker_that_is_damaged_counts_for_nothing(tmp_path: Path) -> None:
    one = tree(tmp_path, node="node-a", writer="first")
    one.prepare([FILE])
    with one.part(FILE) as part:
        one.write(part, DATA, FILE.size)
        placed = one.place(part, FILE.size)
    one.mark(["request"], [placed], revision="", bytes=FILE.size)
    marker = tmp_path / ".airunway/complete.json"
    good = marker.read_text()
    assert one.complete("request") is not None
    assert one.complete("another") is None
    for text in ("", "{", "[]", good.replace(FILE.sha256, "0" * 64), good.replace('"requests"', '"r"'), "null"):
        marker.write_text(text)
        assert one.complete("request") is None
    marker.write_text(good)
    os.truncate(tmp_path / "model/model.safetensors", 5)
    assert one.complete("request") is None
