"""`needs_apply` and `changed_fields` on single objects, without an API server."""

from __future__ import annotations

import pytest
from core.tests.kube.objects import ME

from airunway.kube import FieldChange, changed_fields, has_content_of, needs_apply
from airunway.resource import Resource


def test_nothing_there_needs_an_apply() -> None:
    assert needs_apply({"spec": {}}, None, manager=ME)


@pytest.mark.parametrize("fields", [None, "x", [], [None, 3, {"manager": ME}], [{"manager": ME, "fieldsV1": 4}]])
def test_without_an_entry_of_ours_everything_is_needed(fields: object) -> None:
    live = {"metadata": {"name": "a", "managedFields": fields}, "spec": {"x": 1}}
    assert needs_apply({"spec": {"x": 1}}, live, manager=ME)


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


def test_content_is_compared_without_metadata_and_with_everything_inside_of_an_atomic_list() -> None:
    live: Resource = {
        "apiVersion": "v1",
        "metadata": {"managedFields": [entry(ME, {"f:containers": {}})], "annotations": {"a": "of another"}},
        "spec": {"containers": [{"name": "model", "env": [{"name": "A"}]}], "defaulted": True},
    }
    desired: Resource = {
        "apiVersion": "v1",
        "metadata": {"annotations": {"b": "ours"}},
        "spec": {"containers": [{"name": "model"}]},
    }
    assert not needs_apply({"spec": desired["spec"]}, live, manager=ME), "taken for a default of the server"
    assert not has_content_of(desired, live, manager=ME)
    same = {**desired, "spec": {"containers": [{"name": "model", "env": [{"name": "A"}]}]}}
    assert has_content_of(same, live, manager=ME)
    assert not has_content_of({**same, "apiVersion": "v2"}, live, manager=ME)


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
