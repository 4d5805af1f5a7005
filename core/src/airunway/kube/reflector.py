"""A cache of all objects of one kind that follows the API server and recovers from every fault.

One loop lists in pages and then watches. After a fault it waits, and resumes the watch if that is safe; otherwise it
lists again. The new list is compared with the cache, which finds the deletions that the watch missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TypeAlias

from airunway.kube.client import Client
from airunway.kube.decoding import WatchEvent
from airunway.kube.errors import ApiError, Forbidden, Gone, KubeError, NotFound, TooManyRequests, Unauthorized
from airunway.kube.kinds import Kind
from airunway.kube.queue import Backoff
from airunway.resource import ObjectKey, Resource, uid_of

log = logging.getLogger(__name__)

Handler = Callable[[ObjectKey, Resource | None, Resource | None], None]
"""``handler(key, old, new)``: `old` is None for a new object, `new` is None for a deleted one."""

_TOMBSTONE_AGE = 300.0
"""Seconds for which a late event cannot bring a deleted object back."""

_AT_ONCE = 25
"""Objects of a list that are stored before the loop yields to other tasks."""

_SHORT_STREAM = 1.0
"""A stream that ends sooner than this (seconds) was not healthy, even if the server closed it cleanly."""


class Index:
    """The cached objects by a value that a function computes from each of them (owner, label, reference)."""

    def __init__(self, values: Callable[[Resource], Iterable[Hashable]]) -> None:
        self._values = values
        self._keys: dict[Hashable, dict[ObjectKey, Resource]] = {}

    def get(self, value: Hashable) -> list[Resource]:
        """Returns the objects that have `value`; empty if there are none."""
        return list(self._keys.get(value, {}).values())

    def count(self, value: Hashable) -> int:
        """Returns how many objects have `value`."""
        return len(self._keys.get(value, ()))

    def keys(self) -> list[Hashable]:
        """Returns the values that occur."""
        return list(self._keys)

    def _update(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        for value in self._values(old) if old is not None else ():
            bucket = self._keys.get(value)
            if bucket is not None:
                bucket.pop(key, None)
                if not bucket:
                    del self._keys[value]
        if new is not None:
            for value in self._values(new):
                self._keys.setdefault(value, {})[key] = new


class Reflector:
    """A cache that `run` keeps up to date. Its objects are shared: never change one.

    - `synced` is set after the first full list and stays set; reads may lag behind later, during faults.
    - `missing` is true from a 404 for the kind (its CRD is not installed) until a list succeeds or is forbidden; no
      other fault changes it. Cached objects stay until a list shows otherwise. `retry_now` ends the backoff (0.2–30 s).
    - `answered` is set once the kind is synced or missing for the first time, and stays set.
    - `project` trims an object before it is cached and passed to handlers; it may change the object in place. If it
      returns None, the object is treated as if it did not exist.
    - Handlers run inside the loop that reads: they must be quick and must not wait. An exception in one is logged.
    - `on_restart(cause)` is called whenever a fault makes a list or watch start again. `error` is the newest error of
      the server or the network; None after a list.
    - `optional`: a cluster that does not serve the kind is nothing to warn about.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        project: Callable[[Resource], Resource | None] | None = None,
        page_size: int = 500,
        backoff: Backoff | None = None,
        on_restart: Callable[[str], None] | None = None,
        optional: bool = False,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.optional = optional
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self.missing = False
        self.restarts = 0
        self.error: KubeError | None = None
        self.on_restart = on_restart
        self._client = client
        self._label_selector, self._field_selector = label_selector, field_selector
        self._project = project
        self._page_size = page_size
        self._backoff = backoff or Backoff(rng=random.Random())
        self._objects: dict[ObjectKey, Resource] = {}
        self._tombstones: dict[ObjectKey, tuple[float, str]] = {}
        self._handlers: list[Handler] = []
        self._resource_version: str | None = None
        self._newest = ""  # the newest version of all lists and events; kept when the list is to be read again
        self._poke = asyncio.Event()

    # ------------------------------------------------------------------------------------------------ reading

    def get(self, key: ObjectKey) -> Resource | None:
        return self._objects.get(key)

    def items(self) -> list[tuple[ObjectKey, Resource]]:
        """Returns all objects with their keys, as a copy: the caller may wait while it iterates."""
        return list(self._objects.items())

    def values(self) -> list[Resource]:
        return list(self._objects.values())

    def keys(self) -> list[ObjectKey]:
        return list(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self.keys())

    def add_handler(self, handler: Handler) -> None:
        """Calls `handler` at once for every cached object, and for every change from now on."""
        self._handlers.append(handler)
        for key, obj in self.items():
            self._call(handler, key, None, obj)

    def remove_handler(self, handler: Handler) -> None:
        """Stops calling `handler`."""
        self._handlers.remove(handler)

    def add_index(self, values: Callable[[Resource], Iterable[Hashable]]) -> Index:
        """Returns an index that is updated before any handler that is added later is called."""
        index = Index(values)
        self.add_handler(index._update)
        return index

    def forget(self, key: ObjectKey) -> None:
        """Drops an object that the reader keeps no longer; its next change, or a new list, brings it back."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._notify(key, old, None)

    def retry_now(self) -> None:
        """Ends a wait for the backoff; call it when the next attempt is likely to succeed."""
        self._poke.set()

    # ------------------------------------------------------------------------------------------------ following

    async def run(self) -> None:
        """Follows the server until cancelled; no fault of server or network ends it."""
        while True:
            try:
                if self._resource_version is None:
                    await self._list()
                clean = await self._watch()
            except KubeError as error:
                await self._recover(error)
            except Exception:  # a bug must not stop the cache, which would then be stale unnoticed
                log.exception("%s: reading failed in an unforeseen way; listing again", self.kind)
                self._resource_version = None
                await self._pause("bug", 0.0)
            else:
                if not clean:
                    await self._pause("short stream", 0.0)

    async def _recover(self, error: KubeError) -> None:
        """Decides from the error whether to resume the watch or to list again, and waits."""
        self.error = error
        cause = type(error).__name__
        first = self._backoff.failures == 0
        missing = isinstance(error, NotFound)
        if missing and not self.missing:
            level = logging.DEBUG if self.optional else logging.WARNING
            log.log(level, "%s is not served (%s); waiting for it", self.kind, error)
        if missing:
            self.missing = True
            self.answered.set()
        elif isinstance(error, Forbidden | Unauthorized):
            self.missing = False  # this is now what is to be reported; other faults say nothing of the kind
        if isinstance(error, ApiError) and (
            error.status == 504
            or not (isinstance(error, Forbidden | Unauthorized | TooManyRequests) or error.status >= 500)
        ):
            # The server does not accept our resourceVersion (410, 400, 404 of a replaced CRD, 504 for a version from
            # the future after a restore): only a new list is safe.
            self._resource_version = None
        if isinstance(error, Gone) and first:
            log.info("%s: history was compacted; listing again", self.kind)
            self._backoff.failures += 1
            self._restarted(cause)
            return
        if not missing:
            log.info("%s: %s", self.kind, error)
        await self._pause(cause, error.retry_after or 0.0 if isinstance(error, ApiError) else 0.0)

    async def _pause(self, cause: str, at_least: float) -> None:
        self._restarted(cause)
        self._poke.clear()
        try:
            async with asyncio.timeout(max(self._backoff.next(), at_least)):
                await self._poke.wait()
        except TimeoutError:
            pass

    def _restarted(self, cause: str) -> None:
        self.restarts += 1
        if self.on_restart is not None:
            self.on_restart(cause)

    async def _list(self) -> None:
        """Replaces the content of the cache with a consistent list."""
        seen: set[ObjectKey] = set()
        version = ""
        # A server that was restored from a backup uses the same versions again, for other content.
        restored = False
        pages = self._client.pages(
            self.kind,
            namespace=self.namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=self._page_size,
        )
        async with aclosing(pages) as stream:
            async for page in stream:
                version = page.resource_version
                restored = restored or is_older(version, self._newest)
                for position, item in enumerate(page.items):
                    if position % _AT_ONCE == 0:
                        await asyncio.sleep(0)
                    key = _key_of(item)
                    if key is None:
                        continue
                    seen.add(key)
                    old = self._objects.get(key)
                    known = old is not None and not restored and version_of(old) == version_of(item)
                    if not known or uid_of(old or {}) != uid_of(item):
                        self._store(key, old, item)
        for key in [key for key in self._objects if key not in seen]:
            self._remove(key, version)
        self._tombstones.clear()
        self._resource_version = self._newest = version
        self.missing, self.error = False, None
        if not self.synced.is_set():
            log.info("%s: %d objects", self.kind, len(self._objects))
            self.synced.set()
            self.answered.set()

    async def _watch(self) -> bool:
        """Follows one watch to its end; returns whether the watch was healthy."""
        assert self._resource_version is not None
        clock = asyncio.get_running_loop().time
        started = clock()
        events = self._client.watch(
            self.kind,
            resource_version=self._resource_version,
            namespace=self.namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        async with aclosing(events) as stream:
            async for event in stream:
                self._backoff.reset()
                self._on_event(event)
        return clock() - started >= _SHORT_STREAM

    def _on_event(self, event: WatchEvent) -> None:
        version = event.resource_version
        if event.type == "BOOKMARK":
            if is_older(version, self._resource_version):
                # The server's history ends before our version: it was restored from a backup.
                raise Gone(410, "Expired", "the server's version went backwards")
            self._advance(version)
            return
        key = _key_of(event.object)
        if key is None:
            return
        old = self._objects.get(key)
        if old is None:
            buried = self._tombstones.get(key)
            stale = buried is not None and not is_older(buried[1], version)
        else:
            known = version_of(old)
            stale = version == known or is_older(version, known)
        if not stale:
            if event.type == "DELETED":
                self._remove(key, version)
            else:
                self._store(key, old, event.object)
        self._advance(version)

    def _advance(self, version: str) -> None:
        """Moves the version at which the watch resumes to `version`, unless an event came out of order."""
        if version and not is_older(version, self._resource_version):
            self._resource_version = self._newest = version

    def _store(self, key: ObjectKey, old: Resource | None, new: Resource) -> None:
        if self._project is not None:
            try:
                projected = self._project(new)
            except Exception:
                log.exception("%s: projecting %s failed; keeping it whole", self.kind, key)
            else:
                if projected is None:
                    if old is not None:  # leaves a tombstone, as a deletion does: a late event must not bring it back
                        self._remove(key, version_of(new))
                    return
                new = projected
        self._objects[key] = new
        self._tombstones.pop(key, None)
        self._notify(key, old, new)

    def _remove(self, key: ObjectKey, version: str) -> None:
        now = asyncio.get_running_loop().time()
        while self._tombstones:
            oldest = next(iter(self._tombstones))
            if now - self._tombstones[oldest][0] < _TOMBSTONE_AGE:
                break
            del self._tombstones[oldest]
        self._tombstones[key] = (now, version)
        old = self._objects.pop(key, None)
        if old is not None:
            self._notify(key, old, None)

    def _notify(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        for handler in self._handlers:
            self._call(handler, key, old, new)

    def _call(self, handler: Handler, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        try:
            handler(key, old, new)
        except Exception:
            log.exception("%s: a handler failed for %s", self.kind, key)


def _key_of(obj: Resource) -> ObjectKey | None:
    """Returns the key, or None for an object without a name (no API server sends one, but a proxy might)."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(name := metadata.get("name"), str):
        log.warning("an object without a name was ignored")
        return None
    return ObjectKey(metadata.get("namespace") or "", name)


