"""Holds what a decision reads of an object against the changes of the object that bring a pass.

There is no resync: where a pass reads a field whose change wakes nothing, what it made of the field stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from airunway.resource import Resource, copy_of

Path = tuple[str, ...]

FIXED = {("metadata", name) for name in ("name", "namespace", "uid", "generation", "creationTimestamp")}
"""What no writer changes in an existing object; the generation stands for the spec."""


class Recorded(dict[str, Any]):
    """An object that notes which of its fields are read. A condition is a field of its type."""

    def __init__(self, fields: Resource, paths: set[Path], at: Path = ()) -> None:
        def wrapped(value: object, path: Path) -> object:
            if isinstance(value, dict):
                return Recorded(value, paths, path)
            if isinstance(value, list):
                return [wrapped(each, (*path, _name_of(each))) for each in value]
            return value

        super().__init__({key: wrapped(value, (*at, key)) for key, value in fields.items()})
        self._paths, self._at = paths, at

    def _note(self, key: str) -> None:
        if not isinstance(super().get(key), dict | list) and not (self._at[1:2] == ("conditions",) and key == "type"):
            self._paths.add((*self._at, key))

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self._note(key)
            yield key

    def keys(self) -> Any:
        return list(self)

    def items(self) -> Any:
        return [(key, super(Recorded, self).get(key)) for key in self]

    def values(self) -> Any:
        return [value for _, value in self.items()]


def _name_of(item: object) -> str:
    return str(item.get("type", "")) if isinstance(item, dict) else ""


def unheeded(
    decide: Callable[[Resource], object],
    wakes: Callable[[Resource, Resource], bool],
    corpus: Iterable[Resource],
    *,
    besides: Collection[Path],
) -> set[str]:
    """The fields that `decide` reads of an object of the corpus although no change of them `wakes`, or that change what
    it decides without waking; not those below `besides`, which the part itself writes.
    """
    found: set[Path] = set()
    for obj in corpus:
        paths: set[Path] = set()
        before = decide(obj)
        decide(Recorded(obj, paths))
        for path in paths | set(_leaves(obj)):
            if path[0] not in ("metadata", "status") or any(path[: len(each)] == each for each in FIXED | {*besides}):
                continue
            others = list(_variants(obj, path))
            if path in paths and not any(wakes(obj, other) for other in others):
                found.add(path)
            found |= {path for other in others if not wakes(obj, other) and decide(other) != before}
    return {".".join(path) for path in found}


def _leaves(value: object, at: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _leaves(below, (*at, key))
    elif isinstance(value, list) and value:
        for each in value:
            yield (*at, _name_of(each))
            yield from _leaves(each, (*at, _name_of(each)))
    else:
        yield at


_VALUES = (
    *("another", "True", "False", "Running", "NotAllowed", "User", 0),
    *({"a": "b"}, {"percentage": 55, "totalBytes": 100, "claimUID": "u"}),
)


def _variants(obj: Resource, path: Path) -> Iterator[Resource]:
    """The object without a field, and with other values of it."""
    for value in (None, *(_VALUES if path[0] == "status" else [{"a": "b"}] if len(path) == 2 else ["true"])):
        other = copy_of(obj)
        node: Any = other
        for step in path[:-1]:
            if isinstance(node, list):
                node = next(each for each in node if _name_of(each) == step)
            else:
                node = node.setdefault(step, {}) if value is not None else node.get(step, {})
            if not isinstance(node, dict | list):
                return
        last = path[-1]
        if isinstance(node, list):
            if value is not None:
                return
            node[:] = [each for each in node if _name_of(each) != last]
        elif value is None:
            node.pop(last, None)
        else:
            node[last] = value
        if other != obj:
            yield other
