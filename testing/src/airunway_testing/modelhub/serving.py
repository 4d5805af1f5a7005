"""What the played hub and the played S3 share: contents, faults that a test switches on, the record of requests.

hub.inject(WrongByte(at=10), path="model.safetensors", times=1)
...
assert [request.status for request in hub.requests if request.path == "model.safetensors"] == [302, 200]
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from aiohttp import web

_BLOCK = 2**20
_CHUNK = 2**16
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")

Route: TypeAlias = Literal["revision", "tree", "resolve", "list", "head", "file"]
"""What a request asks for. ``file`` is a GET that gets bytes of a file, on either host; the others are metadata."""


# ---------------------------------------------------------------------------------------------------------- contents


@dataclass(frozen=True)
class Bytes:
    """A file of these bytes."""

    data: bytes

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.data)

    @cached_property
    def sha256(self) -> str:
        """Digest in hex."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def git_oid(self) -> str:
        """Name of the file as a blob of git."""
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data, usedforsecurity=False).hexdigest()

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to before `end`, in pieces."""
        for at in range(start, end, _CHUNK):
            yield self.data[at : min(at + _CHUNK, end)]


@dataclass(frozen=True)
class Pattern:
    """A large file that takes no memory: `size` bytes that follow from the `seed`, different in each MiB."""

    size: int
    seed: int = 0

    @cached_property
    def _block(self) -> bytes:
        return random.Random(self.seed).randbytes(_BLOCK)

    @cached_property
    def sha256(self) -> str:
        """Digest in hex; reads the file once."""
        return self._digest(hashlib.sha256())

    @cached_property
    def git_oid(self) -> str:
        """Name of the file as a blob of git; reads the file once."""
        return self._digest(hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False))

    def _digest(self, digest: hashlib._Hash) -> str:
        for piece in self.read(0, self.size):
            digest.update(piece)
        return digest.hexdigest()

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to before `end`, in pieces."""
        at = start
        while at < end:
            index, offset = divmod(at, _BLOCK)
            piece = (index.to_bytes(8, "big") + self._block[8:])[offset : offset + _CHUNK][: end - at]
            yield piece
            at += len(piece)


