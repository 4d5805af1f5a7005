"""The download of a list of files: several at a time, resumed, verified, tried again, and marked at the end."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from airunway_downloader.client import Response, ShortBodyError
from airunway_downloader.failures import Failure, SourceChanged, Stopped
from airunway_downloader.files import Filters, Listing, RemoteFile, Uri
from airunway_downloader.progress import Progress, leave_signals_to_main
from airunway_downloader.sources import Source
from airunway_downloader.tree import Part, Placed, Tree

PARALLEL = 4
"""Files at a time."""
_TRIES = 3
_ENOUGH = 1 << 20
"""Bytes after which an interrupted transfer counts as one that works."""
_SHORT_WAIT_S = 5.0
"""A longer Retry-After is left to the controller, which says on the object why it waits."""
_LEAVE_S = 2.0
"""Seconds that threads have to end after one failed."""
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")

_T = TypeVar("_T")


class _WrongBody(Exception):
    """An answer that cannot be the file."""


class Stop:
    """Set once to end all threads of a download."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask all threads to end."""
        self._event.set()

    def check(self) -> None:
        """Raises Stopped if the threads are asked to end."""
        if self._event.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait. Raises Stopped."""
        if self._event.wait(seconds):
            raise Stopped


@dataclass(frozen=True, kw_only=True)
class Result:
    """A complete, verified tree."""

    bytes: int
    files: int
    revision: str
    digest: str


def request_key(uri: Uri, revision: str, filters: Filters) -> str:
    """What a marker is bound to."""
    asked = [str(uri), revision, sorted(set(filters.include)), sorted(set(filters.exclude))]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def patiently(ask: Callable[[], _T], stop: Stop) -> _T:
    """The answer of a request, asked again where the server asks to wait a few seconds only. Raises Failure."""
    for _ in range(_TRIES - 1):
        try:
            return ask()
        except Failure as failure:
            if failure.permanent or failure.retry_after is None or failure.retry_after > _SHORT_WAIT_S:
                raise
            stop.pause(failure.retry_after)
    return ask()


class Download:
    """Fetches what a source lists into a tree."""

    def __init__(self, source: Source, tree: Tree, *, progress: Progress, stop: Stop, stall: float) -> None:
        self._source, self._tree, self._progress, self._stop, self._stall = source, tree, progress, stop, stall
        self._total = 0

    def run(self, requests: Callable[[str], list[str]]) -> Result:
        """Fetch everything; `requests` gives what the marker is bound to for the revision found. Raises Failure."""
        for _ in range(_TRIES):
            self._progress.enter("Listing")
            listing = patiently(self._source.listing, self._stop)
            try:
                placed = self._fetch_all(listing)
                if patiently(lambda found=listing: self._source.unchanged(found), self._stop):  # type: ignore[misc]
                    break
                changed = "files of the source changed while they were fetched"
            except SourceChanged as failure:
                changed = failure.message
            sys.stderr.write(f"{changed}: listing them again\n")
        else:
            raise Failure("VerificationFailed", f"{changed}, {_TRIES} times")
        digest = self._tree.mark(requests(listing.revision), placed, revision=listing.revision, bytes=listing.size)
        self._progress.enter("Done")
        return Result(bytes=listing.size, files=len(placed), revision=listing.revision, digest=digest)

    def _fetch_all(self, listing: Listing) -> list[Placed]:
        self._total = listing.size
        self._progress.expect(listing.size)
        self._progress.enter("Verifying")
        self._tree.prepare(listing.files)
        self._tree.check_space(listing.files)
        self._progress.enter("Downloading")
        # The largest first: the end is not one long file alone.
        files = sorted(listing.files, key=lambda each: -each.size)
        stop = self._stop
        pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="fetch", initializer=leave_signals_to_main)
        futures = [pool.submit(self._fetch, file) for file in files]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, SourceChanged):  # the others go on to the end of their file
                wait(futures)
            else:
                stop.set()
                wait(futures, timeout=_LEAVE_S)
            raise
        pool.shutdown()
        return [future.result() for future in futures]

    def _fetch(self, file: RemoteFile) -> Placed:
        """One file, finished and verified. Raises Failure, Stopped."""
        self._stop.check()
        file = patiently(lambda: self._source.described(file), self._stop)
        if sha256 := self._tree.present(file):
            self._progress.found(file.size)
            return Placed(path=file.path, size=file.size, sha256=sha256)
        with self._tree.part(file) as part:
            self._progress.found(part.offset)
            wrong = 0
            while True:
                self._complete(part)
                self._stop.check()
                problem = part.mismatch()
                if not problem:
                    return self._tree.place(part, self._total)
                wrong += 1
                self._begin_anew(part)
                if wrong == _TRIES:
                    raise _wrong(file, problem)
                sys.stderr.write(f"{file.path}: {problem}; fetching it again\n")

    def _complete(self, part: Part) -> None:
        """Receive until the part has all its bytes, whatever they are. Raises Failure, Stopped."""
        failed = 0
        while part.offset < part.file.size:
            before = part.offset
            try:
                self._receive(part)
            except (_WrongBody, ShortBodyError) as error:
                problem = str(error) or f"the body ended after {part.offset} of {part.file.size} bytes"
                failure = _wrong(part.file, problem)
                if isinstance(error, _WrongBody):
                    self._begin_anew(part)
            except Failure as raised:
                failure = raised
                if failure.permanent or (failure.retry_after or 0) > _SHORT_WAIT_S:
                    raise
                if failure.reason == "Timeout" and self._progress.idle_seconds() >= self._stall:
                    raise
            else:
                continue
            failed = 0 if part.offset - before >= _ENOUGH else failed + 1
            if failed == _TRIES:
                raise failure
            sys.stderr.write(f"{part.file.path} at byte {part.offset}: {failure.message}; trying again\n")
            self._stop.pause(failure.retry_after if failure.retry_after is not None else 0.2 * failed)

    def _receive(self, part: Part) -> None:
        """One request for what a part lacks. Raises Failure, _WrongBody, ShortBodyError, Stopped."""
        with self._source.open(part.file, offset=part.offset) as response:
            if problem := _wrong_range(response, part):
                raise _WrongBody(problem)
            if response.status == 200:
                self._begin_anew(part)  # a server that knows no ranges
            for chunk in response.chunks():
                self._stop.check()
                if part.offset + len(chunk) > part.file.size:
                    raise _WrongBody(f"the body has more than {part.file.size} bytes")
                self._tree.write(part, chunk, self._total)
                self._progress.received(len(chunk))
            if part.offset < part.file.size:
                raise ShortBodyError

    def _begin_anew(self, part: Part) -> None:
        self._progress.found(-part.offset)
        part.restart()


def _wrong(file: RemoteFile, problem: str) -> Failure:
    return Failure(
        "VerificationFailed", f"{file.path} is not what the source states, after {_TRIES} attempts: {problem}"
    )


def _wrong_range(response: Response, part: Part) -> str:
    """Why an answer is not what was asked for, or the empty string."""
    size, offset, headers = part.file.size, part.offset, response.headers
    if headers.get("Content-Encoding", "identity") != "identity":
        return f"the body is compressed ({headers['Content-Encoding'][:20]})"
    length = headers.get("Content-Length", "")
    if response.status == 200:
        return f"the body has {length} bytes, not {size}" if length and length != str(size) else ""
    if response.status == 416:
        return f"the file has no byte {offset}"
    found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    if found is None or int(found[1]) != offset:
        return "the answer is another range than was asked for"
    return f"the file has {found[2]} bytes, not {size}" if found[2] not in ("*", str(size)) else ""
