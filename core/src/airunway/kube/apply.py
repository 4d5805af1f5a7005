"""Decides whether a server-side apply is needed, from the wanted object, the live object and its managedFields.

These are pure functions over `metadata.managedFields` (fieldsV1); they need no request.

They do not know the schema, so one case is undecidable: in the elements of an atomic list, a key that the live object
has and the wanted one does not may be the server's default, or one that we applied earlier. It is treated as a default.
If that matters to a caller, it can put a digest of what it applies into an annotation, as this project does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import orjson

from airunway.quantity import same_quantity
from airunway.resource import Resource, dig, list_at

_QUANTITY_FIELDS = frozenset(
    ("allocatable", "capacity", "divisor", "hard", "limits", "overhead", "requests", "size", "sizeLimit", "storage")
)
"""Fields below which texts are compared by amount: the server writes ``1000m`` back as ``1``."""

_KEY_DEFAULTS = {"protocol": "TCP"}
"""Defaults of fields that belong to a list key (ports); the server fills them in before it matches items."""

_ATOMIC_DEFAULTS = {"fieldRef": {"apiVersion": "v1"}, "resourceFieldRef": {"divisor": "0"}}
"""Fields that the server adds inside atomic objects of a pod spec."""

_ZEROS = ("", 0, False)

_IDENTITY = frozenset(
    ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
)

_Fields: TypeAlias = Mapping[str, Any]
"""A node of a fieldsV1 tree. An empty node is a leaf: the manager owns everything below it as a whole."""

_Key: TypeAlias = tuple[tuple[str, Any], ...]
"""The key of an element of an associative list: ``(("name", "a"),)``."""

_Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """A field whose live value differs from the wanted one."""

    path: str
    manager: str | None
    """The field's present owner; None: it has none, because the field was removed."""


def needs_apply(desired: Resource, live: Resource | None, *, manager: str, subresource: str = "") -> bool:
    """Whether applying `desired` as `manager` would change the live object or the fields that `manager` owns.

    True if a wanted value is missing or different, if `manager` does not own a wanted field, or if it owns a field that
    is no longer wanted. Fields of other managers do not matter. `metadata.uid` and `resourceVersion` in `desired` are
    preconditions. `live` must still have the managedFields entry of `manager` (a cache may drop the other entries).
    """
    if live is None:
        return True
    mine = [fields for _, fields in _entries(live, manager=manager, subresource=subresource)]
    return _differs(desired, live, mine, _Walk(mine=True))


def has_content_of(desired: Resource, live: Resource, *, manager: str) -> bool:
    """Whether all that `manager` has applied to the live object, its metadata apart, is what `desired` has.

    Unlike in `needs_apply`, a field inside an atomic list that only the live object has counts as applied, not as a
    default of the server: for callers that have no digest of what was applied, and for which False is the safe answer.
    """
    if live.get("apiVersion") != desired.get("apiVersion"):
        return False
    mine = [{k: v for k, v in fields.items() if k != "f:metadata"} for _, fields in _entries(live, manager=manager)]
    content = {name: value for name, value in desired.items() if name != "metadata"}
    return not _differs(content, live, mine, _Walk(mine=True, exact=True))


def _differs(desired: Resource, live: Resource, mine: Sequence[_Fields], walk: _Walk) -> bool:
    if next(walk.all_differences(desired, live, mine), None):
        return True
    return any(next(_removed(fields, desired, path=()), None) for fields in mine)


def changed_fields(desired: Resource, live: Resource, *, manager: str) -> list[FieldChange]:
    """Returns the fields in which the live object differs from `desired`, with the present manager of each.

    Needs the complete managedFields. If several others own a field, the last writer is named. If no wanted value
    differs, the fields are those that `manager` does not own any more; of an atomic list what was added to it, if
    anything was.
    """
    everyone = [fields for _, fields in _entries(live)]
    paths = [*_Walk(mine=False).all_differences(desired, live, everyone)]
    if not paths:
        mine = [fields for _, fields in _entries(live, manager=manager)]
        taken = [*_Walk(mine=True).all_differences(desired, live, mine)]
        added = [*_Walk(mine=False, exact=True).all_differences(desired, live, everyone)] if taken else []
        paths = [path for path in added if any(path[: len(above)] == above for above in taken)] or taken
    return [FieldChange(path=_text(path), manager=_last_writer(live, path, but=manager)) for path in paths]