@dataclass(frozen=True)
class OnDisk:
    """A file of this machine. Without a fault the kernel sends it (sendfile): a benchmark's server costs little."""

    file: Path

    @cached_property
    def size(self) -> int:
        """Bytes of the file."""
        return self.file.stat().st_size

    @cached_property
    def sha256(self) -> str:
        """Digest in hex; reads the file once."""
        with self.file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    @cached_property
    def git_oid(self) -> str:
        """Name of the file as a blob of git; reads the file once."""
        digest = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        for piece in self.read(0, self.size):
            digest.update(piece)
        return digest.hexdigest()

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to before `end`, in pieces."""
        with self.file.open("rb") as opened:
            opened.seek(start)
            while start < end and (piece := opened.read(min(_CHUNK, end - start))):
                yield piece
                start += len(piece)


Content: TypeAlias = Bytes | Pattern | OnDisk


def content_of(data: bytes | str | Content) -> Content:
    """The content of a file that a test gives as bytes, as text or as a content."""
    match data:
        case bytes():
            return Bytes(data)
        case str():
            return Bytes(data.encode())
        case _:
            return data


# ------------------------------------------------------------------------------------------------------------ faults


@dataclass(frozen=True, kw_only=True)
class HttpError:
    """The request is answered with this status, and nothing else happens."""

    status: int
    retry_after: str = ""
    """Value of the header Retry-After: seconds or a date; empty: no such header."""
    code: str = ""
    """Error code, as the hub (X-Error-Code) or S3 (`Code` of the XML) names it."""
    message: str = "played fault"


@dataclass(frozen=True, kw_only=True)
class ErrorPage:
    """200 with a page of HTML in place of the answer, as proxies and captive portals send it."""

    text: str = "<!DOCTYPE html><html><body>Service temporarily unavailable</body></html>"


@dataclass(frozen=True, kw_only=True)
class Reset:
    """The connection is closed before any answer."""


@dataclass(frozen=True, kw_only=True)
class Slow:
    """The body comes at this speed."""

    bytes_per_second: int


@dataclass(frozen=True, kw_only=True)
class Stall:
    """After so many bytes of the body no more come, and the connection stays open."""

    after: int = 0


@dataclass(frozen=True, kw_only=True)
class Held:
    """The second half of the body comes once the event is set: for a test that looks at an unfinished download."""

    released: asyncio.Event


@dataclass(frozen=True, kw_only=True)
class CutBody:
    """The connection is closed after so many bytes of the body; Content-Length says more."""

    after: int


@dataclass(frozen=True, kw_only=True)
class ShortBody:
    """The last so many bytes of the file are missing, and Content-Length agrees with that."""

    missing: int


@dataclass(frozen=True, kw_only=True)
class WrongByte:
    """The byte at this offset of the file has its bits inverted."""

    at: int


@dataclass(frozen=True, kw_only=True)
class SwappedWith:
    """The body is that of another file of the same repository or bucket."""

    path: str


@dataclass(frozen=True, kw_only=True)
class LyingSize:
    """Metadata (listings, X-Linked-Size) say a size that is wrong by so many bytes."""

    by: int


@dataclass(frozen=True, kw_only=True)
class IgnoredRange:
    """The header Range is ignored: 200 and the whole file."""


Fault: TypeAlias = (
    HttpError
    | ErrorPage
    | Reset
    | Slow
    | Stall
    | Held
    | CutBody
    | ShortBody
    | WrongByte
    | SwappedWith
    | LyingSize
    | IgnoredRange
)

_ANSWERS = (HttpError, ErrorPage, Reset)


@dataclass
class _Switched:
    fault: Fault
    route: Route | None
    path: str | None
    left: int | None


class Faults:
    """The faults that are switched on; the first one that fits a request counts."""

    def __init__(self) -> None:
        self._switched: list[_Switched] = []

    def inject(
        self, fault: Fault, *, route: Route | None = "file", path: str | None = None, times: int | None = 1
    ) -> None:
        """Switch a fault on for `times` requests (None: until `clear`) of one route and file (None: of any)."""
        self._switched.append(_Switched(fault, route, path, times))

    def clear(self) -> None:
        """Switch all faults off."""
        self._switched.clear()

    def lie(self, path: str) -> int:
        """By how many bytes metadata of a file lie. Not counted: a listing names many files."""
        return sum(
            each.fault.by for each in self._switched if isinstance(each.fault, LyingSize) and each.path in (None, path)
        )

    def take(self, route: Route, path: str) -> Fault | None:
        """The fault that this request meets, and one use of it less."""
        for each in self._switched:
            fits = each.route in (None, route) and each.path in (None, path)
            if fits and not isinstance(each.fault, LyingSize) and (route == "file" or isinstance(each.fault, _ANSWERS)):
                if each.left is not None:
                    each.left -= 1
                    if each.left == 0:
                        self._switched.remove(each)
                return each.fault
        return None


# ---------------------------------------------------------------------------------------------------------- requests


@dataclass(kw_only=True)
class SeenRequest:
    """One request that reached a server."""

    host: Literal["hub", "cdn", "s3"]
    """Which server: the hub itself, the second host that has its large files, or S3."""
    route: Route
    method: str
    path: str
    """File or folder in the repository or bucket; empty: all of it."""
    target: str
    """Path and query as they were sent."""
    range: str
    """Header Range; empty: none."""
    authorized: bool
    """Whether the request had the header Authorization."""
    status: int = 0
    """Status of the answer; 0: none was sent."""
    sent: int = 0
    """Bytes of the body that were written to the connection."""


# ----------------------------------------------------------------------------------------------------------- answers


async def respond_with_fault(request: web.Request, seen: SeenRequest, fault: Fault | None) -> web.Response | None:
    """The answer that a fault gives in place of the real one; None where the fault is about bodies.

    `HttpError` is left to the servers, which differ in how they name errors.
    """
    match fault:
        case ErrorPage(text=text):
            seen.status = 200
            return web.Response(text=text, content_type="text/html")
        case Reset():
            return hang_up(request)
        case _:
            return None


def hang_up(request: web.Request) -> web.Response:
    """Close the connection; the response is what aiohttp asks for, and goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def respond_with_content(
    request: web.Request,
    seen: SeenRequest,
    content: Content,
    fault: Fault | None,
    *,
    headers: Mapping[str, str],
    swapped: Callable[[str], Content],
) -> web.StreamResponse:
    """Send a file, or the one range of it that was asked for, as the fault lets it be sent.

    `headers` has the ETag; `swapped` finds the other file of `SwappedWith`.
    """
    if isinstance(fault, SwappedWith):
        content = swapped(fault.path)
    size = content.size - fault.missing if isinstance(fault, ShortBody) else content.size
    span: tuple[int, int] | None = None
    wanted = "" if isinstance(fault, IgnoredRange) else seen.range
    if wanted and request.headers.get("If-Range", headers["ETag"]) == headers["ETag"]:
        span = _span(wanted, size)
        if span is None:
            seen.status = 416
            return web.Response(status=416, headers={"Content-Range": f"bytes */{size}"})
    start, end = span or (0, size)
    seen.status = 206 if span else 200
    response = web.StreamResponse(status=seen.status, headers={**headers, "Accept-Ranges": "bytes"})
    response.content_length = end - start
    if span:
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    if isinstance(content, OnDisk) and fault is None and request.transport is not None:
        with content.file.open("rb") as opened, suppress(ConnectionError):  # the client may leave
            try:
                await asyncio.get_running_loop().sendfile(request.transport, opened, start, end - start)
            finally:
                seen.sent += opened.tell() - start
            await response.write_eof()
        return response
    async for piece in _faulty(content, start, end, fault):
        if piece is None:
            if request.transport is not None:
                request.transport.close()
            return response
        await response.write(piece)
        seen.sent += len(piece)
    await response.write_eof()
    return response


