"""`needs_apply`, against a model of server-side apply and against the real API server."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.kube import (
    CONFIG_MAP,
    DEPLOYMENT,
    SERVICE,
    Client,
    Conflict,
    FieldChange,
    Kind,
    changed_fields,
    needs_apply,
    owned_by,
    strip_managed_fields,
)
from airunway.resource import ObjectKey, Resource, copy_of, key_of

ME = "airunway-tests"

# ----------------------------------------------------------------------------------- a model of server-side apply
# Maps are granular, scalars are leaves: enough to state the laws. Real objects follow below.

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
    return (dict(server.values), {who: set(paths) for who, paths in server.owners.items() if paths})


EDITS = st.lists(st.tuples(st.lists(st.sampled_from("pqrs"), min_size=1, max_size=3), SCALARS), max_size=4)


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
    named = {tuple(change.path.split(".")) for change in changes}
    assert all(any(path[: len(name)] == name for name in named) for path in wrong)
    assert all(any(path[: len(name)] == name for path in wrong) for name in named)
    assert {change.manager for change in changes} <= {"editor", None}
    for change in changes:
        if tuple(change.path.split(".")) in server.values:
            assert change.manager == "editor"


# ------------------------------------------------------------------------------------------------------- pure cases


def test_nothing_there_needs_an_apply() -> None:
    assert needs_apply({"spec": {}}, None, manager=ME)


@pytest.mark.parametrize("fields", [None, "x", [], [None, 3, {"manager": ME}], [{"manager": ME, "fieldsV1": 4}]])
def test_without_an_entry_of_ours_everything_is_needed(fields: object) -> None:
    live = {"metadata": {"name": "a", "managedFields": fields}, "spec": {"x": 1}}
    assert needs_apply({"spec": {"x": 1}}, live, manager=ME)
    assert not owned_by(live, ME)


def test_identity_and_preconditions_are_not_values_to_own() -> None:
    live = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {
            "name": "a",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "9",
            "managedFields": [{"manager": ME, "operation": "Apply", "fieldsV1": {"f:spec": {"f:x": {}}}}],
        },
        "spec": {"x": 1},
    }
    desired = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"x": 1},
    }
    assert not needs_apply(desired, live, manager=ME)
    assert needs_apply(desired, live, manager=ME, subresource="status"), "another subresource is another entry"


def entry(manager: str, fields: Resource, *, time: str = "") -> Resource:
    return {
        "manager": manager,
        "operation": "Apply",
        "fieldsV1": {"f:spec": fields},
        **({"time": time} if time else {}),
    }


def test_an_element_of_a_set_that_is_there_but_not_ours_is_claimed() -> None:
    """Else it would go with the one who has it."""
    desired = {"spec": {"tags": ["a", "b"]}}
    mine: Resource = {"f:tags": {'v:"a"': {}}}
    theirs = entry("another", {"f:tags": {'v:"b"': {}}})
    live: Resource = {"metadata": {"managedFields": [entry(ME, mine), theirs]}, "spec": {"tags": ["b", "a"]}}
    assert needs_apply(desired, live, manager=ME)
    live["metadata"]["managedFields"] = [entry(ME, {"f:tags": {'v:"a"': {}, 'v:"b"': {}}}), theirs]
    assert not needs_apply(desired, live, manager=ME)


def test_what_is_missing_of_sets_lists_and_atomic_objects_is_named_by_its_path_and_author() -> None:
    desired = {
        "spec": {
            "tags": ["a", "b"],
            "ports": [{"port": 1, "name": "x"}],
            "selector": {"x": "y"},
            "steps": [{"port": 1}, {"port": 2}],
        }
    }
    early, late = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    fields = [
        entry(ME, {"f:tags": {'v:"a"': {}}}),
        entry("first", {"f:ports": {'k:{"port":1}': {".": {}, "f:name": {}}}, "f:tags": {'v:"c"': {}}}, time=early),
        entry("second", {"f:selector": {}, "f:steps": {}}, time=late),
    ]
    live = {
        "metadata": {"managedFields": fields},
        "spec": {
            "tags": ["a", "c"],
            "ports": [{"port": 1, "name": "z"}],
            "selector": {"x": "y", "more": "z"},
            "steps": [{"port": 1}, {"port": 3}],
        },
    }
    assert changed_fields(desired, live, manager=ME) == [
        FieldChange(path="spec.tags[b]", manager=None),
        FieldChange(path="spec.ports[port=1].name", manager="first"),
        FieldChange(path="spec.selector.more", manager="second"),
        FieldChange(path="spec.steps[1].port", manager="second"),
    ]


def test_an_element_of_a_set_that_another_wrote_is_theirs() -> None:
    owners = [entry("other", {"f:tags": {'v:"b"': {}}}), entry("x", {"f:tags": {'v:"c"': {}}})]
    live: Resource = {"metadata": {"managedFields": owners}, "spec": {"tags": ["c"]}}
    (change,) = changed_fields({"spec": {"tags": ["b"]}}, live, manager=ME)
    assert change == FieldChange(path="spec.tags[b]", manager="other")


# -------------------------------------------------------------------------------------------- the real API server

DEPLOY: Resource = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "labels": {"team": "x"}},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "d"}},
        "strategy": {"type": "Recreate"},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {
                "nodeSelector": {"gpu": "a100", "zone": "1"},
                "securityContext": {},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}}],
                "containers": [
                    {
                        "name": "main",
                        "image": "example/main:1",
                        "command": ["serve"],
                        "args": ["--port", "8000"],
                        "ports": [{"containerPort": 8000}, {"containerPort": 8000, "protocol": "UDP", "name": "u"}],
                        "env": [
                            {"name": "A", "value": "1"},
                            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                        ],
                        "resources": {
                            "limits": {"cpu": "1000m", "memory": "1024Mi", "nvidia.com/gpu": 1},
                            "requests": {"cpu": 1},
                        },
                        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
                        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                    },
                    {"name": "side", "image": "example/side:1", "resources": {}},
                ],
            },
        },
    },
}
SERVE: Resource = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "s"},
    "spec": {
        "selector": {"app": "d"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "dns", "port": 80, "protocol": "UDP"}],
    },
}
WIDGET: Resource = {
    "metadata": {"name": "w", "labels": {"a": "b"}, "finalizers": ["tests.airunway.ai/hold"]},
    "spec": {
        "free": {"list": [1, {"a": "b"}, [2]], "text": "x", "number": 1.5, "yes": True, "empty": {}, "none": []},
        "typed": {
            "ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}, {"port": 2}],
            "steps": [{"port": 1}, {"port": 2, "weight": 5}],
            "tags": ["a", "b"],
            "selector": {"x": "y", "z": "w"},
            "limits": {"cpu": "1000m", "memory": "1Gi"},
        },
    },
}


def placed(obj: Resource, namespace: str, kind: Kind) -> Resource:
    placed = copy_of(obj) | {"apiVersion": kind.api_version, "kind": kind.kind}
    placed["metadata"]["namespace"] = namespace
    return placed


def without(obj: Resource, *path: str | int) -> Resource:
    changed = copy_of(obj)
    node: Any = changed
    for step in path[:-1]:
        node = node[step]
    del node[path[-1]]
    return changed


def with_value(obj: Resource, value: Any, *path: str | int) -> Resource:
    changed = copy_of(obj)
    node: Any = changed
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return changed


POD = ("spec", "template", "spec")
MAIN = (*POD, "containers", 0)
OURS: list[tuple[str, str, Any, tuple[str | int, ...]]] = [
    # object, operation, value, path: changes of what we want, every one of which the server must be told
    ("deployment", "set", 2, ("spec", "replicas")),
    ("deployment", "set", "example/main:2", (*MAIN, "image")),
    ("deployment", "set", "2", (*MAIN, "resources", "limits", "cpu")),
    ("deployment", "set", ["--port", "8001"], (*MAIN, "args")),
    ("deployment", "set", ["--port"], (*MAIN, "args")),
    ("deployment", "del", None, ("spec", "replicas")),
    ("deployment", "del", None, ("metadata", "labels", "team")),
    ("deployment", "del", None, (*POD, "nodeSelector", "zone")),
    ("deployment", "del", None, (*POD, "tolerations")),
    ("deployment", "del", None, (*POD, "volumes", 0, "emptyDir", "sizeLimit")),
    ("deployment", "del", None, (*POD, "containers", 1)),
    ("deployment", "del", None, (*MAIN, "command")),
    ("deployment", "del", None, (*MAIN, "env", 0)),
    ("deployment", "del", None, (*MAIN, "ports", 1)),
    ("deployment", "del", None, (*MAIN, "resources", "limits", "nvidia.com/gpu")),
    ("deployment", "del", None, (*MAIN, "readinessProbe")),
    ("service", "del", None, ("spec", "ports", 1)),
    ("service", "set", 8080, ("spec", "ports", 0, "targetPort")),
    ("service", "set", {"app": "d", "x": "y"}, ("spec", "selector")),
    ("service", "set", {"x": "y"}, ("spec", "selector")),
    ("widget", "set", [1, {"a": "c"}, [2]], ("spec", "free", "list")),
    ("widget", "set", False, ("spec", "free", "yes")),
    ("widget", "set", 1, ("spec", "free", "yes")),
    ("widget", "set", 2.5, ("spec", "free", "number")),
    ("widget", "set", {"k": 1}, ("spec", "free", "empty")),
    ("widget", "set", [0], ("spec", "free", "none")),
    ("widget", "set", {}, ("spec", "free", "new")),
    ("widget", "del", None, ("spec", "free", "text")),
    ("widget", "del", None, ("spec", "free", "empty")),
    ("widget", "del", None, ("spec", "free")),
    ("widget", "del", None, ("spec", "typed", "ports", 1)),
    ("widget", "del", None, ("spec", "typed", "steps", 1)),
    ("widget", "del", None, ("spec", "typed", "tags", 0)),
    ("widget", "del", None, ("spec", "typed", "selector", "z")),
    ("widget", "del", None, ("metadata", "labels", "a")),
    ("widget", "del", None, ("metadata", "finalizers")),
    ("widget", "set", ["tests.airunway.ai/hold", "tests.airunway.ai/two"], ("metadata", "finalizers")),
]


class Subjects:
    """The three objects that the tests apply, by a short name."""

    def __init__(self, client: Client, namespace: str, widget: Kind) -> None:
        self.client = client
        self.kinds = {"deployment": DEPLOYMENT, "service": SERVICE, "widget": widget}
        self.desired = {
            name: placed(obj, namespace, self.kinds[name])
            for name, obj in (("deployment", DEPLOY), ("service", SERVE), ("widget", WIDGET))
        }

    async def apply(self, name: str, desired: Resource | None = None) -> Resource:
        return await self.client.apply(self.kinds[name], desired or self.desired[name], manager=ME, force=True)

    async def live(self, name: str) -> Resource:
        return await self.client.get(self.kinds[name], key_of(self.desired[name]))

    async def edit(self, name: str, patch: Resource | list[Resource]) -> Resource:
        key, kind = key_of(self.desired[name]), self.kinds[name]
        if isinstance(patch, list):
            return await self.client.json_patch(kind, key, patch, manager="editor")
        return await self.client.merge_patch(kind, key, patch, manager="editor")


@pytest.fixture
async def subjects(client: Client, namespace: str, widget: Kind) -> Any:
    subjects = Subjects(client, namespace, widget)
    yield subjects
    for obj in await client.list_all(widget, namespace=namespace):
        if obj["metadata"].get("finalizers"):  # else the namespace never goes
            await client.merge_patch(widget, key_of(obj), {"metadata": {"finalizers": None}})


@pytest.mark.apiserver
@pytest.mark.parametrize("name", ["deployment", "service", "widget"])
async def test_what_was_just_applied_needs_no_apply(name: str, subjects: Subjects) -> None:
    desired = subjects.desired[name]
    live = await subjects.apply(name)
    assert not needs_apply(desired, live, manager=ME)
    assert owned_by(live, ME)
    assert changed_fields(desired, live, manager=ME) == []
    listed = strip_managed_fields(keep=ME)(await subjects.live(name))
    assert not needs_apply(desired, listed, manager=ME), "nor does what a cache keeps of it"
    again = await subjects.apply(name)
    assert again["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
    assert needs_apply(desired, live, manager="somebody-else"), "whoever owns nothing must say what they want"


@pytest.mark.apiserver
@pytest.mark.parametrize(("name", "operation", "value", "path"), OURS, ids=lambda v: str(v) if v != () else "")
async def test_every_change_of_ours_is_seen(
    name: str, operation: str, value: Any, path: tuple[str | int, ...], subjects: Subjects
) -> None:
    live = await subjects.apply(name)
    desired = subjects.desired[name]
    changed = with_value(desired, value, *path) if operation == "set" else without(desired, *path)
    assert needs_apply(changed, live, manager=ME)
    after = await subjects.apply(name, changed)
    assert after["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"], "the server saw a change too"
    assert not needs_apply(changed, after, manager=ME)
    assert needs_apply(desired, after, manager=ME), "and back"


FOREIGN: list[tuple[str, Any, str, str | None]] = [
    # object, patch (merge or JSON), path of the change, who
    ("deployment", {"spec": {"replicas": 5}}, "spec.replicas", "editor"),
    (
        "deployment",
        [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}],
        "spec.template.spec.containers[name=main].image",
        "editor",
    ),
    (
        "deployment",
        [{"op": "replace", "path": "/spec/template/spec/containers/0/env/0/value", "value": "2"}],
        "spec.template.spec.containers[name=main].env[name=A].value",
        "editor",
    ),
    (
        "deployment",
        [{"op": "replace", "path": "/spec/template/spec/containers/0/resources/limits/cpu", "value": "2"}],
        "spec.template.spec.containers[name=main].resources.limits.cpu",
        "editor",
    ),
    (
        "deployment",
        [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--debug"}],
        "spec.template.spec.containers[name=main].args",
        "editor",
    ),
    (
        "deployment",
        [{"op": "remove", "path": "/spec/template/spec/containers/0/args"}],
        "spec.template.spec.containers[name=main].args",
        None,
    ),
    ("deployment", {"metadata": {"labels": {"team": None}}}, "metadata.labels.team", None),
    (
        "deployment",
        {"spec": {"template": {"spec": {"nodeSelector": {"zone": "2"}}}}},
        "spec.template.spec.nodeSelector.zone",
        "editor",
    ),
    (
        "deployment",
        {"spec": {"template": {"spec": {"nodeSelector": {"extra": "1"}}}}},
        "spec.template.spec.nodeSelector.extra",
        "editor",
    ),
    ("service", {"spec": {"selector": {"more": "1"}}}, "spec.selector.more", "editor"),
    (
        "service",
        [{"op": "remove", "path": "/spec/ports/1"}],
        "spec.ports[port=80,protocol=UDP]",
        None,
    ),
    ("widget", {"spec": {"free": {"list": [1]}}}, "spec.free.list", "editor"),
    ("widget", {"spec": {"free": {"text": {"now": "a map"}}}}, "spec.free.text", None),
    ("widget", {"spec": {"typed": {"tags": ["a", "c"]}}}, "spec.typed.tags[b]", None),
    ("widget", {"metadata": {"finalizers": []}}, "metadata.finalizers", None),
]


@pytest.mark.apiserver
@pytest.mark.parametrize(("name", "patch", "path", "who"), FOREIGN, ids=lambda v: v if isinstance(v, str) else "")
async def test_drift_is_seen_named_and_reverted(
    name: str, patch: Any, path: str, who: str | None, subjects: Subjects
) -> None:
    await subjects.apply(name)
    live = await subjects.edit(name, patch)
    desired = subjects.desired[name]
    assert needs_apply(desired, live, manager=ME)
    assert needs_apply(desired, strip_managed_fields(keep=ME)(copy_of(live)), manager=ME)
    changes = changed_fields(desired, live, manager=ME)
    assert FieldChange(path=path, manager=who) in [
        FieldChange(path=change.path, manager=change.manager if who else None) for change in changes
    ]
    after = await subjects.apply(name)
    assert not needs_apply(desired, after, manager=ME)
    assert changed_fields(desired, after, manager=ME) == []


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("name", "patch"),
    [
        ("deployment", {"metadata": {"labels": {"theirs": "1"}, "annotations": {"note": "hello"}}}),
        ("deployment", {"spec": {"paused": True}}),
        ("deployment", {"spec": {"template": {"spec": {"priorityClassName": "high"}}}}),
        ("deployment", {"status": {"replicas": 1}}),
        (
            "deployment",
            [{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "istio", "image": "i"}}],
        ),
        (
            "deployment",
            [{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": "Z", "value": "1"}}],
        ),
        ("service", {"spec": {"sessionAffinity": "ClientIP"}}),
        ("widget", {"spec": {"free": {"theirs": [1]}, "typed": {"size": 9}}}),
        ("widget", {"spec": {"typed": {"tags": ["a", "b", "theirs"]}}}),
        ("widget", [{"op": "add", "path": "/metadata/finalizers/-", "value": "tests.airunway.ai/theirs"}]),
    ],
)
async def test_what_others_add_is_left_alone(name: str, patch: Any, subjects: Subjects) -> None:
    before = await subjects.apply(name)
    live = await subjects.edit(name, patch)
    if patch != {"status": {"replicas": 1}}:
        assert live["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    desired = subjects.desired[name]
    assert not needs_apply(desired, live, manager=ME)
    assert changed_fields(desired, live, manager=ME) == []
    again = await subjects.apply(name)
    assert again["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"], "the server agrees"


@pytest.mark.apiserver
async def test_a_field_lost_and_set_back_is_claimed_again(subjects: Subjects) -> None:
    """Else the next to change it by apply would meet no conflict."""
    await subjects.apply("widget")
    await subjects.edit("widget", {"spec": {"free": {"text": "other"}}})
    live = await subjects.edit("widget", {"spec": {"free": {"text": "x"}}})
    desired = subjects.desired["widget"]
    assert needs_apply(desired, live, manager=ME)
    assert changed_fields(desired, live, manager=ME) == [], "no drift: the value is the wanted one"
    assert not needs_apply(desired, await subjects.apply("widget"), manager=ME)
    kind, metadata = subjects.kinds["widget"], desired["metadata"]
    other = {
        "apiVersion": desired["apiVersion"],
        "kind": desired["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": {"free": {"text": "third"}},
    }
    with pytest.raises(Conflict) as caught:
        await subjects.client.apply(kind, other, manager="third")
    assert {cause["field"] for cause in caught.value.causes} == {".spec.free.text"}
    assert any(ME in cause["message"] for cause in caught.value.causes)


@pytest.mark.apiserver
@pytest.mark.parametrize("name", ["deployment", "service", "widget"])
async def test_empty_objects_that_the_server_forgets(name: str, subjects: Subjects) -> None:
    desired = with_value(subjects.desired[name], {}, "metadata", "annotations")
    live = await subjects.apply(name, desired)
    assert "annotations" not in live["metadata"]
    assert not needs_apply(desired, live, manager=ME)


ZEROS: list[tuple[Any, tuple[str | int, ...]]] = [
    # a zero value that the API server takes and does not store, and where
    ([{"name": "EMPTY", "value": ""}], (*MAIN, "env")),
    ([{"name": "data", "mountPath": "/data", "readOnly": False}], (*MAIN, "volumeMounts")),
    ([{"key": "gpu", "operator": "Exists", "value": ""}], (*POD, "tolerations")),
    (False, (*POD, "hostNetwork")),
    ("", (*POD, "priorityClassName")),
    (0, (*MAIN, "readinessProbe", "initialDelaySeconds")),
]


@pytest.mark.apiserver
@pytest.mark.parametrize(("value", "path"), ZEROS, ids=lambda v: str(v))
async def test_zero_values_that_the_server_drops_are_no_difference(
    value: Any, path: tuple[str | int, ...], subjects: Subjects
) -> None:
    desired = with_value(subjects.desired["deployment"], value, *path)
    if path[-1] == "volumeMounts":
        desired = with_value(desired, [{"name": "data", "emptyDir": {}}], *POD, "volumes")
    live = await subjects.apply("deployment", desired)
    assert not needs_apply(desired, live, manager=ME)
    assert changed_fields(desired, live, manager=ME) == []
    assert needs_apply(subjects.desired["deployment"], live, manager=ME), "what is no longer wanted still is one"


@pytest.mark.parametrize("zero", ["", 0, False], ids=repr)
def test_a_zero_value_that_is_not_there_and_not_ours_is_a_difference(zero: object) -> None:
    def live(fields: Resource) -> Resource:
        entry = {"manager": ME, "operation": "Apply", "fieldsV1": {"f:spec": {"f:x": {}, **fields}}}
        return {"metadata": {"name": "a", "managedFields": [entry]}, "spec": {"x": 1}}

    desired: Resource = {"spec": {"x": 1, "y": zero}}
    assert needs_apply(desired, live({}), manager=ME), "never applied, or taken out by somebody"
    assert [change.path for change in changed_fields(desired, live({}), manager=ME)] == ["spec.y"]
    assert not needs_apply(desired, live({"f:y": {}}), manager=ME), "ours, although the server dropped it"
    assert needs_apply({"spec": {"x": 1, "y": "z"}}, live({"f:y": {}}), manager=ME), "no other value is dropped"


@pytest.mark.apiserver
async def test_a_zero_value_that_somebody_else_took_out_is_set_again(subjects: Subjects) -> None:
    desired = with_value(subjects.desired["widget"], False, "spec", "free", "yes")
    await subjects.apply("widget", desired)
    after = await subjects.edit("widget", [{"op": "remove", "path": "/spec/free/yes"}])
    assert needs_apply(desired, after, manager=ME)
    assert [change.path for change in changed_fields(desired, after, manager=ME)] == ["spec.free.yes"]
    assert not needs_apply(desired, await subjects.apply("widget", desired), manager=ME)


@pytest.mark.apiserver
async def test_status_has_its_own_owner_entry(subjects: Subjects, client: Client) -> None:
    spec = subjects.desired["widget"]
    await subjects.apply("widget")
    metadata = {"name": spec["metadata"]["name"], "namespace": spec["metadata"]["namespace"]}
    status = {
        "apiVersion": spec["apiVersion"],
        "kind": spec["kind"],
        "metadata": metadata,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    kind = subjects.kinds["widget"]
    assert needs_apply(status, await subjects.live("widget"), manager=ME, subresource="status")
    live = await client.apply(kind, status, manager=ME, subresource="status")
    assert not needs_apply(status, live, manager=ME, subresource="status")
    assert not needs_apply(spec, live, manager=ME), "the two do not get in each other's way"
    less = without(status, "status", "phase")
    assert needs_apply(less, live, manager=ME, subresource="status")


@pytest.mark.apiserver
async def test_the_author_of_the_last_change_is_named(client: Client, namespace: str) -> None:
    desired = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": "c"},
        "data": {"a": "1", "b": "1"},
    }
    await client.apply(CONFIG_MAP, desired, manager=ME)
    key = ObjectKey(namespace, "c")
    await client.merge_patch(CONFIG_MAP, key, {"data": {"a": "2"}}, manager="first")
    live = await client.merge_patch(CONFIG_MAP, key, {"data": {"b": "3"}}, manager="second")
    assert changed_fields(desired, live, manager=ME) == [
        FieldChange(path="data.a", manager="first"),
        FieldChange(path="data.b", manager="second"),
    ]