def previous_content(desired: Resource, live: Resource, *, manager: str) -> Resource:
    """Returns what `manager` has applied to the live object, in the words of `desired`, so that both can be compared.

    Values that mean the same (``1000m`` and ``1``) are written as in `desired`, whose order is kept; fields of other
    managers and the server's defaults are left out, those inside of atomic lists as far as `desired` has them too.
    """
    mine = [fields for _, fields in _entries(live, manager=manager)]
    found: Resource = {key: live[key] for key in ("apiVersion", "kind") if key in live}
    wanted = dict(_content(desired))
    there = dict(_content(live))
    owned = [step.removeprefix("f:") for node in mine for step in node if step.startswith("f:")]
    for name in dict.fromkeys([*wanted, *owned]):
        if name in there:
            below = _descend(mine, f"f:{name}")
            found[name] = _previous(wanted.get(name), there[name], below, covered=False, path=(name,))
    metadata = {key: value for key, value in live["metadata"].items() if key in ("name", "namespace")}
    return {**found, "metadata": {**metadata, **found.get("metadata", {})}}


def _previous(want: Any, have: Any, nodes: list[_Fields], *, covered: bool, path: _Path) -> Any:
    whole = covered or (bool(nodes) and not any(nodes))
    if isinstance(have, dict):
        return _previous_map(want if isinstance(want, dict) else {}, have, nodes, whole=whole, path=path)
    if isinstance(have, list):
        return _previous_list(want if isinstance(want, list) else [], have, nodes, whole=whole, path=path)
    return want if want is not None and _same_value(want, have, path) else have


def _previous_map(want: Resource, have: Resource, nodes: list[_Fields], *, whole: bool, path: _Path) -> Resource:
    defaults = _ATOMIC_DEFAULTS.get(path[-1], {})
    found = {}
    for name in dict.fromkeys([*want, *have]):
        below = _descend(nodes, f"f:{name}")
        owned = whole or any(f"f:{name}" in node for node in nodes)
        if name in have:
            if (name in want or owned) and not (name not in want and name in defaults and defaults[name] == have[name]):
                found[name] = _previous(want.get(name), have[name], below, covered=whole, path=(*path, name))
        elif owned and (want[name] in _ZEROS or want[name] in ({}, [])):
            found[name] = want[name]  # the server does not store some zero values
    return found


def _previous_list(want: list[Any], have: list[Any], nodes: list[_Fields], *, whole: bool, path: _Path) -> list[Any]:
    steps = [step for node in nodes for step in node]
    if any(step.startswith("v:") for step in steps):
        ours = [value for value in have if any(_has_value(node, value) for node in nodes)]
        return [value for value in want if value in ours] + [value for value in ours if value not in want]
    elements = _elements(nodes)
    if not elements:
        return [
            _previous(want[index] if index < len(want) else None, item, [], covered=whole, path=(*path, f"[{index}]"))
            for index, item in enumerate(have)
        ]
    names = [name for name, _ in elements[0][0]]
    found: list[Any] = []
    for item in [*want, *have]:
        key = _key_of(item, names)
        there = next((other for other in have if _has_key(other, key)), None)
        below: list[_Fields] = [child for owned, child in elements if _has_key(item, owned)]
        if there is None or not below or any(_has_key(done, key) for done in found):
            continue
        wanted = next((other for other in want if _has_key(other, key)), None)
        found.append(_previous(wanted, there, below, covered=whole, path=(*path, f"[{_label(key)}]")))
    return found


# ------------------------------------------------------------------------------------------------------ managedFields


def _entries(live: Resource, *, manager: str | None = None, subresource: str = "") -> list[tuple[Resource, _Fields]]:
    found: list[tuple[Resource, _Fields]] = []
    for entry in list_at(live, "metadata", "managedFields"):
        fields = dig(entry, "fieldsV1")
        if not isinstance(fields, dict):
            continue
        if manager is not None and (
            entry.get("manager") != manager
            or entry.get("operation") != "Apply"
            or (entry.get("subresource") or "") != subresource
        ):
            continue
        found.append((entry, fields))
    return found