def _span(header: str, size: int) -> tuple[int, int] | None:
    """The range that a header asks for, its end excluded; None where the file has nothing there."""
    found = _RANGE.fullmatch(header.strip())
    if found is None or found.groups() == ("", ""):
        return 0, size
    first, last = found.groups()
    if not first:
        return max(size - int(last), 0), size
    start, end = int(first), min(int(last) + 1, size) if last else size
    return (start, end) if start < end else None


async def _faulty(content: Content, start: int, end: int, fault: Fault | None) -> AsyncIterator[bytes | None]:
    """The pieces of a body; None closes the connection."""
    limit = fault.after if isinstance(fault, Stall | CutBody) else None
    at = start
    for piece in content.read(start, end):
        part = piece
        if isinstance(fault, WrongByte) and at <= fault.at < at + len(part):
            spot = fault.at - at
            part = part[:spot] + bytes([part[spot] ^ 0xFF]) + part[spot + 1 :]
        if limit is not None and at - start + len(part) > limit:
            yield part[: limit - (at - start)]
            if isinstance(fault, Stall):
                await asyncio.Event().wait()  # until the client leaves, or the server ends
            yield None
            return
        if isinstance(fault, Held):
            yield part[: len(part) // 2]
            await fault.released.wait()
            yield part[len(part) // 2 :]
        elif isinstance(fault, Slow):
            for spot in range(0, len(part), step := max(fault.bytes_per_second // 20, 1)):
                yield part[spot : spot + step]
                await asyncio.sleep(min(step, len(part) - spot) / fault.bytes_per_second)
        else:
            yield part
        at += len(part)


@asynccontextmanager
async def listening(
    handlers: Sequence[web.Application], *, host: str, ports: Sequence[int]
) -> AsyncIterator[list[int]]:
    """Serve each application on a port of its own while the context lasts (0: any free one); gives the ports."""
    runners: list[web.AppRunner] = []
    found: list[int] = []
    try:
        for app, port in zip(handlers, ports, strict=True):
            # A handler ends when its client leaves: a stalled one would hold the server's end up.
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, host, port, reuse_address=True).start()
            found.append(int(runner.addresses[0][1]))
        yield found
    finally:
        for runner in runners:
            await runner.cleanup()


@dataclass(kw_only=True)
class Recorder:
    """What each played server has: faults and the record of requests."""

    requests: list[SeenRequest] = field(default_factory=list)
    """Every request, in the order in which they came."""
    faults: Faults = field(default_factory=Faults)

    def inject(
        self, fault: Fault, *, route: Route | None = "file", path: str | None = None, times: int | None = 1
    ) -> None:
        """Switch a fault on for `times` requests (None: until `clear_faults`) of one route and file (None: of any)."""
        self.faults.inject(fault, route=route, path=path, times=times)

    def clear_faults(self) -> None:
        """Switch all faults off."""
        self.faults.clear()

    def bytes_sent(self, path: str | None = None) -> int:
        """Bytes of files that were written to connections, of one file or of all."""
        return sum(each.sent for each in self.requests if each.route == "file" and path in (None, each.path))
