"""`needs_apply` against a model of server-side apply."""

from __future__ import annotations

import copy
import json
from typing import Any

from core.tests.kube.objects import ME
from hypothesis import example, given
from hypothesis import strategies as st

from airunway.kube import changed_fields, needs_apply, previous_content
from airunway.resource import Resource

# Maps are granular, scalars are leaves: enough to state the laws.

SCALARS = st.one_of(st.integers(-3, 3), st.booleans(), st.sampled_from(["", "a", "b"]))
TREES = st.recursive(
    SCALARS,
    lambda below: st.dictionaries(st.sampled_from("pqrs"), below, min_size=1, max_size=3),
    max_leaves=8,
)
SPECS = st.dictionaries(st.sampled_from("pqrs"), TREES, min_size=1, max_size=3)


def leaves(tree: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(tree, dict):
        return {path: tree}
    return {p: v for name, below in tree.items() for p, v in leaves(below, (*path, name)).items()}


def tree_of(flat: dict[tuple[str, ...], Any], leaf: Any = None) -> Resource:
    tree: Resource = {}
    for path, value in flat.items():
        node = tree
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = value if leaf is None else copy.copy(leaf)
    return tree


def fields_v1(paths: set[tuple[str, ...]]) -> Resource:
    return tree_of({tuple(f"f:{step}" for step in path): {} for path in paths}, leaf={})


def clashes(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """One is a leaf where the other has a map: they cannot be in one object."""
    return path != other and (path[: len(other)] == other or other[: len(path)] == path)


class Server:
    """Leaves with their owners, as server-side apply with force keeps them."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], Any] = {}
        self.owners: dict[str, set[tuple[str, ...]]] = {}

    def apply(self, manager: str, spec: Resource) -> None:
        wanted = leaves({"spec": spec})
        before = self.owners.get(manager, set())
        for path in before - set(wanted):
            if not any(path in paths for who, paths in self.owners.items() if who != manager):
                self.values.pop(path, None)
        for path, value in wanted.items():
            for other in [p for p in self.values if clashes(p, path)]:
                self.drop(other)
            if path not in self.values or not same(self.values[path], value):
                for paths in self.owners.values():
                    paths.discard(path)
            self.values[path] = value
        self.owners[manager] = set(wanted)

    def drop(self, path: tuple[str, ...]) -> None:
        self.values.pop(path, None)
        for paths in self.owners.values():
            paths.discard(path)

    def edit(self, path: tuple[str, ...], value: Any) -> None:
        if path in self.values and same(self.values[path], value):
            return
        for other in [p for p in self.values if clashes(p, path)]:
            self.drop(other)
        self.drop(path)
        self.values[path] = value
        self.owners.setdefault("editor", set()).add(path)

    def live(self) -> Resource:
        entries = [
            {"manager": who, "operation": "Update" if who == "editor" else "Apply", "fieldsV1": fields_v1(paths)}
            for who, paths in self.owners.items()
            if paths
        ]
        return {**tree_of(self.values), "metadata": {"name": "a", "managedFields": entries}}


def same(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right


def state(server: Server) -> tuple[Any, Any]:
    # As JSON: Python takes 1 and true for equal, the API server does not.
    values = {path: json.dumps(value) for path, value in server.values.items()}
    return (values, {who: set(paths) for who, paths in server.owners.items() if paths})


EDITS = st.lists(st.tuples(st.lists(st.sampled_from("pqrs"), min_size=1, max_size=3), SCALARS), max_size=4)


@example(first={"q": 1}, other={"p": 0}, edits=[], second={"q": True})
@given(first=SPECS, other=SPECS, edits=EDITS, second=SPECS)
def test_needed_exactly_when_it_would_change_something(
    first: Resource, other: Resource, edits: list[tuple[list[str], Any]], second: Resource
) -> None:
    server = Server()
    server.apply(ME, first)
    assert not needs_apply({"metadata": {"name": "a"}, "spec": first}, server.live(), manager=ME)
    server.apply("another", other)
    for path, value in edits:
        server.edit(("spec", *path), value)
    for desired in (first, second):
        live, before = server.live(), state(server)
        trial = copy.deepcopy(server)
        trial.apply(ME, desired)
        expected = state(trial) != before
        assert needs_apply({"metadata": {"name": "a"}, "spec": desired}, live, manager=ME) == expected


@example(first={"r": True}, edits=[(["r"], 0), (["r"], True)])
@given(first=SPECS, edits=EDITS)
def test_changed_fields_names_each_departure_and_its_author(
    first: Resource, edits: list[tuple[list[str], Any]]
) -> None:
    server = Server()
    server.apply(ME, first)
    for path, value in edits:
        server.edit(("spec", *path), value)
    changes = changed_fields({"spec": first}, server.live(), manager=ME)
    wrong = {
        path
        for path, value in leaves({"spec": first}).items()
        if path not in server.values or not same(server.values[path], value)
    }
    if not wrong:  # another manager has set what we want, too
        wrong = set(leaves({"spec": first})) - server.owners[ME]
    named = {tuple(change.path.split(".")) for change in changes}
    assert all(any(path[: len(name)] == name for name in named) for path in wrong)
    assert all(any(path[: len(name)] == name for path in wrong) for name in named)
    assert {change.manager for change in changes} <= {"editor", None}
    for change in changes:
        if tuple(change.path.split(".")) in server.values:
            assert change.manager == "editor"


@given(first=SPECS, other=SPECS, second=SPECS)
def test_previous_content_is_what_was_applied_whatever_is_wanted_now(
    first: Resource, other: Resource, second: Resource
) -> None:
    server = Server()
    server.apply("another", other)
    server.apply(ME, first)
    before = previous_content({"metadata": {"name": "a"}, "spec": second}, server.live(), manager=ME)
    wanted = leaves({"spec": second})
    applied = leaves({"spec": first})
    shown = leaves({"spec": before["spec"]})
    assert applied.items() <= shown.items()
    others = set(shown) - set(applied)
    assert all(any(path == place or clashes(path, place) for place in wanted) for path in others)
    again = previous_content({"metadata": {"name": "a"}, "spec": first}, server.live(), manager=ME)
    assert again == {"metadata": {"name": "a"}, "spec": first}
