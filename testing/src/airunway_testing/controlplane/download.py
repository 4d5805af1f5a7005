"""The projects' published programs, each checked against its published checksum.

A file whose checksum is recorded in sums.txt has to be that one, too: who can exchange a published program can exchange
what is published beside it.

A mirror (AIRUNWAY_RELEASE_MIRROR) has the same files under the same addresses, with the host as the first part of the
path: ``<mirror>/dl.k8s.io/v1.36.3/bin/linux/amd64/kube-apiserver``.
"""

import hashlib
import http.client
import io
import json
import os
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from airunway_testing.controlplane.errors import ChecksumMismatchError, DownloadFailedError
from airunway_testing.controlplane.progress import Meter, Report
from airunway_testing.controlplane.versions import (
    ETCD_VERSION,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    Component,
    go_platform,
)

_RECORDED = Path(__file__).with_name("sums.txt")

_PATIENCE_FOR_FIRST_ANSWER = 3.0
_PATIENCE_FOR_MORE = 30.0
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Release:
    """A published file.

    address:   where it is, without "https://".
    checksum:  where its SHA-256 is published.
    form:      what is there: the bare sum, a list in the form of sha256sum, or GitHub's description of the release.
    member:    which file of the archive is the program; "" when the file is the program.
    """

    address: str
    checksum: str
    form: Literal["bare", "list", "github"]
    member: str = ""


def release_of(component: Component) -> Release:
    """Where a component is published for this kind of machine."""
    system, architecture = go_platform()
    match component:
        case "etcd":
            folder = f"github.com/etcd-io/etcd/releases/download/{ETCD_VERSION}"
            name = f"etcd-{ETCD_VERSION}-{system}-{architecture}"
            return Release(
                address=f"{folder}/{name}.tar.gz", checksum=f"{folder}/SHA256SUMS", form="list", member=f"{name}/etcd"
            )
        case "kwok":
            # KWOK publishes no file of checksums; GitHub itself publishes a digest of every file of a release.
            repository = "kubernetes-sigs/kwok"
            return Release(
                address=f"github.com/{repository}/releases/download/{KWOK_VERSION}/kwok-{system}-{architecture}",
                checksum=f"api.github.com/repos/{repository}/releases/tags/{KWOK_VERSION}",
                form="github",
            )
        case _:
            address = f"dl.k8s.io/{KUBERNETES_VERSION}/bin/{system}/{architecture}/{component}"
            return Release(address=address, checksum=f"{address}.sha256", form="bare")


def recorded_sum(address: str, table: Path = _RECORDED) -> str:
    """The SHA-256 that we have recorded of what is at an address, or the empty string."""
    lines = [line.split() for line in table.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return next((line[0].lower() for line in lines if len(line) == 2 and line[1] == address), "")


def download(component: Component, target: Path, *, mirror: str = "", report: Report, table: Path = _RECORDED) -> None:
    """Fetch a component to `target` (which appears whole and checked, or not at all).

    Raises DownloadFailedError when it cannot be had, within seconds when the host is not reachable, and
    ChecksumMismatchError when what came is not what was published, or not what was recorded.
    """
    release = release_of(component)
    base = mirror.rstrip("/") if mirror else "https:/"
    published = _published_checksum(release, _fetch(f"{base}/{release.checksum}"))
    url = f"{base}/{release.address}"
    with Meter(f"downloading {component}", unit="MB", report=report) as meter:
        content = _fetch(url, show=lambda done, of: meter.show(done >> 20, of=of >> 20))
    actual = hashlib.sha256(content).hexdigest()
    if actual != published:
        raise ChecksumMismatchError(
            f"{url} is not the published file: its SHA-256 is {actual}, published is {published} "
            f"({base}/{release.checksum}). Nothing was kept. Check the mirror or proxy in between"
        )
    recorded = recorded_sum(release.address, table)
    if recorded and actual != recorded:
        raise ChecksumMismatchError(
            f"{url} is another file than the one that was recorded: its SHA-256 is {actual}, recorded is {recorded} "
            f"({table.name}), and the new one is published beside it. Nothing was kept. Find out why it was exchanged"
        )
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_bytes(_program(release, content, url))
    partial.chmod(0o755)
    partial.replace(target)


def _published_checksum(release: Release, content: bytes) -> str:
    text = content.decode(errors="replace")
    name = release.address.rsplit("/", 1)[1]
    found = ""
    match release.form:
        case "bare":
            found = text.strip().split(maxsplit=1)[0] if text.strip() else ""
        case "list":
            lines = [line.split() for line in text.splitlines()]
            found = next((line[0] for line in lines if len(line) == 2 and line[1].lstrip("*") == name), "")
        case "github":
            try:
                assets = json.loads(text)["assets"]
                found = next((asset.get("digest") or "" for asset in assets if asset["name"] == name), "")
            except (ValueError, KeyError, TypeError) as error:
                raise DownloadFailedError(
                    f"https://{release.checksum} does not describe a release: {error!r}"
                ) from error
            found = found.removeprefix("sha256:")
    found = found.lower()
    if len(found) != 64 or set(found) - set("0123456789abcdef"):
        raise DownloadFailedError(
            f"https://{release.checksum} has no SHA-256 for {name}: not fetched, as it could not be checked"
        )
    return found


def _program(release: Release, content: bytes, url: str) -> bytes:
    if not release.member:
        return content
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            file = archive.extractfile(release.member)
            if file is not None:
                return file.read()
    except (KeyError, tarfile.TarError) as error:
        raise DownloadFailedError(f"{url}: cannot read {release.member} from it: {error}") from error
    raise DownloadFailedError(f"{url}: {release.member} in it is not a file")


def _fetch(url: str, *, show: Callable[[int, int], None] = lambda done, of: None) -> bytes:
    response = _first_answer(url)
    try:
        with response:
            total = int(response.headers.get("Content-Length") or 0)
            content = bytearray()
            while chunk := response.read(_CHUNK):
                content += chunk
                show(len(content), total)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadFailedError(f"{url}: broke off: {error}") from error
    if total and len(content) != total:
        raise DownloadFailedError(f"{url}: broke off after {len(content)} of {total} bytes")
    return bytes(content)


def _first_answer(url: str) -> http.client.HTTPResponse:
    # A name server that does not answer holds up the resolver for as long as it likes, whatever the timeout: so wait
    # for it elsewhere.
    box: list[http.client.HTTPResponse | Exception] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "airunway"})
            box.append(urllib.request.urlopen(request, timeout=_PATIENCE_FOR_MORE))
        except (OSError, http.client.HTTPException, ValueError) as error:
            box.append(error)

    thread = threading.Thread(target=ask, daemon=True, name=f"fetch {url}")
    thread.start()
    thread.join(_PATIENCE_FOR_FIRST_ANSWER)
    if not box:
        raise DownloadFailedError(f"{url}: no answer within {_PATIENCE_FOR_FIRST_ANSWER:.0f} s")
    answer = box[0]
    if isinstance(answer, urllib.error.HTTPError):
        answer.close()
        raise DownloadFailedError(f"{url}: HTTP {answer.code} {answer.reason}")
    if isinstance(answer, urllib.error.URLError):
        raise DownloadFailedError(f"{url}: not reachable ({answer.reason})") from answer
    if isinstance(answer, Exception):
        raise DownloadFailedError(f"{url}: {answer}") from answer
    return answer
