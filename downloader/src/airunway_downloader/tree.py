"""The folder that a download fills: verified files in ``model/``, everything else of ours in ``.airunway/``.

    model/config.json                       complete and verified, by an atomic rename
    .airunway/parts/<file>.<node>.<writer>  what one writer has of one file so far
    .airunway/verified/<file>               SHA-256 of a finished file, where the source states no digest
    .airunway/complete.json                 the marker: the whole tree is there; written last
    .airunway/claim                         uid of the claim of which all of this is

No two writers ever share a file. A writer holds a lock (flock) on each of its parts, so that a later one can see that
it is dead, and then takes its parts over. A part of another node is copied and not taken: some shared file systems keep
locks within a node, and the writer there may only have been cut off.

A volume may come with what another claim's users left on it, and a marker can be copied. So the folder and the marker
name the uid of their claim, and what names another one is removed, not believed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from airunway_downloader.failures import Failure
from airunway_downloader.files import RemoteFile

_BLOCK = 1 << 20
_LEAST = 1 << 30
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_HEADROOM = 1.1
"""What file systems need besides the files, as a factor."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_Lock: TypeAlias = Literal["ours", "held", "unsupported"]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """One verified file of the tree."""

    path: str
    size: int
    sha256: str


def digest_of(files: Iterable[Placed]) -> str:
    """The digest of a tree: SHA-256 over the sorted lines ``path NUL size NUL sha256``."""
    lines = sorted(f"{each.path}\0{each.size}\0{each.sha256}\n".encode() for each in files)
    return f"sha256:{hashlib.sha256(b''.join(lines)).hexdigest()}"


def node_identity() -> str:
    """Names this boot of this node: locks of processes with the same name are reliable on every file system."""
    try:
        return hashlib.sha256(_BOOT_ID.read_bytes()).hexdigest()[:12]
    except OSError:  # then parts of other processes are copied
        return os.urandom(6).hex()


class _Hashes:
    """The digests of one file while it grows."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._git = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False) if file.git_sha1 else None
        self._sha1 = hashlib.sha1(usedforsecurity=False) if file.sha1 else None
        self._crc32 = 0

    def update(self, data: bytes | memoryview) -> None:
        self._sha256.update(data)
        if self._git is not None:
            self._git.update(data)
        if self._sha1 is not None:
            self._sha1.update(data)
        if self._file.crc32:
            self._crc32 = zlib.crc32(data, self._crc32)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def mismatch(self) -> str:
        """Which digest is not the source's, or the empty string."""
        for name, stated, found in (
            ("SHA-256", self._file.sha256, self.sha256),
            ("git SHA-1", self._file.git_sha1, self._git.hexdigest() if self._git else ""),
            ("SHA-1", self._file.sha1, self._sha1.hexdigest() if self._sha1 else ""),
            ("CRC-32", self._file.crc32, f"{self._crc32:08x}"),
        ):
            if stated and stated != found:
                return f"{name} is {found}, not {stated}"
        return ""


@dataclass(kw_only=True)
class Part:
    """What this process has of one file; written by one thread."""

    file: RemoteFile
    path: Path
    descriptor: int
    offset: int = 0
    """Bytes that are there and hashed."""
    _hashes: _Hashes = field(init=False)

    def __post_init__(self) -> None:
        self._hashes = _Hashes(self.file)

    def write(self, data: bytes) -> None:
        """Append. Raises OSError."""
        self._hashes.update(data)
        view = memoryview(data)
        while view:
            written = os.pwrite(self.descriptor, view, self.offset)
            self.offset += written
            view = view[written:]

    def restart(self) -> None:
        """Begin the file anew."""
        os.ftruncate(self.descriptor, 0)
        self.offset = 0
        self._hashes = _Hashes(self.file)

    def hash_existing(self, size: int, goes_on: Callable[[], None]) -> None:
        """Read the first `size` bytes, which are there, once."""
        for block in _blocks(self.descriptor, size, goes_on):
            self._hashes.update(block)
            self.offset += len(block)

    def mismatch(self) -> str:
        """Why the file is not the one of the source, or the empty string."""
        if self.offset != self.file.size:
            return f"it has {self.offset} bytes, not {self.file.size}"
        return self._hashes.mismatch()

    @property
    def sha256(self) -> str:
        """Digest of what is there."""
        return self._hashes.sha256


