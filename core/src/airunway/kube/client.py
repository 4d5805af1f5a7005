"""The API client: the verbs of Kubernetes on plain dicts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote

from airunway.kube.config import ClusterConfig
from airunway.kube.decoding import (
    LONGEST_LINE,
    Page,
    WatchEvent,
    decoded_events,
    decoded_object,
    page_of,
    read_pages,
    stream_seconds,
    text_lines,
)
from airunway.kube.errors import MalformedAnswer, NotFound
from airunway.kube.kinds import POD, SUBJECT_ACCESS_REVIEW, Kind
from airunway.kube.session import Request, Session, user_agent_of
from airunway.resource import ObjectKey, Resource, dig, key_of

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_ANYTHING = "*/*"


class Client:
    """A connection pool to one API server under one identity; use it as an async context manager.

    Every method raises `ApiError` if the server answers with an error, and `TransportError` if there is no usable
    answer.

    - `timeout`: limit of each request, in seconds.
    - `watch_inactivity`: a watch that is silent for so many seconds counts as broken (a server sends a bookmark about
      once a minute).
    - `on_request(verb, resource, status, seconds)`: called after each request, and when a watch opens. Status 0: there
      was no answer.
    - `on_warning(text)`: called for every ``Warning`` header. By default each text is logged once.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str = "",
        timeout: float = 30.0,
        watch_inactivity: float = 90.0,
        on_request: Callable[[str, str, int, float], None] | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self.session = Session(
            config,
            user_agent=user_agent or user_agent_of("library"),
            timeout=timeout,
            watch_inactivity=watch_inactivity,
            on_request=on_request,
            on_warning=on_warning,
        )

    @property
    def config(self) -> ClusterConfig:
        return self.session.config

    async def __aenter__(self) -> Client:
        await self.session.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    @property
    def server_time(self) -> datetime | None:
        """The clock of the server (or of a proxy before it) at its newest answer, in whole seconds.

        None before the first answer, and if the answer has no usable ``Date`` header.
        """
        try:
            return parsedate_to_datetime(self.session.date)
        except ValueError:
            return None

    # ------------------------------------------------------------------------------------------------ reading

    async def get(self, kind: Kind, key: ObjectKey, *, subresource: str = "") -> Resource:
        """Returns one object. Raises NotFound."""
        path, _ = _address(kind, key, subresource)
        return await self._json(Request("get", "GET", path, kind.plural))

    async def find(self, kind: Kind, key: ObjectKey) -> Resource | None:
        """Returns one object, or None if the object or its kind does not exist."""
        try:
            return await self.get(kind, key)
        except NotFound:
            return None

    async def get_path(self, path: str, *, accept: str = "") -> Resource:
        """Returns the JSON document at an API path (discovery, ``/version``, OpenAPI), as media type `accept`."""
        return await self._json(Request("get", "GET", path, "nonresource", accept=accept))

    async def pages(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
    ) -> AsyncGenerator[Page, None]:
        """Yields all objects in consistent pages of `limit`; fetches the next page while the caller handles this one.

        Pages are smaller if objects are so large, or so deeply nested, that a full page would cost too much.

        Items have `apiVersion` and `kind` even if the server omits them. Raises Gone if the server compacted the list
        meanwhile: start again.
        """
        path = kind.path(namespace=namespace)
        params = _params(labelSelector=label_selector, fieldSelector=field_selector)

        def fetch(token: str, size: int, most: int | None) -> asyncio.Task[bytes]:
            query = {**params, **_params(**{"limit": str(size) if size else "", "continue": token})}
            request = Request("list", "GET", path, kind.plural, query)
            return asyncio.create_task(self.session.read(request, most=most))

        async with aclosing(read_pages(fetch, kind=kind, limit=limit)) as pages:
            async for page in pages:
                yield page

    async def list_all(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> list[Resource]:
        """Returns all objects at once. Raises Gone if the server compacted the list while it was read."""
        items: list[Resource] = []
        pages = self.pages(kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector)
        async with aclosing(pages) as stream:
            async for page in stream:
                items += page.items
        return items

    async def list_if_served(self, kind: Kind, *, namespace: str = "") -> list[Resource]:
        """Returns all objects, as `list_all`; none where the API server does not have the kind."""
        try:
            return await self.list_all(kind, namespace=namespace)
        except NotFound:
            return []

    async def first_page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int,
        most: int,
    ) -> Page:
        """Returns the first `limit` objects of a list, in one request. Raises AnswerTooLarge beyond `most` bytes."""
        params = _params(labelSelector=label_selector, fieldSelector=field_selector, limit=str(limit))
        request = Request("list", "GET", kind.path(namespace=namespace), kind.plural, params)
        answer = await self.session.read(request, most=most)
        return page_of(await decoded_object(answer, f"list of {kind}"), kind)

    async def list_metadata(self, kind: Kind, *, namespace: str = "", label_selector: str = "") -> list[Resource]:
        """Returns the metadata of all objects; the API server omits everything else.

        https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
        """
        params = _params(labelSelector=label_selector)
        items: list[Resource] = []
        parts = self._parts(kind, params, namespace=namespace, accept=_METADATA_ONLY, what=f"metadata of {kind}")
        async with aclosing(parts) as stream:
            async for part in stream:
                if part.get("kind") != "PartialObjectMetadataList":
                    raise MalformedAnswer(f"metadata of {kind}: the answer is a {part.get('kind')}")
                items += part.get("items") or []
        return items

    async def rows(self, kind: Kind) -> AsyncGenerator[Mapping[str, object], None]:
        """Yields for every object its printer columns by name, as `kubectl get` prints them.

        The objects themselves are not sent, so their size does not matter. Raises Gone if the server compacted the list
        while it was read.
        """
        parts = self._parts(kind, {"includeObject": "None"}, accept=_TABLE, what=f"GET {kind.path()}")
        async with aclosing(parts) as stream:
            async for table in stream:
                columns = [str(column.get("name")) for column in table.get("columnDefinitions") or ()]
                for row in table.get("rows") or ():
                    yield dict(zip(columns, row.get("cells") or (), strict=False))

    async def _parts(
        self, kind: Kind, params: Mapping[str, str], *, namespace: str = "", accept: str, what: str
    ) -> AsyncGenerator[Resource, None]:
        """Yields a list part by part, in the form of the media type `accept`."""
        query = {**params, "limit": "500"}
        path = kind.path(namespace=namespace)
        while True:
            request = Request("list", "GET", path, kind.plural, query, accept=accept)
            part = await decoded_object(await self.session.read(request), what)
            yield part
            query["continue"] = str(dig(part, "metadata", "continue", default=""))
            if not query["continue"]:
                return

    async def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yields the changes after `resource_version`, bookmarks included, until the server ends the stream.

        Returns normally when the server closes the stream cleanly. Raises the ApiError of an in-stream ``ERROR`` event,
        TransportError for a broken or garbled stream, and RequestTimedOut after `watch_inactivity` seconds of silence.
        `timeout_seconds` is the server's limit (default: `stream_seconds`).
        """
        params = _params(
            watch="1",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=str(timeout_seconds or stream_seconds(kind, self.session.watch_inactivity)),
        )
        request = Request("watch", "GET", kind.path(namespace=namespace), kind.plural, params)
        chunks = self.session.stream(request)
        async with aclosing(chunks), aclosing(decoded_events(chunks)) as events:
            async for event in events:
                yield event

    async def logs(
        self,
        key: ObjectKey,
        *,
        container: str,
        follow: bool = False,
        previous: bool = False,
        tail: int | None = None,
        since_seconds: int | None = None,
    ) -> AsyncGenerator[str, None]:
        """Yields the lines that a container of a pod has written, oldest first; with `follow` until it ends.

        - `previous`: those of the run before the one that is there. Raises BadRequest if there was none.
        - `tail`: only the last so many lines; `since_seconds`: only the lines of the last so many seconds.
        A line is cut after `LONGEST_LINE` bytes. The request ends when the caller closes the generator.
        """
        params = _params(
            container=container,
            follow="true" if follow else "",
            previous="true" if previous else "",
            tailLines="" if tail is None else str(tail),
            sinceSeconds="" if since_seconds is None else str(since_seconds),
        )
        path, resource = _address(POD, key, "log")
        request = Request("get", "GET", path, resource, params, accept=_ANYTHING)
        chunks = self.session.stream(request, silence=float("inf") if follow else None)
        async with aclosing(chunks), aclosing(text_lines(chunks)) as lines:
            async for line in lines:
                yield line

    async def proxied(
        self,
        kind: Kind,
        key: ObjectKey,
        *,
        port: int | str,
        path: str,
        method: str = "GET",
        body: object = None,
        scheme: str = "",
        silence: float | None = None,
        longest: int = LONGEST_LINE,
        most: int | None = None,
    ) -> AsyncGenerator[str, None]:
        """Yields the lines of the answer of a Service or pod behind the API server's proxy, as they arrive.

        `kind` is SERVICE or POD, `path` begins with a slash, `body` is sent as JSON. `silence` is the limit in seconds
        between two parts of the answer (None: that of watches). A line is cut after `longest` bytes; AnswerTooLarge is
        raised after `most`.

        Raises Forbidden without the right to ``get`` (with `method` POST: ``create``) the subresource ``proxy``, and
        the ApiError of an error answer, whether the server or the model sent it.
        """
        target = ":".join(filter(None, (scheme, _name_of(key), str(port))))
        subresource = f"proxy{quote(path, safe='/')}"
        at = f"{kind.path(namespace=key.namespace)}/{quote(target, safe=':')}/{subresource}"
        verb = "get" if method == "GET" else "create"
        request = Request(verb, method, at, f"{kind.plural}/proxy", body=body, accept=_ANYTHING)
        chunks = self.session.stream(request, silence=silence)
        async with aclosing(chunks), aclosing(text_lines(chunks, longest=longest, most=most)) as lines:
            async for line in lines:
                yield line

    async def version(self) -> tuple[int, int]:
        """Returns the major and minor version of the server. Raises MalformedAnswer if they are not numbers."""
        answer = await self.get_path("/version")
        numbers = [re.match(r"[0-9]+", str(answer.get(name))) for name in ("major", "minor")]
        if None in numbers:
            raise MalformedAnswer(f"the server's version is no version: {answer.get('major')}.{answer.get('minor')}")
        major, minor = (int(number[0]) for number in numbers if number is not None)
        return major, minor

    # ------------------------------------------------------------------------------------------------ writing

    async def create(
        self, kind: Kind, obj: Resource, *, manager: str = "", dry_run: bool = False, field_validation: str = ""
    ) -> Resource:
        """Creates an object; its name may be left to `metadata.generateName`. Raises AlreadyExists."""
        params = _write_params(manager=manager, dry_run=dry_run, field_validation=field_validation)
        path = kind.path(namespace=key_of(obj).namespace)
        return await self._json(Request("create", "POST", path, kind.plural, params, obj))

    async def apply(
        self,
        kind: Kind,
        obj: Resource,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "Strict",
    ) -> Resource:
        """Server-side apply: `obj` becomes the full set of fields that `manager` wants.

        Returns the whole live object. Raises Conflict if another manager owns a field and `force` is false; BadRequest
        or Invalid if the server does not know a field or refuses a value.
        """
        params = _write_params(manager=manager, dry_run=dry_run, field_validation=field_validation)
        if force:
            params["force"] = "true"
        path, resource = _address(kind, key_of(obj), subresource)
        return await self._json(Request("apply", "PATCH", path, resource, params, obj, _APPLY))

    async def merge_patch(
        self,
        kind: Kind,
        key: ObjectKey,
        patch: Resource,
        *,
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> Resource:
        """JSON merge patch (RFC 7386). A `metadata.resourceVersion` in the patch is a precondition.

        A `metadata.uid` is a precondition too, but not in the patch of a subresource: there the API server ignores it.
        """
        params = _write_params(manager=manager, dry_run=dry_run, field_validation=field_validation)
        path, resource = _address(kind, key, subresource)
        return await self._json(Request("patch", "PATCH", path, resource, params, patch, _MERGE))

    async def json_patch(
        self,
        kind: Kind,
        key: ObjectKey,
        operations: Sequence[Resource],
        *,
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> Resource:
        """JSON patch (RFC 6902). A failing `test` operation raises Invalid."""
        params = _write_params(manager=manager, dry_run=dry_run)
        path, resource = _address(kind, key, subresource)
        return await self._json(Request("patch", "PATCH", path, resource, params, list(operations), _JSON_PATCH))

    async def replace(
        self,
        kind: Kind,
        obj: Resource,
        *,
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> Resource:
        """Full update with optimistic locking. Raises Conflict if `metadata.resourceVersion` is not the current one."""
        params = _write_params(manager=manager, dry_run=dry_run, field_validation=field_validation)
        path, resource = _address(kind, key_of(obj), subresource)
        return await self._json(Request("update", "PUT", path, resource, params, obj))

    async def delete(
        self,
        kind: Kind,
        key: ObjectKey,
        *,
        uid: str = "",
        propagation: str = "Background",
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Requests deletion. Raises NotFound, and Conflict if the object with that name has another `uid`."""
        options: Resource = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if dry_run:
            options["dryRun"] = ["All"]
        path, resource = _address(kind, key)
        await self._json(Request("delete", "DELETE", path, resource, body=options))

    async def subject_access_review(
        self,
        *,
        user: str,
        verb: str,
        kind: Kind,
        groups: Sequence[str] = (),
        uid: str = "",
        extra: Mapping[str, Sequence[str]] | None = None,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> bool:
        """Whether `user` may do `verb` on `kind` in `namespace` (empty: in all namespaces)."""
        attributes = _params(
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
            subresource=subresource,
            namespace=namespace,
            name=name,
            verb=verb,
        )
        review: Resource = {
            "apiVersion": SUBJECT_ACCESS_REVIEW.api_version,
            "kind": SUBJECT_ACCESS_REVIEW.kind,
            "spec": {"user": user, "groups": list(groups), "resourceAttributes": attributes},
        }
        if uid:
            review["spec"]["uid"] = uid
        if extra:
            review["spec"]["extra"] = {k: list(v) for k, v in extra.items()}
        return bool(dig(await self.create(SUBJECT_ACCESS_REVIEW, review), "status", "allowed"))

    async def _json(self, request: Request) -> Resource:
        return await decoded_object(await self.session.read(request), f"{request.method} {request.path}")


def _params(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _write_params(*, manager: str = "", dry_run: bool = False, field_validation: str = "") -> dict[str, str]:
    return _params(fieldManager=manager, dryRun="All" if dry_run else "", fieldValidation=field_validation)


def _address(kind: Kind, key: ObjectKey, subresource: str = "") -> tuple[str, str]:
    """Returns the path of an object or of its subresource, and the name of that resource for `on_request`."""
    path = kind.path(namespace=key.namespace, name=_name_of(key), subresource=subresource)
    return path, f"{kind.plural}/{subresource}" if subresource else kind.plural


def _name_of(key: ObjectKey) -> str:
    if not key.name:
        raise ValueError("an object without metadata.name cannot be addressed")
    return key.name