def _descend(nodes: Sequence[_Fields], step: str) -> list[_Fields]:
    return [child for node in nodes if isinstance(child := node.get(step), dict)]


def _elements(nodes: Sequence[_Fields]) -> list[tuple[_Key, _Fields]]:
    """Returns the owned elements of an associative list; none for another list."""
    return [
        (key, child)
        for node in nodes
        for step, child in node.items()
        if (key := _list_key(step)) and isinstance(child, dict)
    ]


@lru_cache(maxsize=4096)
def _list_key(step: str) -> _Key:
    """Returns ``k:{"name":"a"}`` as ``(("name", "a"),)``; empty for any other step."""
    if not step.startswith("k:"):
        return ()
    key = orjson.loads(step[2:])
    return tuple(key.items()) if isinstance(key, dict) else ()


def _key_of(item: object, names: Sequence[str]) -> _Key:
    return tuple((name, dig(item, name, default=_KEY_DEFAULTS.get(name))) for name in names)


def _label(key: _Key) -> str:
    return ",".join(f"{name}={value}" for name, value in key)


def _has_key(item: object, key: _Key) -> bool:
    if not isinstance(item, dict):
        return False
    for name, value in key:  # noqa: SIM110 - no generator, for speed: this runs for every pair of entries
        if not _same_scalar(item.get(name, _KEY_DEFAULTS.get(name)), value):
            return False
    return True


def _content(desired: Resource) -> Iterator[tuple[str, Any]]:
    """Yields the top-level parts of `desired` that an apply sets."""
    for name, value in desired.items():
        if name in ("apiVersion", "kind"):
            continue
        if name == "metadata":
            value = {k: v for k, v in value.items() if k not in _IDENTITY}
            if not value:
                continue
        yield name, value


# ------------------------------------------------------------------------------------------------------- comparison


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """Compares the wanted with the live object. `nodes` are the fieldsV1 nodes of the same field."""

    mine: bool
    """The nodes are our own; a wanted leaf that they do not cover is a difference too."""
    exact: bool = False
    """A field that the live object has inside a value that is owned as a whole, and the wanted object lacks, is a
    difference too. API servers add defaults to such values.
    """

    def all_differences(self, desired: Resource, live: Resource, nodes: Sequence[_Fields]) -> Iterator[_Path]:
        """Yields the paths at which an apply of `desired` would change something."""
        for name, value in _content(desired):
            below = _descend(nodes, f"f:{name}")
            yield from self.differences(value, live.get(name), below, covered=False, path=(name,))

    def differences(self, want: Any, have: Any, nodes: list[_Fields], *, covered: bool, path: _Path) -> Iterator[_Path]:
        """Yields the paths below `path` at which an apply would change something."""
        if want is None:
            if have is not None:
                yield path
            return
        if isinstance(want, dict):
            if want and have is None:
                have = {}  # so that each missing leaf is listed
            if not isinstance(have, dict):
                # The server may drop an empty object: it has done so if we own the object but it is absent.
                if want or have is not None or not nodes:
                    yield path
                return
            yield from self._dict_differences(want, have, nodes, covered=covered, path=path)
        elif isinstance(want, list):
            if not isinstance(have, list):
                if want or have is not None:
                    yield path
                return
            yield from self._list_differences(want, have, nodes, covered=covered, path=path)
        elif have is None and want in _ZEROS and (nodes or covered):
            # The server does not store some zero values. If another manager had removed the field, we would not own it
            # any more; so an absent field that we own is such a zero.
            return
        elif not _same_value(want, have, path) or self._is_unowned(nodes, covered):
            yield path

    def _is_unowned(self, nodes: list[_Fields], covered: bool) -> bool:
        return self.mine and not covered and not nodes

    def _dict_differences(
        self, want: Resource, have: Resource, nodes: list[_Fields], *, covered: bool, path: _Path
    ) -> Iterator[_Path]:
        whole = bool(nodes) and not any(nodes)
        # An atomic object: any further field of the live object is a difference.
        if (whole and want) or (self.exact and (whole or covered)):
            defaults = _ATOMIC_DEFAULTS.get(path[-1], {})
            extra = [name for name in have if name not in want and defaults.get(name) != have[name]]
            yield from ((*path, name) for name in extra)
        for name, value in want.items():
            yield from self.differences(
                value, have.get(name), _descend(nodes, f"f:{name}"), covered=covered or whole, path=(*path, name)
            )

    def _list_differences(
        self, want: list[Any], have: list[Any], nodes: list[_Fields], *, covered: bool, path: _Path
    ) -> Iterator[_Path]:
        steps = [step for node in nodes for step in node]
        if any(step.startswith("v:") for step in steps):
            for value in want:
                owned = covered or any(_has_value(node, value) for node in nodes)
                if not any(_same_scalar(value, other) for other in have) or (self.mine and not owned):
                    yield (*path, f"[{value}]")
            return
        elements = _elements(nodes)
        if elements:
            names = [name for name, _ in elements[0][0]]
            for item in want:
                key = _key_of(item, names)
                place = (*path, f"[{_label(key)}]")
                match = next((other for other in have if _has_key(other, key)), None)
                below = [child for owned, child in elements if _has_key(item, owned)]
                if match is None or self._is_unowned(below, covered):
                    yield place
                else:
                    yield from self.differences(item, match, below, covered=covered, path=place)
            return
        # An atomic list, or one without an owner: compare the elements in order.
        whole = bool(nodes) and not any(nodes)
        if (self._is_unowned(nodes, covered) and want) or len(want) != len(have):
            yield path
            return
        for index, (item, other) in enumerate(zip(want, have, strict=True)):
            yield from self.differences(item, other, [], covered=covered or whole, path=(*path, f"[{index}]"))