class Tree:
    """The folder of one claim, for one writer. Raises OSError where the file system fails, Failure where it is full."""

    def __init__(self, root: Path, *, node: str, writer: str, goes_on: Callable[[], None], claim: str = "") -> None:
        """`node` and `writer` name this process; `goes_on` is asked while files are read, and raises to stop. `claim`
        is the uid of the claim that is mounted at `root`; empty for a folder that is none.
        """
        self._model, self._own = root / "model", root / ".airunway"
        self._parts, self._verified = self._own / "parts", self._own / "verified"
        self._marker = self._own / "complete.json"
        self._root, self._node, self._writer, self._goes_on, self._claim = root, node, writer, goes_on, claim
        self._one_copy = threading.Lock()

    # --------------------------------------------------------------------------------------------------- the marker

    def claimed(self) -> None:
        """Remove our notes and parts if they are of another claim, and note whose they are from now on."""
        if not self._claim or self._noted_claim() == self._claim:
            return
        if self._own.is_symlink():
            self._own.unlink()
        elif self._own.exists():
            shutil.rmtree(self._own)
        with self._full_is_a_failure(0):
            for folder in (self._own, self._parts):
                _real_folder(folder)
            part = self._parts / f"claim.{self._node}.{self._writer}"
            _write(part, self._claim.encode())
            os.replace(part, self._own / "claim")
            _sync_folder(self._own)

    def _noted_claim(self) -> str:
        try:
            found = self._own / "claim"
            whole = stat.S_ISDIR(os.lstat(self._own).st_mode) and stat.S_ISREG(os.lstat(found).st_mode)
            return found.read_text(encoding="ascii") if whole else ""
        except (OSError, ValueError):
            return ""

    def complete(self, request: str) -> dict[str, Any] | None:
        """The marker, if it is of this request and all its files are there with their sizes. They are not read."""
        try:
            marker: dict[str, Any] = json.loads(self._marker.read_bytes())
            files = [Placed(path=path, size=size, sha256=sha256) for path, size, sha256 in marker["files"]]
            if request not in marker["requests"] or marker["digest"] != digest_of(files):
                return None
            if marker["claim"] != self._claim:
                return None
            states = ((each, os.lstat(self._model / each.path)) for each in files)
            whole = all(stat.S_ISREG(state.st_mode) and state.st_size == each.size for each, state in states)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return marker if whole else None

    def mark(self, requests: list[str], files: Iterable[Placed], **content: object) -> str:
        """Write the marker: all is there and synced. Returns the tree's digest."""
        placed = sorted(files, key=lambda each: each.path.encode())
        digest = digest_of(placed)
        listed = [[each.path, each.size, each.sha256] for each in placed]
        known = {"v": 1, "claim": self._claim, "requests": requests, "digest": digest}
        text = json.dumps({**known, **content, "files": listed})
        part = self._parts / f"marker.{self._node}.{self._writer}"
        with self._full_is_a_failure(0):
            _write(part, text.encode())
            os.replace(part, self._marker)
            _sync_folder(self._own)
        return digest

    # ------------------------------------------------------------------------------------------------- preparations

    def prepare(self, files: Collection[RemoteFile]) -> None:
        """Make the folders; remove a marker, what is not of these files, and dead writers' parts of other files."""
        with self._full_is_a_failure(sum(each.size for each in files)):
            for folder in (self._own, self._parts, self._verified, self._model):
                _real_folder(folder)
            if self._marker.exists() or self._marker.is_symlink():
                self._marker.unlink(missing_ok=True)
                _sync_folder(self._own)
        self._prune({each.path for each in files})
        keys = {_key(each) for each in files}
        for path in _content(self._parts):
            if path.name.partition(".")[0] not in keys:
                self._remove_if_dead(path)
        for path in _content(self._verified):
            if path.name not in keys:
                path.unlink(missing_ok=True)

    def check_space(self, files: Collection[RemoteFile]) -> None:
        """Raises Failure (StorageFull) where the files cannot fit beside what is there."""
        total = sum(each.size for each in files)
        there = sum(_size(self._model / each.path) for each in files)
        parts = sum(max((_size(path) for path in self._parts_of(each)), default=0) for each in files)
        found = os.statvfs(self._root)
        # Some file systems state nothing.
        if found.f_blocks and found.f_bavail and found.f_bavail * found.f_frsize < total - there - parts:
            raise self._full(total)

    def present(self, file: RemoteFile) -> str:
        """The SHA-256 of the finished file, which is read; empty where it is not there, or is another one (removed)."""
        target = self._model / file.path
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return ""
        try:
            state = os.fstat(descriptor)
            if stat.S_ISREG(state.st_mode) and state.st_size == file.size:
                hashes = _Hashes(file)
                for block in _blocks(descriptor, file.size, self._goes_on):
                    hashes.update(block)
                recorded = hashes.sha256 if file.has_digest else self._recorded(file)
                if not hashes.mismatch() and hashes.sha256 == recorded:
                    return recorded
        finally:
            os.close(descriptor)
        target.unlink(missing_ok=True)
        return ""

    # -------------------------------------------------------------------------------------------------------- parts

    @contextmanager
    def part(self, file: RemoteFile) -> Iterator[Part]:
        """This process' part of a file, with what a dead writer left of it; it stays for the next attempt."""
        part = self._taken_over(file) or self._new_part(file)
        try:
            yield part
        finally:
            os.close(part.descriptor)

    def write(self, part: Part, data: bytes, total: int) -> None:
        """Append to a part. `total`: bytes of all files, for the message where the claim is full. Raises Failure."""
        with self._full_is_a_failure(total):
            part.write(data)

    def place(self, part: Part, total: int) -> Placed:
        """Move a verified part to its place, synced."""
        target = self._model / part.file.path
        with self._full_is_a_failure(total):
            os.fsync(part.descriptor)
            self._folders_of(part.file.path)
            if not part.file.has_digest:
                self._record(part)
            try:
                os.replace(part.path, target)
            except FileNotFoundError:
                raise Failure("JobFailed", f"another writer took over the part of {part.file.path}") from None
            _sync_folder(target.parent)
        return Placed(path=part.file.path, size=part.file.size, sha256=part.sha256)

    def _record(self, part: Part) -> None:
        """Before the rename: until then no file is there that the record could be taken to be of."""
        path = self._verified / _key(part.file)
        temporary = self._parts / f"{path.name}.{self._node}.{self._writer}.sha256"
        _write(temporary, part.sha256.encode())
        os.replace(temporary, path)

    def _recorded(self, file: RemoteFile) -> str:
        try:
            return (self._verified / _key(file)).read_text(encoding="ascii")
        except (OSError, ValueError):
            return ""

    def _new_part(self, file: RemoteFile) -> Part:
        path = self._parts / f"{_key(file)}.{self._node}.{self._writer}"
        while True:
            with self._full_is_a_failure(file.size):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            # Before the lock is ours another writer may have taken the name for a dead one's.
            if _lock(descriptor) != "held" and _is_at(descriptor, path):
                part = Part(file=file, path=path, descriptor=descriptor)
                part.restart()
                return part
            os.close(descriptor)

    def _taken_over(self, file: RemoteFile) -> Part | None:
        """The largest part of a dead writer, as ours; other dead ones' parts are removed."""
        taken: Part | None = None
        for path in sorted(self._parts_of(file), key=_size, reverse=True):
            if taken is not None:
                self._remove_if_dead(path)
                continue
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:  # another writer was faster
                continue
            lock = _lock(descriptor)
            if lock == "held" or not _is_at(descriptor, path):
                os.close(descriptor)
                continue
            if lock == "ours" and path.name.split(".")[1] == self._node:
                taken = self._renamed(file, path, descriptor)
            else:
                try:
                    taken = self._copied(file, path, descriptor)
                finally:
                    os.close(descriptor)
        return taken

    def _renamed(self, file: RemoteFile, path: Path, descriptor: int) -> Part:
        own = self._parts / f"{_key(file)}.{self._node}.{self._writer}"
        os.rename(path, own)
        part = Part(file=file, path=own, descriptor=descriptor)
        if os.fstat(descriptor).st_size > file.size:
            part.restart()
        part.hash_existing(os.fstat(descriptor).st_size, self._goes_on)
        return part

    def _copied(self, file: RemoteFile, path: Path, descriptor: int) -> Part:
        """A part of another node, read once. Where there is no room for a second copy it is fetched again."""
        part = self._new_part(file)
        size = os.fstat(descriptor).st_size
        with self._one_copy:
            try:
                for block in _blocks(descriptor, size if size <= file.size else 0, self._goes_on):
                    part.write(block)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                part.restart()
            path.unlink(missing_ok=True)
        return part

    def _parts_of(self, file: RemoteFile) -> list[Path]:
        key = _key(file)
        found = (path for path in _content(self._parts) if path.name.startswith(f"{key}."))
        return [path for path in found if path.name.count(".") == 2]

    def _remove_if_dead(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # gone, or a link that is none of ours
            return
        try:
            if _lock(descriptor) != "held" and _is_at(descriptor, path):
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    # ------------------------------------------------------------------------------------------------------ folders

    def _prune(self, wanted: Collection[str]) -> None:
        """Remove what is in ``model/`` besides the wanted files and their folders; links are removed, not followed."""
        folders = {path[:at] for path in wanted for at, char in enumerate(path) if char == "/"}
        for folder, names, files in os.walk(self._model, topdown=False, followlinks=False):
            below = os.path.relpath(folder, self._model)
            for name in (*files, *names):
                path, place = os.path.join(folder, name), name if below == "." else f"{below}/{name}"
                with suppress(FileNotFoundError):
                    mode = os.lstat(path).st_mode
                    if stat.S_ISDIR(mode):
                        if place not in folders:
                            os.rmdir(path)
                    elif not (stat.S_ISREG(mode) and place in wanted):
                        os.unlink(path)

    def _folders_of(self, path: str) -> None:
        folder = self._model
        for name in path.split("/")[:-1]:
            folder /= name
            _real_folder(folder)

    @contextmanager
    def _full_is_a_failure(self, total: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise self._full(total) from error
            raise

    def _full(self, total: int) -> Failure:
        found = os.statvfs(self._root)
        capacity, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        wanted = max(int(total * _HEADROOM), total + 1)
        if wanted <= capacity:  # something else fills it
            wanted = int(capacity + max(total - free, 0) * _HEADROOM)
        gib = max(1, -(-wanted // _LEAST))
        return Failure(
            "StorageFull",
            f"the claim is full: the files have {total} bytes, the claim {capacity}, of which {free} are free. "
            f"Set size to at least {gib}Gi",
        )


def _key(file: RemoteFile) -> str:
    return hashlib.sha256(file.identity.encode()).hexdigest()[:32]


def _content(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _size(path: Path) -> int:
    try:
        state = os.lstat(path)
    except OSError:
        return 0
    return state.st_size if stat.S_ISREG(state.st_mode) else 0


def _blocks(descriptor: int, size: int, goes_on: Callable[[], None]) -> Iterator[bytes]:
    at = 0
    while at < size:
        goes_on()
        block = os.pread(descriptor, min(_BLOCK, size - at), at)
        if not block:
            return
        yield block
        at += len(block)


def _lock(descriptor: int) -> _Lock:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "unsupported"
    return "ours"


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file still has this name."""
    try:
        there, here = os.lstat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _real_folder(path: Path) -> None:
    """Make a folder; a link or file in its place is removed. Who may write here is us alone."""
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            path.unlink()
    path.mkdir(mode=0o755, exist_ok=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        os.close(descriptor)
