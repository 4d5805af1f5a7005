"""Completing translated objects, and what a change needs (spec rulings 9 and 10)."""

from __future__ import annotations

from typing import Any

from airunway.runtime.plan import REPLACE_ON_CHANGE, complete, is_ours, recreate_causes

from airunway.api import names
from airunway.resource import annotations_of, labels_of

OWNER: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "ModelDeployment",
    "metadata": {"name": "llama", "namespace": "ns", "uid": "1234"},
}
IMMUTABLE = ("resource.count", "inference.template.*")


def planned(model: str = "org/model", owner: dict[str, Any] = OWNER, **fields: Any) -> dict[str, Any]:
    primary = {
        "apiVersion": "example.org/v1",
        "kind": "Thing",
        "metadata": {"name": "llama", "labels": {"a": "b"}},
        **fields,
    }
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "llama-config"}}
    objects = complete(
        [primary, extra],
        owner,
        identity={"spec.model.id": model},
        immutable_paths=IMMUTABLE,
        labels={"airunway.ai/team": "blue", "airunway.ai/managed-by": "somebody else"},
        transformer="only",
    )
    assert [obj["kind"] for obj in objects] == ["Thing", "ConfigMap"]
    return objects[0]


def test_objects_get_namespace_owner_and_labels_and_ours_win() -> None:
    obj = planned()
    assert obj["metadata"]["namespace"] == "ns"
    reference = obj["metadata"]["ownerReferences"][0]
    assert (reference["uid"], reference["controller"], reference["blockOwnerDeletion"]) == ("1234", True, True)
    assert labels_of(obj) == {
        "a": "b",
        "airunway.ai/team": "blue",
        "airunway.ai/managed-by": "airunway",
        "airunway.ai/model-deployment": "llama",
    }
    assert is_ours(obj, OWNER)
    assert not is_ours(obj, {**OWNER, "metadata": {**OWNER["metadata"], "uid": "other"}})


def test_the_hash_follows_the_content_and_not_the_owner() -> None:
    again = {**OWNER, "metadata": {**OWNER["metadata"], "uid": "5678"}}
    first, same, changed = planned(size=1), planned(size=1, owner=again), planned(size=2)
    assert annotations_of(first)[names.SPEC_HASH] == annotations_of(same)[names.SPEC_HASH]
    assert annotations_of(first)[names.SPEC_HASH] != annotations_of(changed)[names.SPEC_HASH]


def test_a_mutable_change_is_applied_in_place() -> None:
    assert recreate_causes(planned(size=1), planned(size=2)) == []


def test_an_immutable_path_and_an_identity_field_need_a_new_object() -> None:
    assert recreate_causes(planned(resource={"count": 1}), planned(resource={"count": 2})) == ["resource.count"]
    assert recreate_causes(planned("a/b"), planned("a/c")) == ["spec.model.id"]


def test_a_value_that_is_dropped_or_appears_below_an_immutable_subtree_counts() -> None:
    with_env = planned(inference={"template": {"env": ["X"], "image": "i"}})
    without = planned(inference={"template": {"image": "i"}})
    assert recreate_causes(with_env, without) == ["inference.template.*"]
    assert recreate_causes(without, with_env) == ["inference.template.*"]
    assert recreate_causes(planned(), without) == ["inference.template.*"]


def test_what_the_upstream_fills_in_is_no_change_of_ours() -> None:
    live = planned(resource={"count": 1})
    live["resource"]["instanceType"] = "filled in by a webhook"
    assert recreate_causes(live, planned(resource={"count": 1})) == []


def test_a_removed_or_broken_annotation_recreates_nothing() -> None:
    desired = planned("a/c")
    for text in (None, "no json", "[]"):
        live = planned("a/b")
        live["metadata"]["annotations"] = {REPLACE_ON_CHANGE: text} if text else {}
        assert recreate_causes(live, desired) == []


def test_a_path_that_a_newer_provider_begins_to_track_recreates_nothing() -> None:
    live, desired = planned(resource={"count": 1}), planned(resource={"count": 1})
    recorded = annotations_of(live)[REPLACE_ON_CHANGE].replace('"resource.count"', '"resource.former"')
    live["metadata"]["annotations"][REPLACE_ON_CHANGE] = recorded
    assert recreate_causes(live, desired) == []
