"""A local hub with the API of Hugging Face, for downloads in tests and the sandbox.

    async with model_hub([Repository("acme/llama", {"config.json": "{}", "model.safetensors": Pattern(2**20)})]) as hub:
        environment = {"HF_ENDPOINT": hub.endpoint}
        hub.inject(CutBody(after=1000), path="model.safetensors")
        ...
        hub.commit("acme/llama", {"config.json": "{}"})  # the branch main moves

Answers are as the public hub gave them in 2026: metadata and trees of gated repositories are public, their files are
not; for a client without a token a repository that is missing or private is a 401 without an error code; large files
redirect (302) to a signed URL on a second host, small ones (307) to a cache of the same host.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import quote

from aiohttp import web
from yarl import URL

from airunway_testing.modelhub.serving import (
    Content,
    Fault,
    HttpError,
    Recorder,
    Route,
    SeenRequest,
    content_of,
    listening,
    respond_with_content,
    respond_with_fault,
)

Files: TypeAlias = Mapping[str, bytes | str | Content]
"""Contents by path."""

_Answer: TypeAlias = Callable[[], web.Response]

_LFS_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".onnx", ".h5", ".msgpack", ".model")
_PAGE, _EXPANDED_PAGE = 1000, 50
"""Entries on a page of a tree."""


@dataclass(frozen=True)
class Repository:
    """A repository as it is when the hub starts."""

    name: str
    """``owner/name``."""
    files: Files
    """Files of the first commit, to which the branch main points."""
    gated: Literal[False, "auto", "manual"] = False
    """Who wants the files must have been granted access."""
    private: bool = False
    """Without a token that was granted access there is no such repository."""
    lfs: tuple[str, ...] = ()
    """Further paths that are large files; those with the suffixes of weights always are."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    content: Content
    lfs: bool

    @property
    def oid(self) -> str:
        """Name of the blob in git: of the pointer, for a large file."""
        return (
            hashlib.sha1(b"pointer " + self.content.sha256.encode()).hexdigest() if self.lfs else self.content.git_oid
        )

    @property
    def etag(self) -> str:
        return f'"{self.content.sha256 if self.lfs else self.content.git_oid}"'


