"""JSON paths such as ``spec.env[3].name``, converted to text only when they are reported.

Users choose the length and the number of the keys in a free-form field, and a text for each path would cost their
product. A `JsonPath` has its parent and its last step instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MAX_PATH = 256
"""Characters of a path in a message or in the cause of a refusal."""


class JsonPath(NamedTuple):
    """A path as a linked list."""

    parent: JsonPath | None
    """The path above; None for the root."""
    step: str | int
    """A key of an object or an index of a list; for the root its whole path."""

    def __str__(self) -> str:
        """Returns the path, such as ``spec.env[3].name``; a long one without its middle."""
        return shortened(self.full())

    def full(self) -> str:
        """Returns the whole path, of any length."""
        head: list[str] = []
        place: JsonPath | None = self
        while place is not None:
            step = place.step
            head.append(f"[{step}]" if isinstance(step, int) else step if place.parent is None else f".{step}")
            place = place.parent
        return "".join(reversed(head)).removeprefix(".")


def shortened(path: str, limit: int = MAX_PATH) -> str:
    """Returns `path` in at most `limit` characters: its start and its end."""
    if len(path) <= limit:
        return path
    end = limit // 2
    return f"{path[: limit - end - 1]}…{path[-end:]}"


def entries(
    value: object, root: str, *, below: Callable[[str], bool] = lambda _key: True
) -> Iterator[tuple[JsonPath, str, Any]]:
    """Yields path, key and value of every entry of every object inside `value`, whose own path is `root`.

    Skips what is under a key for which `below` is false. Never raises, for any depth of `value`.
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
    """Yields the values at a path of an object, with the syntax of `UpstreamKind.pods`.

    ``*`` means each value of a map, ``[*]`` each element of a list.
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
