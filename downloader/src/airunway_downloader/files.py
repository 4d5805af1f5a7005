"""Which files of a source are fetched: one list for the size check and the download."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from airunway_downloader.failures import Failure

_MOST_FILES = 200_000
_MOST_ENTRIES = 2 * _MOST_FILES
"""Files and folders that are listed: filters may leave fewer."""
_MOST_LISTED = 256 << 20
"""Bytes of all pages of a list."""
LIST_SECONDS = 600.0
"""Seconds that a list may take, with all of its pages."""
_MOST_BYTES = 1 << 50
"""1 PiB: no model is that large."""
_LONGEST_NAME = 240
"""Bytes of one name. File systems take 255; engines add endings of their own (`.lock`, `.index.json`)."""
_LONGEST_PATH = 2048

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_OWNER_OR_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_SPLIT_GGUF = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")

_OTHER_WEIGHTS = (
    *("*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf", "*.ggml", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.ot"),
    *("*.tflite", "*.npz", "*.pkl", "*.pdparams", "*.mlmodel", "*.nemo"),
)
"""Weights in formats that an engine does not read where safetensors are there."""


@dataclass(frozen=True, kw_only=True)
class Uri:
    """Where weights come from."""

    scheme: Literal["hf", "s3"]
    repository: str
    """``owner/name`` of the hub, or the bucket."""
    path: str
    """File or folder in it; empty: all of it."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.repository}" + (f"/{self.path}" if self.path else "")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Patterns over paths of the repository, as the shell has them; ``*`` matches ``/`` too."""

    include: tuple[str, ...] = ()
    """Only files that match one of these; empty: all."""
    exclude: tuple[str, ...] = ()
    """No files that match one of these."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a source; digests that the source does not state are empty."""

    path: str
    """Below ``model/``."""
    size: int
    key: str = ""
    """Its name at the source where that is another one (S3)."""
    sha256: str = ""
    sha1: str = ""
    git_sha1: str = ""
    """SHA-1 of the file as a blob of git."""
    crc32: str = ""
    etag: str = ""
    """Names the version of the file at S3."""

    @property
    def has_digest(self) -> bool:
        """Whether its content can be told from another's by a cryptographic digest of the source."""
        return bool(self.sha256 or self.git_sha1 or self.sha1)

    @property
    def identity(self) -> str:
        """Equal for equal contents, from the list on: what a part of the file is named after."""
        return f"{self.path}\0{self.size}\0{self.etag or self.sha256 or self.git_sha1}"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files to fetch."""

    revision: str
    """Commit of the hub; empty for S3."""
    files: tuple[RemoteFile, ...]
    size: int = field(init=False)
    """Bytes of all files."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum(each.size for each in self.files))


class Budget:
    """What a list of files may take: a hub that never ends it must not be read for ever. Counted page by page."""

    def __init__(self, uri: Uri, *, now: Callable[[], float] = time.monotonic) -> None:
        self._uri, self._now = uri, now
        self._entries = self._bytes = 0
        self._until = now() + LIST_SECONDS

    def take(self, *, entries: int, size: int) -> None:
        """Count one more page, before the next one is asked for. Raises Failure."""
        self._entries += entries
        self._bytes += size
        if self._entries > _MOST_ENTRIES:
            raise Failure("InvalidSpec", f"{self._uri} lists more than {_MOST_ENTRIES} files and folders")
        if self._bytes > _MOST_LISTED:
            raise Failure("ServerError", f"the list of the files of {self._uri} has more than {_MOST_LISTED >> 20} MiB")
        if self._now() > self._until:
            raise Failure("Timeout", f"the list of the files of {self._uri} did not end within {LIST_SECONDS:g} s")


