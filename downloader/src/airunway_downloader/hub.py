"""A hub with the API of Hugging Face as a source of files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from airunway_downloader.client import Client, Response, failure_of_status
from airunway_downloader.failures import Failure
from airunway_downloader.files import Budget, Filters, Listing, RemoteFile, Uri, chosen, in_path

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NEXT = re.compile(r'<([^<>]{1,4096})>\s*;\s*rel="?next"?')
_MOST_PAGES = 2000
_TOKEN = "HF_TOKEN"


class Hub:
    """One repository of a hub at one revision."""

    def __init__(
        self, uri: Uri, *, revision: str, filters: Filters, client: Client, environment: Mapping[str, str]
    ) -> None:
        self._uri, self._filters, self._client = uri, filters, client
        self._endpoint = (environment.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self._revision = revision or "main"
        token = environment.get("HF_TOKEN", "").strip()
        if any(not char.isprintable() or not char.isascii() for char in token):
            raise Failure("Unauthorized", "HF_TOKEN is no token: it has characters that none has")
        self._credentials = {"Authorization": f"Bearer {token}"} if token else {}

    def listing(self) -> Listing:
        """The files of the commit to which the revision leads now. Raises Failure."""
        commit = self._commit()
        self._revision = commit
        found = [self._file(entry) for entry in self._entries(commit) if self._is_file(entry)]
        return Listing(revision=commit, files=chosen(in_path(found, self._uri.path), self._uri, self._filters))

    def check_access(self, listing: Listing) -> None:
        """Whether the files may be fetched: the hub lists a gated repository's files to everyone. Raises Failure."""
        with self._open(listing.revision, listing.files[0], method="HEAD") as response:
            if response.status >= 400:
                raise self._failure(response, listing.files[0].path)

    def described(self, file: RemoteFile) -> RemoteFile:
        """The file itself: the list has its digests."""
        return file

    @contextmanager
    def open(self, file: RemoteFile, *, offset: int) -> Iterator[Response]:
        """The file from an offset on. Raises Failure."""
        with self._open(self._revision, file, method="GET", offset=offset) as response:
            if response.status not in (200, 206, 416):
                raise self._failure(response, file.path)
            yield response

    def unchanged(self, listing: Listing) -> bool:
        """True: a commit does not change."""
        return True

    @contextmanager
    def _open(self, commit: str, file: RemoteFile, *, method: str, offset: int = 0) -> Iterator[Response]:
        url = f"{self._endpoint}/{self._uri.repository}/resolve/{commit}/{quote(file.path)}"
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        # A large file's address is on another host, and good for one file: for a HEAD it is not needed.
        follow = method == "GET"
        with self._client.request(
            method, url, headers=headers, credentials=self._credentials, follow=follow
        ) as response:
            yield response

    def _commit(self) -> str:
        url = f"{self._endpoint}/api/models/{self._uri.repository}/revision/{quote(self._revision, safe='')}"
        with self._ask(url) as response:
            answer = response.json()
        commit = answer.get("sha") if isinstance(answer, dict) else None
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise Failure("ServerError", f"{response.host} names no commit of {self._uri.repository}")
        if _COMMIT.fullmatch(self._revision) and commit != self._revision:
            raise Failure("ServerError", f"{response.host} answers with another commit than {self._revision}")
        return commit

    def _entries(self, commit: str) -> Iterator[dict[str, Any]]:
        url = f"{self._endpoint}/api/models/{self._uri.repository}/tree/{commit}?recursive=true&expand=false"
        budget = Budget(self._uri)
        for _ in range(_MOST_PAGES):
            with self._ask(url) as response:
                page = response.json()
                following = _NEXT.search(response.headers.get("Link", ""))
            if not isinstance(page, list) or not all(isinstance(entry, dict) for entry in page):
                raise Failure("ServerError", f"{response.host} sent a list of files that is none")
            budget.take(entries=len(page), size=response.read)
            yield from page
            if following is None:
                return
            if not page:
                raise Failure("ServerError", f"{response.host} names a next page after an empty one")
            # Only path and query: the address of the hub as it sees itself may be another than ours.
            parts = urlsplit(urljoin(url, following[1]))
            url = urljoin(url, f"{parts.path}?{parts.query}")
        raise Failure("InvalidSpec", f"{self._uri} has more than {_MOST_PAGES} pages of files")

    def _is_file(self, entry: Mapping[str, Any]) -> bool:
        kind, path = entry.get("type"), entry.get("path")
        if kind not in ("file", "directory"):
            raise Failure(
                "InvalidSpec", f"{self._uri}: {path!r} is refused: it is neither a file nor a folder ({kind!r})"
            )
        return bool(kind == "file")

    def _file(self, entry: Mapping[str, Any]) -> RemoteFile:
        path, size, oid, lfs = (entry.get(field) for field in ("path", "size", "oid", "lfs"))
        if isinstance(lfs, dict):
            size, sha256 = lfs.get("size"), lfs.get("oid")
            if (
                isinstance(path, str)
                and isinstance(size, int)
                and isinstance(sha256, str)
                and _SHA256.fullmatch(sha256)
            ):
                return RemoteFile(path=path, size=size, sha256=sha256)
        elif isinstance(path, str) and isinstance(size, int) and isinstance(oid, str) and _COMMIT.fullmatch(oid):
            return RemoteFile(path=path, size=size, git_sha1=oid)
        raise Failure("ServerError", f"{self._uri}: the hub states no size or digest of {str(path)[:300]!r}")

    @contextmanager
    def _ask(self, url: str) -> Iterator[Response]:
        with self._client.request("GET", url, credentials=self._credentials) as response:
            if response.status != 200:
                raise self._failure(response, "")
            yield response

    def _failure(self, response: Response, path: str) -> Failure:
        """What the hub means. It names errors in headers, since one status has several meanings."""
        code, words = response.headers.get("X-Error-Code", ""), response.headers.get("X-Error-Message", "")
        status, token = response.status, bool(self._credentials)
        if response.foreign and status < 500 and status != 429:  # a link that is no longer valid, of the second host
            return Failure("ServerError", f"{response.host} refuses {path} ({status})")
        if code == "GatedRepo":
            where = f"{self._endpoint}/{self._uri.repository}"
            todo = (
                "ask for access there with the account of the token" if token else "ask for access there, set a token"
            )
            return Failure("GatedModel", f"{self._uri} is gated ({where}): {todo}. {words}".strip())
        if code == "RevisionNotFound":
            return Failure("SourceNotFound", f"{self._uri} has no revision {self._revision}")
        if code == "EntryNotFound":
            return Failure("SourceNotFound", f"{self._uri} has no file {path}")
        if status == 401 and words == "Invalid credentials in Authorization header" and not token:
            todo = f"name a Secret that has one under {_TOKEN} in spec.secrets.huggingFaceToken"
            return Failure("Unauthorized", f"{response.host} wants a token for {self._uri}, and none was given: {todo}")
        if status == 401 and words == "Invalid credentials in Authorization header":
            return Failure("Unauthorized", f"{response.host} refuses the token of HF_TOKEN ({words})")
        if status == 401 or code == "RepoNotFound" or status == 404:
            hidden = "the token may not see it" if token else "it is private and no token was given"
            return Failure(
                "SourceNotFound", f"{self._uri} does not exist at {response.host}, or {hidden}. {words}".strip()
            )
        if status == 403:
            return Failure("Forbidden", f"{response.host} does not allow to read {self._uri}. {words}".strip())
        return failure_of_status(response)
