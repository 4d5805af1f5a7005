"""Our own writes: a cache that knows their answers, the writer of a status, and finalizers.

Example of the cache (client-go: MutationCache): a reconcile creates a Service, and an event of a pod arrives before the
watch delivers that Service. Without the API server's answer to the create, the next reconcile would find no Service and
would write again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from airunway.kube.apply import needs_apply
from airunway.kube.client import Client
from airunway.kube.errors import Conflict, Invalid, NotFound
from airunway.kube.kinds import Kind
from airunway.kube.reflector import Handler, is_older, version_of
from airunway.resource import ObjectKey, Resource, key_of, uid_of

Listener = Callable[[ObjectKey, Resource | None, Resource | None, bool], None]
"""``listener(key, old, new, echo)``: like a handler; `echo` is true if `new` is the answer to a write of ours."""


class Store(Protocol):
    """The methods of a Reflector that `MutationCache` uses."""

    def get(self, key: ObjectKey) -> Resource | None: ...
    def add_handler(self, handler: Handler) -> None: ...


class MutationCache:
    """A reflector's cache, overlaid with the answers to our own writes.

    An answer is dropped when the watch has delivered that state or a newer one, or after `patience` seconds: between
    two watches an object can be created and deleted without an event. An answer is also ignored if the watch delivered
    the object's deletion before it, because no later event would remove it.

    `project` is applied to the answers as the cache does to its objects; `restore` turns a kept object into what `get`
    returns.
    """

    def __init__(
        self,
        cache: Store,
        *,
        project: Callable[[Resource], Resource] | None = None,
        restore: Callable[[Resource], Resource] | None = None,
        patience: float = 10.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._cache = cache
        self._project = project or (lambda obj: obj)
        self._restore = restore or (lambda obj: obj)
        self.patience = patience
        self._clock = clock
        self._written: dict[ObjectKey, tuple[Resource, float]] = {}
        self._listeners: list[Listener] = []
        self._under_way: dict[ObjectKey, int] = {}
        self._pending: dict[ObjectKey, tuple[Resource | None, Resource | None, bool]] = {}
        self._gone: dict[ObjectKey, set[str]] = {}  # the uids that were deleted since a write began
        cache.add_handler(self._on_change)

    def note(self, answer: Resource) -> None:
        """Remembers the API server's answer to a write of ours."""
        key = key_of(answer)
        if uid_of(answer) not in self._gone.get(key, ()):
            self._written[key] = (self._project(answer), self._clock())

    def get(self, key: ObjectKey) -> Resource | None:
        """Returns the newest known state of an object, or None."""
        newest = self._newest(key)
        return None if newest is None else self._restore(newest)

    def _newest(self, key: ObjectKey) -> Resource | None:
        cached = self._cache.get(key)
        entry = self._written.get(key)
        if entry is None:
            return cached
        answer, at = entry
        if self._clock() - at > self.patience or (
            cached is not None and not is_older(version_of(cached), version_of(answer))
        ):
            del self._written[key]
            return cached
        return answer

    def unconfirmed(self, key: ObjectKey) -> bool:
        """Whether `get` returns an answer that the watch has not confirmed yet."""
        return self._newest(key) is not None and key in self._written

    def add_listener(self, listener: Listener) -> None:
        """Calls `listener` for every change of the cache from now on.

        The watch often delivers a write before its answer arrives. Changes of an object during a write are therefore
        reported when the write is over: as one change, which is an echo if nothing changed after our write.
        """
        self._listeners.append(listener)

    @contextmanager
    def writing(self, key: ObjectKey) -> Iterator[None]:
        """Marks the object as being written; use it around the request and the `note` of its answer."""
        self._under_way[key] = self._under_way.get(key, 0) + 1
        try:
            yield
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
                self._gone.pop(key, None)
                if (pending := self._pending.pop(key, None)) is not None:
                    old, new, echo = pending
                    # The echo may be a late one of the previous write, or that of this write.
                    self._tell(key, old, new, echo=echo or self._is_answer(key, new))

    def _tell(self, key: ObjectKey, old: Resource | None, new: Resource | None, *, echo: bool) -> None:
        for listener in self._listeners:
            listener(key, old, new, echo)

    def _is_answer(self, key: ObjectKey, new: Resource | None) -> bool:
        """Whether `new` is the API server's answer to our last write."""
        entry = self._written.get(key)
        return entry is not None and new is not None and version_of(entry[0]) == version_of(new)

    def _on_change(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        entry, echo = self._written.get(key), self._is_answer(key, new)
        if key in self._under_way:
            before, *_ = self._pending.get(key, (None,))
            self._pending[key] = (old if before is None else before, new, echo)
            if old is not None and (new is None or uid_of(new) != uid_of(old)):
                self._gone.setdefault(key, set()).add(uid_of(old))
        else:
            self._tell(key, old, new, echo=echo)
        if entry is None:
            return
        gone = new is None and old is not None and uid_of(old) == uid_of(entry[0])
        if gone or (new is not None and not is_older(version_of(new), version_of(entry[0]))):
            del self._written[key]


class StatusWriter:
    """Applies the status of objects of one kind as one field manager; `objects` is their cache.

    `on_write(object, status)` is called after each write, with the object before the write.
    """

    def __init__(
        self,
        *,
        client: Client,
        kind: Kind,
        objects: MutationCache,
        manager: str,
        on_write: Callable[[Resource, Resource], None] = lambda _object, _status: None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._objects = objects
        self._manager = manager
        self._on_write = on_write

    async def write(
        self, obj: Resource, status: Resource, *, force: bool = True, compared: Resource | None = None
    ) -> bool:
        """Makes `status` all that the manager owns of the object's status.

        Returns False if nothing had to be written, or if the object is gone.

        The resourceVersion of `obj` is the precondition, because the API server checks no uid for a subresource
        (kube-apiserver 1.36 replaces the sent metadata by the stored object's before validation): otherwise a new
        object with the same name could get the status of the old one. `compared` (default: `obj`) is the live object
        that the status is compared with. Raises Conflict if the object was written meanwhile, or, with `causes`, if
        another manager owns a field and `force` is false.
        """
        known = {field: obj["metadata"].get(field) for field in ("name", "namespace", "resourceVersion")}
        body = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {field: value for field, value in known.items() if value},
            "status": status,
        }
        live = obj if compared is None else compared
        if not needs_apply(body, live, manager=self._manager, subresource="status"):
            return False
        with self._objects.writing(key_of(obj)):
            try:
                answer = await self._client.apply(
                    self._kind, body, manager=self._manager, force=force, subresource="status"
                )
            except NotFound:
                return False
            self._objects.note(answer)
        self._on_write(obj, status)
        return True


async def add_finalizer(client: Client, kind: Kind, obj: Resource, finalizer: str, *, manager: str) -> Resource:
    """Adds `finalizer` to `obj`, which does not have it; returns the new state of the object.

    Raises NotFound, and Conflict if there is another object with that name, or its finalizers have changed: the event
    of the newer state causes the next pass.
    """
    present = obj["metadata"].get("finalizers") or None
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/finalizers", "value": present},
        {"op": "add", "path": "/metadata/finalizers", "value": [*(present or ()), finalizer]},
    ]
    try:
        return await client.json_patch(kind, key_of(obj), operations, manager=manager)
    except Invalid as error:
        raise Conflict(409, "Conflict", f"the finalizers changed meanwhile: {error.message}") from error


async def remove_finalizers(
    client: Client, kind: Kind, obj: Resource, finalizers: Collection[str], *, manager: str
) -> Resource | None:
    """Removes `finalizers`, which `obj` has, in one write; returns the new state, or None if the object is gone.

    Raises Conflict if the object's finalizers have changed: the event of the newer state causes the next pass.
    """
    present = obj["metadata"]["finalizers"]
    path = "/metadata/finalizers"
    operations = [
        {"op": "test", "path": path, "value": present},
        {"op": "replace", "path": path, "value": [each for each in present if each not in finalizers]},
    ]
    try:
        return await client.json_patch(kind, key_of(obj), operations, manager=manager)
    except NotFound:
        return None
    except Invalid as error:
        raise Conflict(409, "Conflict", f"the finalizers changed meanwhile: {error.message}") from error
