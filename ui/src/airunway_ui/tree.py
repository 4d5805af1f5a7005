"""A page as a tree, and what changes from one to the next: patches that a script builds elements from.

Trusted Types forbid a script to parse HTML. So the server parses what it has rendered itself, and sends trees of tags,
attributes and texts. The age in a ``time`` element is left out: the script writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, TypeAlias

Node: TypeAlias = list[Any]
"""``[tag, attributes, children]``; a child is a node or a text."""

Patch: TypeAlias = Node | dict[str, Any]
"""An element that takes the place of the one with its ``id``; or, of the element ``in``, the ``order`` of its children,
of which some are ``made``."""

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})
_VERBATIM = frozenset({"pre", "textarea"})
_FLOWING = frozenset({"p", "li", "td", "th", "dd", "dt", "span", "a", "h1", "h2", "h3", "button", "label", "summary"})
"""Elements in which a blank between two others is seen."""


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: Node = ["root", {}, []]
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node: Node = [tag, {name: value or "" for name, value in attrs}, []]
        self._open[-1][2].append(node)
        if tag not in _VOID:
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if self._open[-1][0] != tag:
            raise ValueError(f"</{tag}> closes <{self._open[-1][0]}>")
        self._open.pop()

    def handle_data(self, data: str) -> None:
        parent = self._open[-1]
        if parent[0] == "time":
            return
        if parent[0] in _VERBATIM:
            parent[2].append(data)
            return
        text = " ".join(data.split())
        if text:
            before, after = (" " if each.isspace() else "" for each in (data[0], data[-1]))
            parent[2].append(f"{before if parent[2] else ''}{text}{after}")
        elif parent[0] in _FLOWING and parent[2]:
            parent[2].append(" ")


def parsed(html: str) -> Node:
    """Returns the tree of a part of a page. Raises ValueError if its elements are not closed in order."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    if len(builder._open) != 1:
        raise ValueError(f"<{builder._open[-1][0]}> is not closed")
    return builder.root


def patches(old: Node, new: Node) -> Iterator[Patch]:
    """Yields what has to be done: the smallest elements with an ``id`` that have all differences, and the order of
    children that come, go or move where all of them have an ``id``.

    Both are the same element. Raises ValueError where the difference is in no element with an ``id``.
    """
    if old == new:
        return
    inner = _inner(old, new)
    if inner is not None:
        yield from inner
    elif "id" in new[1]:
        yield new
    else:
        raise ValueError(f"<{new[0]}> changes, and neither it nor an element around it has an id")


def _inner(old: Node, new: Node) -> list[Patch] | None:
    """The patches below two elements; None if they themselves differ, or a child without ``id`` does."""
    if old[:2] != new[:2]:
        return None
    ids, former = _ids(new), _ids(old)
    if ids is not None and former is not None and list(ids) != list(former) and new[1].get("id"):
        return _moved(new[1]["id"], former, ids)
    if len(old[2]) != len(new[2]):
        return None
    found: list[Patch] = []
    for before, after in zip(old[2], new[2], strict=True):
        if before == after:
            continue
        below = _below(before, after)
        if below is None:
            return None
        found += below
    return found


def _below(before: Any, after: Any) -> list[Patch] | None:
    """The patches for a child and its successor; None if they are not the same element with an ``id``."""
    if not isinstance(before, list) or not isinstance(after, list):
        return None
    inner = _inner(before, after)
    if inner is not None:
        return inner
    same = before[0] == after[0] and after[1].get("id") and before[1].get("id") == after[1]["id"]
    return [after] if same else None


def _ids(node: Node) -> dict[str, Node] | None:
    """The children by ``id``; None if one has none, or has that of another."""
    found = {each[1]["id"]: each for each in node[2] if isinstance(each, list) and each[1].get("id")}
    return found if len(found) == len(node[2]) else None


def _moved(name: str, former: dict[str, Node], ids: dict[str, Node]) -> list[Patch]:
    """The new order of children with those that come, and the patches for those that stay."""
    made = [node for each, node in ids.items() if each not in former]
    found: list[Patch] = [{"in": name, "order": list(ids), "made": made}]
    for each, node in ids.items():
        if each in former and former[each] != node:
            found += _below(former[each], node) or [node]
    return found