def _has_value(node: _Fields, value: object) -> bool:
    return any(step.startswith("v:") and _same_scalar(orjson.loads(step[2:]), value) for step in node)


def _same_scalar(left: object, right: object) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _same_value(want: object, have: object, path: _Path) -> bool:
    if _same_scalar(want, have):
        return True
    return not _QUANTITY_FIELDS.isdisjoint(path) and same_quantity(want, have)


def _removed(fields: _Fields, desired: Any, *, path: _Path) -> Iterator[_Path]:
    """Yields the paths that we own and no longer want."""
    for step, below in fields.items():
        kind, _, name = step.partition(":")
        if kind == "f":
            if not isinstance(desired, dict) or name not in desired:
                yield (*path, name)
            elif below and isinstance(desired[name], (dict, list)):
                yield from _removed(below, desired[name], path=(*path, name))
        elif kind == "k":
            key = _list_key(step)
            item = next((i for i in desired if _has_key(i, key)), None) if isinstance(desired, list) else None
            if item is None:
                yield (*path, f"[{name}]")
            else:
                inner = {k: v for k, v in below.items() if k.removeprefix("f:") not in dict(key)}
                yield from _removed(inner, item, path=(*path, f"[{name}]"))
        elif kind == "v":
            value = orjson.loads(name)
            if not isinstance(desired, list) or not any(_same_scalar(value, other) for other in desired):
                yield (*path, f"[{name}]")


# ------------------------------------------------------------------------------------------------------- who did it


def _last_writer(live: Resource, path: _Path, *, but: str) -> str | None:
    owners = [
        (str(entry.get("time") or ""), str(entry.get("manager") or ""))
        for entry, fields in _entries(live)
        if entry.get("manager") != but and _owns(fields, path)
    ]
    return max(owners)[1] if owners else None


def _owns(fields: _Fields, path: _Path) -> bool:
    """Whether a fieldsV1 tree contains the path, or a leaf above it."""
    if not path or not fields:
        return True
    step, rest = path[0], path[1:]
    if not step.startswith("["):
        child = fields.get(f"f:{step}")
        return isinstance(child, dict) and _owns(child, rest)
    label = step[1:-1]
    for name, child in fields.items():
        key = _list_key(name)
        if key and _label(key) == label:
            return _owns(child, rest)
        if name.startswith("v:") and str(orjson.loads(name[2:])) == label:
            return True
    return False


def _text(path: _Path) -> str:
    """Returns a path as text: ``spec.containers[name=a].image``."""
    return "".join(step if step.startswith("[") or index == 0 else f".{step}" for index, step in enumerate(path))
