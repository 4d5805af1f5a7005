"""What a reconciler remembers of each object between passes. Nothing depends on it after a restart."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from airunway.resource import ObjectKey, Resource, key_of, uid_of

T = TypeVar("T")


class Memories(Generic[T]):
    """One memory, made by `new`, for each object. Another object with the same name has a memory of its own."""

    def __init__(self, new: Callable[[], T]) -> None:
        self._new = new
        self._known: dict[ObjectKey, tuple[str, T]] = {}

    def find(self, obj: Resource) -> T | None:
        """The memory of an object; None if nothing is remembered of it."""
        uid, memory = self._known.get(key_of(obj), ("", None))
        return memory if uid == uid_of(obj) else None

    def of(self, obj: Resource) -> T:
        """The memory of an object; a new one if nothing is remembered of it."""
        memory = self.find(obj)
        if memory is None:
            memory = self._new()
            self._known[key_of(obj)] = uid_of(obj), memory
        return memory

    def forget(self, key: ObjectKey) -> None:
        """Drop the memory of an object that is gone."""
        self._known.pop(key, None)

    def keep(self, keys: Collection[ObjectKey]) -> None:
        """Drop the memories of all other objects."""
        self._known = {key: known for key, known in self._known.items() if key in keys}
