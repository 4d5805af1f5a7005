"""`needs_apply` on the real API server: what was just applied needs no apply, and every change is seen."""

from __future__ import annotations

from typing import Any

import pytest
from core.tests.kube.objects import ME
from core.tests.kube.subjects import Subjects

from airunway.kube import (
    CONFIG_MAP,
    Client,
    Conflict,
    FieldChange,
    changed_fields,
    needs_apply,
    strip_managed_fields,
)
from airunway.resource import ObjectKey, Resource, copy_of


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


@pytest.mark.apiserver
@pytest.mark.parametrize("name", ["deployment", "service", "widget"])
async def test_what_was_just_applied_needs_no_apply(name: str, subjects: Subjects) -> None:
    desired = subjects.desired[name]
    live = await subjects.apply(name)
    assert not needs_apply(desired, live, manager=ME)
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
async def test_what_a_typed_client_adds_to_an_atomic_list_is_named_with_that_client(subjects: Subjects) -> None:
    """KAITO wrote ``resources: {}`` into a container and so owned the list; no event said what changed."""
    subjects.desired["widget"]["spec"]["free"]["list"] = [{"name": "model"}]
    await subjects.apply("widget")
    live = await subjects.edit("widget", {"spec": {"free": {"list": [{"name": "model", "resources": {}}]}}})
    desired = subjects.desired["widget"]
    assert needs_apply(desired, live, manager=ME)
    (change,) = changed_fields(desired, live, manager=ME)
    assert (change.path, change.manager) == ("spec.free.list[0].resources", "editor")


@pytest.mark.apiserver
async def test_a_field_lost_and_set_back_is_claimed_again(subjects: Subjects) -> None:
    """Else the next to change it by apply would meet no conflict."""
    await subjects.apply("widget")
    await subjects.edit("widget", {"spec": {"free": {"text": "other"}}})
    live = await subjects.edit("widget", {"spec": {"free": {"text": "x"}}})
    desired = subjects.desired["widget"]
    assert needs_apply(desired, live, manager=ME)
    assert [change.path for change in changed_fields(desired, live, manager=ME)] == ["spec.free.text"], "taken over"
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
