"""Several reflectors that read as one: the same kind in some namespaces, where the whole cluster is not ours to read.

Each namespace has a list and a watch of its own, so that a Role there is enough (spec/core.md, ``--watch-namespaces``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

from airunway.kube.client import Client
from airunway.kube.kinds import Kind
from airunway.kube.reflector import Handler, Index, Reflector
from airunway.resource import ObjectKey, Resource

__all__ = ["AnyReflector", "UnionReflector", "reflector_of"]


class UnionReflector:
    """The union of reflectors that share no object. It is read and run like one `Reflector`.

    `synced` is set once all of them have seen everything; `missing` is true while any of them is told that the kind is
    not served. Raises ValueError for no reflectors, or reflectors of different kinds.
    """

    kind: Kind
    namespace = ""

    def __init__(self, reflectors: Sequence[AnyReflector]) -> None:
        if not reflectors or any(reflector.kind != reflectors[0].kind for reflector in reflectors):
            raise ValueError("a union needs one reflector at least, and all of the same kind")
        self.kind = reflectors[0].kind
        self.synced = asyncio.Event()
        self._parts = tuple(reflectors)
        apart = self.kind.namespaced and all(part.namespace for part in reflectors)
        self._by_namespace = {part.namespace: part for part in reflectors} if apart else {}

    @property
    def missing(self) -> bool:
        return any(part.missing for part in self._parts)

    @property
    def restarts(self) -> int:
        return sum(part.restarts for part in self._parts)

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
        """All objects with their keys, as a new list."""
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
        """Calls `handler` for every change from now on, and at once for every object that is already here."""
        for part in self._parts:
            part.add_handler(handler)

    def remove_handler(self, handler: Handler) -> None:
        """No longer calls `handler`."""
        for part in self._parts:
            part.remove_handler(handler)

    def add_index(self, values: Callable[[Resource], Iterable[Hashable]]) -> Index:
        """One index over all objects, up to date before any handler added after it is called."""
        index = Index(values)
        self.add_handler(index._update)
        return index

    def retry_now(self) -> None:
        """End the waits for the backoff: something says that the next attempt will go better."""
        for part in self._parts:
            part.retry_now()

    async def run(self) -> None:
        """Follows the server in all namespaces until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                group.create_task(part.run(), name=f"{self.kind.plural} in {part.namespace}")
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
) -> AnyReflector:
    """The cache of a kind in `namespaces`, or in the whole cluster where none are given."""

    def within(namespace: str) -> Reflector:
        return Reflector(
            client,
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            project=project,
            page_size=page_size,
        )

    if not namespaces or not kind.namespaced:
        return within("")
    parts = [within(namespace) for namespace in dict.fromkeys(namespaces)]
    return parts[0] if len(parts) == 1 else UnionReflector(parts)