def parse_uri(text: str) -> Uri:
    """Raises Failure (InvalidSpec)."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("hf", "s3"):
        raise Failure("InvalidSpec", f"{text}: a source begins with hf:// or s3://")
    if any(char.isspace() for char in text) or _CONTROL.search(text):
        raise Failure("InvalidSpec", f"{text}: a source has no blanks or control characters")
    parts = rest.rstrip("/").split("/")
    if scheme == "s3":
        if not _BUCKET.fullmatch(parts[0]):
            raise Failure("InvalidSpec", f"{text}: write s3://BUCKET or s3://BUCKET/PREFIX")
        repository, path = parts[0], "/".join(parts[1:])
    else:
        if len(parts) < 2 or not all(_OWNER_OR_NAME.fullmatch(part) for part in parts[:2]):
            raise Failure("InvalidSpec", f"{text}: write hf://OWNER/NAME or hf://OWNER/NAME/PATH")
        repository, path = "/".join(parts[:2]), "/".join(parts[2:])
    if path and (wrong := _wrong_with(path)):
        raise Failure("InvalidSpec", f"{text}: the path {wrong}")
    return Uri(scheme="hf" if scheme == "hf" else "s3", repository=repository, path=path)


def in_path(files: Iterable[RemoteFile], path: str) -> list[RemoteFile]:
    """The files that a path of a URI names: one file, all of a folder, or all.

    The first part of a GGUF file that was split names its other parts too: it is useless without them.
    """
    found = list(files)
    if not path:
        return found
    if one := [each for each in found if each.path == path]:
        if split := _SPLIT_GGUF.fullmatch(path):
            parts = (
                each
                for each in found
                if (other := _SPLIT_GGUF.fullmatch(each.path)) and other.groups() == split.groups()
            )
            return list(parts)
        return one
    return [each for each in found if each.path.startswith(f"{path}/")]


def prefix_of(path: str) -> str:
    """What the paths of all files begin with that a path of a URI names."""
    split = _SPLIT_GGUF.fullmatch(path)
    return split[1] if split else path


def chosen(files: Sequence[RemoteFile], uri: Uri, filters: Filters) -> tuple[RemoteFile, ...]:
    """The files to fetch of those that the URI names, by path.

    Without filters, safetensors make other weights and ``original/`` superfluous.
    Raises Failure: SourceNotFound for none, InvalidSpec where filters leave none, or a path must not be written.
    """
    if not files:
        what = f"no file {uri.path}, and no folder of that name" if uri.path else "no files"
        raise Failure("SourceNotFound", f"{uri} has {what}")
    found = [each for each in files if _wanted(each.path, filters)]
    if not found:
        raise Failure("InvalidSpec", f"include and exclude leave none of the {len(files)} files of {uri}")
    single = len(files) == 1 or any(each.path == uri.path for each in files)
    if not (filters.include or filters.exclude or single) and any(_is_safetensors(each) for each in found):
        below = f"{uri.path}/" if uri.scheme == "hf" and uri.path else ""
        found = [each for each in found if _is_safetensors(each) or not _superfluous(each.path.removeprefix(below))]
        found = [each for each in found if not each.path.removeprefix(below).startswith("original/")]
    _check(found, uri)
    return tuple(sorted(found, key=lambda each: each.path.encode()))


def _wanted(path: str, filters: Filters) -> bool:
    included = not filters.include or any(_matches(path, pattern) for pattern in filters.include)
    return included and not any(_matches(path, pattern) for pattern in filters.exclude)


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, f"{pattern}*" if pattern.endswith("/") else pattern)


def _is_safetensors(file: RemoteFile) -> bool:
    return file.path.endswith(".safetensors")


def _superfluous(path: str) -> bool:
    return any(fnmatchcase(path.lower(), pattern) for pattern in _OTHER_WEIGHTS)


def _check(files: Sequence[RemoteFile], uri: Uri) -> None:
    if len(files) > _MOST_FILES:
        raise Failure("InvalidSpec", f"{uri} has {len(files)} files, more than {_MOST_FILES}: use include")
    for each in files:
        if wrong := _wrong_with(each.path):
            raise Failure("InvalidSpec", f"{uri}: the file {each.path[:300]!r} is refused: its path {wrong}")
        if each.size < 0:
            raise Failure("InvalidSpec", f"{uri}: the file {each.path!r} is refused: its size is {each.size}")
    paths = {each.path for each in files}
    if len(paths) < len(files):
        raise Failure("InvalidSpec", f"{uri} lists a file twice")
    for path in paths:
        at = -1
        while (at := path.find("/", at + 1)) > 0:
            if path[:at] in paths:
                raise Failure("InvalidSpec", f"{uri}: {path[:at]!r} is refused: it is a file and a folder")
    if sum(each.size for each in files) > _MOST_BYTES:
        raise Failure("InvalidSpec", f"{uri} has more than 1 PiB: use include")


def _wrong_with(path: str) -> str:
    """Why a path must not be written below our folder, or the empty string."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    if _CONTROL.search(path):
        return "has control characters"
    if path.startswith("/"):
        return "is absolute"
    if len(encoded) > _LONGEST_PATH:
        return f"is longer than {_LONGEST_PATH} bytes"
    names = path.split("/")
    if ".." in names:
        return "leads outside ('..')"
    if "" in names or "." in names:
        return "has an empty name or '.'"
    if any(len(name.encode()) > _LONGEST_NAME for name in names):
        return f"has a name of more than {_LONGEST_NAME} bytes"
    return ""
