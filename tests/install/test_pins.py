"""What is fetched to build is pinned: Debian's packages, uv; and one place says where the project is at home."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tools.generated import ROOT, stale
from tools.home import generated, home, is_public, links
from tools.images.architectures import ARCHITECTURES
from tools.images.base import DESCRIPTION, Package, sources
from tools.images.lock import LOCK, locked_text, moved


@pytest.fixture
def packages(tmp_path: Path) -> list[Package]:
    found = []
    for name in ("libc6", "zlib1g"):
        path = tmp_path / f"{name}.deb"
        path.write_text(name)
        found.append(Package(name=name, version="1.0-1", architecture="arm64", control="", path=path))
    return found


@pytest.fixture
def lock(tmp_path: Path, packages: list[Package]) -> Path:
    path = tmp_path / "base.lock.yaml"
    path.write_text(locked_text({"arm64": packages}, snapshot="20260102T030405Z"))
    return path


def test_the_packages_of_the_lock_have_not_moved(lock: Path, packages: list[Package]) -> None:
    assert moved(packages, "arm64", lock) == []


def test_a_package_that_moved_is_named_with_both_versions(lock: Path, packages: list[Package]) -> None:
    newer = [packages[0], replace(packages[1], version="1.0-2")]
    assert moved(newer, "arm64", lock) == ["zlib1g (arm64): Debian has 1.0-2, base.lock.yaml 1.0-1"]


def test_an_exchanged_file_of_the_same_version_is_named(lock: Path, packages: list[Package]) -> None:
    packages[0].path.write_text("other")
    digest = hashlib.sha256(b"other").hexdigest()
    (line,) = moved(packages, "arm64", lock)
    assert line == (f"libc6 (arm64): the file of 1.0-1 is another one than in base.lock.yaml: its sha256 is {digest}")


def test_a_package_that_comes_or_goes_is_named(lock: Path, packages: list[Package]) -> None:
    assert moved(packages[:1], "arm64", lock) == ["zlib1g (arm64): is in base.lock.yaml and not in the image"]
    another = replace(packages[0], name="libnew")
    assert moved([*packages, another], "arm64", lock) == ["libnew (arm64): is not in base.lock.yaml"]


def test_the_lock_is_of_what_images_are_made_of() -> None:
    known = yaml.load(LOCK.read_text(), Loader=yaml.CSafeLoader)
    description = yaml.load(DESCRIPTION.read_text(), Loader=yaml.CSafeLoader)
    assert known["suite"] == description["suite"]
    assert re.fullmatch(r"\d{8}T\d{6}Z", known["snapshot"])
    assert set(known["packages"]) == set(ARCHITECTURES)
    for packages in known["packages"].values():
        assert set(packages) == set(description["packages"])
        assert all(re.fullmatch(r"[0-9a-f]{64}", entry["sha256"]) for entry in packages.values())


def test_an_archive_of_a_day_has_security_updates_elsewhere() -> None:
    first, second = sources("trixie", "http://snapshot.debian.org/archive/debian/20260102T030405Z")
    assert "http://snapshot.debian.org/archive/debian/20260102T030405Z trixie main" in first
    assert "http://snapshot.debian.org/archive/debian-security/20260102T030405Z trixie-security main" in second
    assert "check-valid-until=no" in first
    plain = sources("trixie", "http://deb.debian.org/debian/")
    assert plain[1].endswith(" http://deb.debian.org/debian-security trixie-security main")
    assert not any("check-valid-until" in line for line in plain)


def test_the_uv_of_the_makefile_is_that_of_the_lock() -> None:
    pinned = (ROOT / "tools" / "uv.txt").read_text()
    block = re.search(r'name = "uv"\nversion = "(.*?)"\n(.*?)\n\n', (ROOT / "uv.lock").read_text(), re.DOTALL)
    assert block is not None
    assert f"uv=={block[1]} " in pinned
    assert set(re.findall(r"sha256:\w+", pinned)) == set(re.findall(r"sha256:\w+", block[2]))
    assert "--require-hashes -r tools/uv.txt" in (ROOT / "Makefile").read_text()


def test_home_is_said_in_one_place() -> None:
    assert stale(generated()) == [], "run `make generate`"
    assert len(generated()) >= 12
    assert all(address.startswith(home()) for address in links().values())
    assert is_public() == (not home().endswith(".example"))