def version_of(obj: Resource) -> str:
    """Returns the resourceVersion of an object; empty if it has none."""
    version = (obj.get("metadata") or {}).get("resourceVersion")
    return version if isinstance(version, str) else ""


def is_older(left: str | None, right: str | None) -> bool:
    """Whether version `left` is before `right`. False if the two cannot be compared."""
    if not left or not right or not left.isdecimal() or not right.isdecimal():
        return False
    return int(left) < int(right)


class UnionReflector:
    """The union of reflectors that share no object; it is read and run like one `Reflector`.

    `synced` is set once all of them are synced, `answered` once all are answered; `missing` is true while the server
    answers 404 to any of them. Raises ValueError if there are no reflectors, or reflectors of different kinds.
    """

    kind: Kind
    namespace = ""

    def __init__(self, reflectors: Sequence[AnyReflector]) -> None:
        if not reflectors or any(reflector.kind != reflectors[0].kind for reflector in reflectors):
            raise ValueError("a union needs one reflector at least, and all of the same kind")
        self.kind = reflectors[0].kind
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self._parts = tuple(reflectors)
        apart = self.kind.namespaced and all(part.namespace for part in reflectors)
        self._by_namespace = {part.namespace: part for part in reflectors} if apart else {}

    @property
    def missing(self) -> bool:
        return any(part.missing for part in self._parts)

    @property
    def optional(self) -> bool:
        return all(part.optional for part in self._parts)

    @property
    def on_restart(self) -> Callable[[str], None] | None:
        return self._parts[0].on_restart

    @on_restart.setter
    def on_restart(self, hook: Callable[[str], None] | None) -> None:
        for part in self._parts:
            part.on_restart = hook

    def get(self, key: ObjectKey) -> Resource | None:
        if self._by_namespace:
            part = self._by_namespace.get(key.namespace)
            return part.get(key) if part is not None else None
        return next((found for part in self._parts if (found := part.get(key)) is not None), None)

    def items(self) -> list[tuple[ObjectKey, Resource]]:
        """Returns all objects with their keys, as a new list."""
        return [item for part in self._parts for item in part.items()]

    def values(self) -> list[Resource]:
        return [obj for _, obj in self.items()]

    def keys(self) -> list[ObjectKey]:
        return [key for key, _ in self.items()]

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self._parts)

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self.keys())

    def add_handler(self, handler: Handler) -> None:
        """Calls `handler` at once for every cached object, and for every change from now on."""
        for part in self._parts:
            part.add_handler(handler)

    def remove_handler(self, handler: Handler) -> None:
        """Stops calling `handler`."""
        for part in self._parts:
            part.remove_handler(handler)

    def add_index(self, values: Callable[[Resource], Iterable[Hashable]]) -> Index:
        """Returns one index over all objects that is updated before any handler that is added later is called."""
        index = Index(values)
        self.add_handler(index._update)
        return index

    def forget(self, key: ObjectKey) -> None:
        """Drops an object that the reader keeps no longer; its next change, or a new list, brings it back."""
        for part in self._parts:
            part.forget(key)

    def retry_now(self) -> None:
        """Ends the waits for the backoff; call it when the next attempts are likely to succeed."""
        for part in self._parts:
            part.retry_now()

    async def run(self) -> None:
        """Follows the server in all namespaces until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                group.create_task(part.run(), name=f"{self.kind.plural} in {part.namespace}")
            await self._first_answers()

    async def _first_answers(self) -> None:
        for part in self._parts:
            await part.answered.wait()
        self.answered.set()
        for part in self._parts:
            await part.synced.wait()
        self.synced.set()


AnyReflector: TypeAlias = Reflector | UnionReflector


def reflector_of(
    client: Client,
    kind: Kind,
    *,
    namespaces: Sequence[str] = (),
    label_selector: str = "",
    field_selector: str = "",
    project: Callable[[Resource], Resource | None] | None = None,
    page_size: int = 500,
    optional: bool = False,
) -> AnyReflector:
    """Returns the cache of a kind in `namespaces`, or in the whole cluster if there are none."""

    def within(namespace: str) -> Reflector:
        return Reflector(
            client,
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            project=project,
            page_size=page_size,
            optional=optional,
        )

    if not namespaces or not kind.namespaced:
        return within("")
    parts = [within(namespace) for namespace in dict.fromkeys(namespaces)]
    return parts[0] if len(parts) == 1 else UnionReflector(parts)