@dataclass(kw_only=True)
class _State:
    name: str
    gated: Literal[False, "auto", "manual"]
    private: bool
    lfs: tuple[str, ...]
    commits: dict[str, dict[str, _Entry]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def entry(self, path: str, data: bytes | str | Content) -> _Entry:
        return _Entry(content=content_of(data), lfs=path.endswith(_LFS_SUFFIXES) or path in self.lfs)


class _ErrorAnswer(Exception):
    """An answer of the API that is not 2xx or 3xx."""

    def __init__(self, status: int, *, code: str = "", message: str, commit: str = "", retry_after: str = "") -> None:
        super().__init__(message)
        self.status = status
        headers = {
            "X-Error-Code": code,
            "X-Error-Message": message,
            "X-Repo-Commit": commit,
            "Retry-After": retry_after,
        }
        if status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="Authentication required", charset="UTF-8"'
        self.headers = {name: value for name, value in headers.items() if value}

    def response(self) -> web.Response:
        return web.json_response({"error": str(self)}, status=self.status, headers=self.headers)


class _Moved(Exception):
    """The repository has another name; the text is where the request goes on."""


class Hub(Recorder):
    """The running hub. `requests` are what it was asked, `inject` switches faults on."""

    endpoint: str
    """URL of the hub: the value of HF_ENDPOINT."""
    cdn: str
    """URL of the second host, from which large files come."""

    def __init__(
        self, repositories: Iterable[Repository], *, tokens: Mapping[str, Sequence[str]], page_size: int | None
    ) -> None:
        super().__init__()
        self.tokens = {token: set(names) for token, names in tokens.items()}
        self._page_size = page_size
        self._key = b"first"
        self._large: dict[tuple[str, str, str], tuple[_State, Content]] = {}
        self._repositories: dict[str, _State] = {}
        self._moved: dict[str, str] = {}
        for each in repositories:
            self.add(each)

    # ------------------------------------------------------------------------------------------- what a test changes

    def add(self, repository: Repository) -> None:
        """Make a repository, with its first commit."""
        self._repositories[repository.name] = _State(
            name=repository.name, gated=repository.gated, private=repository.private, lfs=repository.lfs
        )
        self.commit(repository.name, repository.files)

    def commit(self, repository: str, files: Files, *, branch: str = "main") -> str:
        """Make a commit of exactly these files, to which the branch moves; gives its id."""
        state = self._repositories[repository]
        tree = {path: state.entry(path, data) for path, data in files.items()}
        text = "".join(f"{path}\0{entry.etag}\n" for path, entry in sorted(tree.items()))
        commit = hashlib.sha1(f"{repository}\n{len(state.commits)}\n{text}".encode()).hexdigest()
        state.commits[commit] = tree
        state.refs[branch] = commit
        for path, entry in tree.items():
            if entry.lfs:
                self._large[_hash(state.name), entry.content.sha256, path] = (state, entry.content)
        return commit

    def replace(self, repository: str, path: str, data: bytes | str | Content) -> None:
        """Change the bytes behind a file of every commit without a trace in the metadata, as a broken cache does."""
        state = self._repositories[repository]
        for tree in state.commits.values():
            if path in tree and tree[path].lfs:
                self._large[_hash(state.name), tree[path].content.sha256, path] = (state, content_of(data))

    def set_ref(self, repository: str, ref: str, commit: str) -> None:
        """Point a branch or tag to a commit."""
        self._repositories[repository].refs[ref] = commit

    def head(self, repository: str, ref: str = "main") -> str:
        """The commit to which a branch or tag points."""
        return self._repositories[repository].refs[ref]

    def rename(self, repository: str, name: str) -> None:
        """Give a repository another name; the old one redirects to it."""
        state = self._repositories.pop(repository)
        state.name = name
        self._repositories[name] = state
        self._moved[repository] = name

    def remove(self, repository: str) -> None:
        """Delete a repository."""
        del self._repositories[repository]

    def expire_links(self) -> None:
        """Make every signed URL invalid that was given out."""
        self._key += b"+"

    # -------------------------------------------------------------------------------------------------------- routes

    def applications(self) -> tuple[web.Application, web.Application]:
        """The hub itself, and its second host."""
        hub, cdn = web.Application(), web.Application()
        model = "{owner:[^/]+}/{name:[^/]+}"
        hub.router.add_get(f"/api/models/{model}", self._revision)
        hub.router.add_get(f"/api/models/{model}/revision/{{rev}}", self._revision)
        hub.router.add_get(f"/api/models/{model}/tree/{{rev}}", self._tree)
        hub.router.add_get(f"/api/models/{model}/tree/{{rev}}/{{path:.*}}", self._tree)
        hub.router.add_get(f"/api/resolve-cache/models/{model}/{{rev}}/{{path:.+}}", self._cached)
        hub.router.add_get(f"/{model}/resolve/{{rev}}/{{path:.+}}", self._resolve)
        cdn.router.add_get("/repos/{repository}/{digest}", self._large_file)
        return hub, cdn

    def _see(
        self, request: web.Request, route: Route, *, host: Literal["hub", "cdn"] = "hub", path: str
    ) -> SeenRequest:
        seen = SeenRequest(
            host=host,
            route=route,
            method=request.method,
            path=path,
            target=request.raw_path,
            range=request.headers.get("Range", ""),
            authorized="Authorization" in request.headers,
        )
        self.requests.append(seen)
        return seen

    async def _revision(self, request: web.Request) -> web.StreamResponse:
        seen = self._see(request, "revision", path="")

        def answer() -> web.Response:
            state = self._repository(request, files=False)
            commit = self._commit(state, request.match_info.get("rev", "main"))
            tree = state.commits[commit]
            body = {
                "_id": _hash(state.name)[:24],
                "id": state.name,
                "modelId": state.name,
                "sha": commit,
                "private": state.private,
                "gated": state.gated,
                "disabled": False,
                "siblings": [self._sibling(path, tree[path], blobs="blobs" in request.query) for path in sorted(tree)],
            }
            return web.json_response(body)

        return await self._answered(request, seen, answer)

    def _sibling(self, path: str, entry: _Entry, *, blobs: bool) -> dict[str, object]:
        if not blobs:
            return {"rfilename": path}
        size = entry.content.size + self.faults.lie(path)
        lfs = {"lfs": {"sha256": entry.content.sha256, "size": size, "pointerSize": 134}} if entry.lfs else {}
        return {"rfilename": path, "blobId": entry.oid, "size": size, **lfs}

    async def _tree(self, request: web.Request) -> web.StreamResponse:
        folder = request.match_info.get("path", "").strip("/")
        seen = self._see(request, "tree", path=folder)

        def answer() -> web.Response:
            state = self._repository(request, files=False)
            revision = request.match_info["rev"]
            commit = self._commit(state, revision)
            query = request.query
            expand = query.get("expand", "").lower() in ("true", "1")
            entries = self._entries(
                state, commit, folder, recursive=query.get("recursive", "").lower() in ("true", "1")
            )
            if folder and not entries:
                raise _ErrorAnswer(
                    404, code="EntryNotFound", message=f'{folder} does not exist on "{revision}"', commit=commit
                )
            most = self._page_size or (_EXPANDED_PAGE if expand else _PAGE)
            limit = min(int(query.get("limit", most)), most)
            start = _from_cursor(query["cursor"]) if "cursor" in query else ""
            rest = [entry for entry in entries if str(entry["path"]) > start]
            page = rest[:limit]
            if expand:
                info = {"id": commit, "title": "Upload files", "date": "2026-01-01T00:00:00.000Z"}
                page = [{**entry, "lastCommit": info} for entry in page]
            headers = {"X-Repo-Commit": commit}
            if len(rest) > limit:
                following = request.url.origin().join(
                    request.rel_url.update_query(limit=str(limit), cursor=_cursor(str(page[-1]["path"]), limit))
                )
                headers["Link"] = f'<{following}>; rel="next"'
            return web.json_response(page, headers=headers)

        return await self._answered(request, seen, answer)

    def _entries(self, state: _State, commit: str, folder: str, *, recursive: bool) -> list[dict[str, object]]:
        """Files and folders below a folder, by path; paths are those of the whole repository."""
        found: dict[str, dict[str, object]] = {}
        prefix = f"{folder}/" if folder else ""
        for path, entry in state.commits[commit].items():
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
                name = prefix + "/".join(parts[:depth])
                oid = hashlib.sha1(f"{commit}:{name}".encode()).hexdigest()
                found[name] = {"type": "directory", "oid": oid, "size": 0, "path": name}
            if recursive or len(parts) == 1:
                size = entry.content.size + self.faults.lie(path)
                lfs = {"lfs": {"oid": entry.content.sha256, "size": size, "pointerSize": 134}} if entry.lfs else {}
                found[path] = {"type": "file", "oid": entry.oid, "size": size, **lfs, "path": path}
        return [found[path] for path in sorted(found)]

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        seen = self._see(request, "resolve", path=path)

        def answer() -> web.Response:
            state = self._repository(request, files=True)
            commit = self._commit(state, request.match_info["rev"])
            entry = self._entry(state, commit, path)
            headers = {
                "X-Repo-Commit": commit,
                "X-Linked-Size": str(entry.content.size + self.faults.lie(path)),
                "X-Linked-Etag": entry.etag,
                "Accept-Ranges": "bytes",
            }
            if entry.lfs:
                headers["Location"] = self._signed_url(_hash(state.name), entry.content.sha256, path)
                return web.Response(status=302, text=f"Found. Redirecting to {headers['Location']}", headers=headers)
            headers["Location"] = (
                f"/api/resolve-cache/models/{state.name}/{commit}/{quote(path)}?etag={quote(entry.etag)}"
            )
            return web.Response(status=307, text=f"Temporary Redirect to {headers['Location']}", headers=headers)

        return await self._answered(request, seen, answer)

    async def _cached(self, request: web.Request) -> web.StreamResponse:
        path, commit = request.match_info["path"], request.match_info["rev"]
        seen = self._see(request, "file" if request.method == "GET" else "resolve", path=path)
        fault = self.faults.take(seen.route, path)
        if (answer := await self._faulty(request, seen, fault)) is not None:
            return answer
        try:
            state = self._repository(request, files=True)
            entry = self._entry(state, self._commit(state, commit), path)
        except _ErrorAnswer as error:
            seen.status = error.status
            return error.response()
        headers = {"ETag": entry.etag, "X-Repo-Commit": commit}
        return await respond_with_content(
            request,
            seen,
            entry.content,
            fault,
            headers=headers,
            swapped=lambda other: self._entry(state, commit, other).content,
        )

    async def _large_file(self, request: web.Request) -> web.StreamResponse:
        repository, digest = request.match_info["repository"], request.match_info["digest"]
        path = request.query.get("filename", "")
        seen = self._see(request, "file" if request.method == "GET" else "resolve", host="cdn", path=path)
        fault = self.faults.take(seen.route, path)
        if (answer := await self._faulty(request, seen, fault)) is not None:
            return answer
        found = self._large.get((repository, digest, path))
        if found is None or str(request.url) != self._signed_url(repository, digest, path):
            seen.status = 403
            text = '<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access denied</Message></Error>'
            return web.Response(status=403, text=text, content_type="application/xml")
        state, content = found

        def swapped(other: str) -> Content:
            return next(tree[other].content for tree in reversed(state.commits.values()) if other in tree)

        return await respond_with_content(
            request, seen, content, fault, headers={"ETag": f'"{digest}"'}, swapped=swapped
        )

    # ------------------------------------------------------------------------------------------------------ decisions

    async def _answered(self, request: web.Request, seen: SeenRequest, answer: _Answer) -> web.StreamResponse:
        played = await self._faulty(request, seen, self.faults.take(seen.route, seen.path))
        if played is not None:
            return played
        try:
            response = answer()
        except _ErrorAnswer as error:
            response = error.response()
        except _Moved as moved:
            response = web.Response(status=307, headers={"Location": str(moved)})
        seen.status = response.status
        return response

    async def _faulty(self, request: web.Request, seen: SeenRequest, fault: Fault | None) -> web.Response | None:
        if isinstance(fault, HttpError):
            seen.status = fault.status
            error = _ErrorAnswer(fault.status, code=fault.code, message=fault.message, retry_after=fault.retry_after)
            return error.response()
        return await respond_with_fault(request, seen, fault)

    def _repository(self, request: web.Request, *, files: bool) -> _State:
        """The repository that a request names, if the client may know of it, and may have its `files`."""
        name = f"{request.match_info['owner']}/{request.match_info['name']}"
        if name in self._moved:
            target = str(request.rel_url).replace(f"/{name}", f"/{self._moved[name]}", 1)
            raise _Moved(target)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.tokens:
            raise _ErrorAnswer(401, message="Invalid credentials in Authorization header")
        granted = name in self.tokens.get(token, ())
        state = self._repositories.get(name)
        if state is None or (state.private and not granted):
            if token:
                raise _ErrorAnswer(404, code="RepoNotFound", message="Repository not found")
            raise _ErrorAnswer(401, message="Invalid username or password.")
        if files and state.gated and not granted:
            begin = f"Access to model {name} is restricted"
            if token:
                message = (
                    f"{begin} and you are not in the authorized list. Visit {self.endpoint}/{name} to ask for access."
                )
                raise _ErrorAnswer(403, code="GatedRepo", message=message)
            message = f"{begin}. You must have access to it and be authenticated to access it. Please log in."
            raise _ErrorAnswer(401, code="GatedRepo", message=message)
        return state

    def _commit(self, state: _State, revision: str) -> str:
        commit = state.refs.get(revision, revision)
        if commit not in state.commits:
            raise _ErrorAnswer(404, code="RevisionNotFound", message=f"Invalid rev id: {revision}")
        return commit

    def _entry(self, state: _State, commit: str, path: str) -> _Entry:
        entry = state.commits[commit].get(path)
        if entry is None:
            raise _ErrorAnswer(404, code="EntryNotFound", message="Entry not found", commit=commit)
        return entry

    def _signed_url(self, repository: str, digest: str, path: str) -> str:
        signature = hmac.new(self._key, f"{repository}/{digest}/{path}".encode(), "sha256").hexdigest()
        query = {"filename": path, "Expires": "4102444800", "Signature": signature}
        return str(URL(f"{self.cdn}/repos/{repository}/{digest}").with_query(query))


def _hash(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()


def _cursor(path: str, limit: int) -> str:
    inner = base64.b64encode(json.dumps({"file_name": path}).encode())
    return base64.b64encode(inner + f":{limit}".encode()).decode()


def _from_cursor(cursor: str) -> str:
    inner = base64.b64decode(cursor).partition(b":")[0]
    return str(json.loads(base64.b64decode(inner))["file_name"])


@asynccontextmanager
async def model_hub(
    repositories: Iterable[Repository],
    *,
    tokens: Mapping[str, Sequence[str]] | None = None,
    page_size: int | None = None,
    ports: tuple[int, int] = (0, 0),
) -> AsyncIterator[Hub]:
    """A hub with these repositories on free ports of this machine (or on `ports`) while the context lasts.

    `tokens` are those that the hub knows, with the gated and private repositories to which each has access. `page_size`
    replaces the number of entries on a page of a tree.
    """
    hub = Hub(repositories, tokens=tokens or {}, page_size=page_size)
    async with listening(hub.applications(), host="127.0.0.1", ports=ports) as (port, second):
        hub.endpoint = f"http://127.0.0.1:{port}"
        hub.cdn = f"http://localhost:{second}"  # another host name: clients must not send their token there
        yield hub
