"""Writes the part of a status that one field manager owns: compares, applies, and remembers the answer."""

from __future__ import annotations

from collections.abc import Callable

from airunway.kube.apply import needs_apply
from airunway.kube.client import Client
from airunway.kube.errors import NotFound
from airunway.kube.kinds import Kind
from airunway.kube.mutation_cache import MutationCache
from airunway.resource import Resource, key_of

__all__ = ["StatusWriter"]


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
