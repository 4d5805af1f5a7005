"""JSON paths such as ``spec.env[3].name``, built only where one is reported.

Users choose how long the keys of a free-form field are and how many children they have: a text for each child would
cost their product. A `JsonPath` holds its parent and its last step instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["MAX_PATH", "JsonPath", "entries", "shortened", "values_at"]

MAX_PATH = 256
"""Characters of a path in a message or in the cause of a refusal."""


class JsonPath(NamedTuple):
    """A key of an object or an index of a list (`step`) below `parent`; the root has its whole path as step."""

    parent: JsonPath | None
    step: str | int

    def __str__(self) -> str:
        """The path, as ``spec.env[3].name``; a long one without its middle."""
        return shortened(self.full())

    def full(self) -> str:
        """The whole path, however long it is."""
        head: list[str] = []
        place: JsonPath | None = self
        while place is not None:
            step = place.step
            head.append(f"[{step}]" if isinstance(step, int) else step if place.parent is None else f".{step}")
            place = place.parent
        return "".join(reversed(head)).removeprefix(".")


def shortened(path: str, limit: int = MAX_PATH) -> str:
    """`path` in at most `limit` characters: its beginning and its end, which tell most."""
    if len(path) <= limit:
        return path
    end = limit // 2
    return f"{path[: limit - end - 1]}…{path[-end:]}"


def entries(
    value: object, root: str, *, below: Callable[[str], bool] = lambda _key: True
) -> Iterator[tuple[JsonPath, str, Any]]:
    """Place, key and value of every entry of every object inside `value`, which stands at `root`.

    What is under a key for which `below` is false is passed over. Never raises, however deep `value` is.
    """
    pending: list[tuple[JsonPath, Any]] = [(JsonPath(None, root), value)]
    while pending:
        at, node = pending.pop()
        if isinstance(node, Mapping):
            for key, child in node.items():
                place = JsonPath(at, str(key))
                yield place, str(key), child
                if isinstance(child, Mapping | list | tuple) and below(str(key)):
                    pending.append((place, child))
        elif isinstance(node, list | tuple):
            pending.extend(
                (JsonPath(at, index), child)
                for index, child in enumerate(node)
                if isinstance(child, Mapping | list | tuple)
            )


def values_at(obj: object, path: str) -> Iterator[Any]:
    """Whatever stands at a place of an object, as `UpstreamKind.pods` names places.

    ``*`` is each value of a map, ``[*]`` each element of a list.
    """
    yield from _below(obj, path.replace("[*]", ".[*]").split("."))


def _below(node: Any, steps: Sequence[str]) -> Iterator[Any]:
    if not steps:
        yield node
        return
    step, *rest = steps
    if step == "[*]":
        for each in node if isinstance(node, list) else ():
            yield from _below(each, rest)
    elif isinstance(node, dict):
        for each in node.values() if step == "*" else [node[step]] if step in node else ():
            yield from _below(each, rest)
