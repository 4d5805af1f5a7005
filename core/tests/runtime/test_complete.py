"""Completing translated objects, and what a change needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from airunway.api import names
from airunway.api.modeldeployment import parse_deployment
from airunway.owned.objects import is_ours, our_labels
from airunway.plugins.contract import Interruption
from airunway.resource import Resource, annotations_of, labels_of
from airunway.runtime.records import (
    interruptions,
    is_primary,
    recreate_causes,
    written_for,
)
from airunway.runtime.state import provider_mark
from airunway.runtime.translate import complete

OWNER: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "ModelDeployment",
    "metadata": {
        "name": "llama",
        "namespace": "ns",
        "uid": "1234",
        "labels": {"airunway.ai/team": "blue", "airunway.ai/managed-by": "somebody else", "other": "stays away"},
    },
    "spec": {"model": {"id": "org/model"}},
}
IMMUTABLE = ("resource.count", "inference.template.*")


def both(
    model: str = "org/model",
    owner: dict[str, Any] = OWNER,
    *,
    topology: Mapping[str, object] | None = None,
    transformer: str = "only",
    version: str = "v1",
    extra: dict[str, Any] | None = None,
    **fields: Any,
) -> list[Resource]:
    primary = {
        "apiVersion": f"example.org/{version}",
        "kind": "Thing",
        "metadata": {"name": "llama", "labels": {"a": "b"}},
        **fields,
    }
    extra = extra or {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "llama-config"}}
    objects = complete(
        [primary, extra],
        owner,
        labels=our_labels(OWNER, provider_mark("toy")),
        transformer=transformer,
        wanted_for=asked_for(owner),
        revision="of the core",
        identity={"spec.model.id": model},
        topology=topology or {},
        immutable=[IMMUTABLE, ("roleRef.*",)],
        propagated={"airunway.ai/team": "blue", "a": "of the deployment", names.PROVIDER: "another"},
    )
    assert [obj["kind"] for obj in objects] == ["Thing", extra["kind"]]
    return objects


def asked_for(deployment: Resource) -> str:
    return written_for(deployment, parse_deployment(deployment))


def planned(model: str = "org/model", owner: dict[str, Any] = OWNER, **fields: Any) -> Resource:
    return both(model, owner, **fields)[0]


def test_propagated_labels_come_below_the_translation_s_and_those_below_ours() -> None:
    for obj in both():
        assert obj["metadata"]["namespace"] == "ns"
        reference = obj["metadata"]["ownerReferences"][0]
        assert (reference["uid"], reference["controller"], reference["blockOwnerDeletion"]) == ("1234", True, True)
    obj = planned()
    assert labels_of(obj) == {
        "a": "b",
        "airunway.ai/team": "blue",
        "airunway.ai/managed-by": "airunway",
        "airunway.ai/model-deployment": "llama",
        "airunway.ai/provider": "toy",
    }
    assert is_ours(obj, OWNER, provider_mark("toy"))
    assert not is_ours(obj, {**OWNER, "metadata": {**OWNER["metadata"], "uid": "other"}}, provider_mark("toy"))


def test_ruling_26_what_another_provider_made_for_the_same_deployment_is_not_ours() -> None:
    obj = planned()
    assert not is_ours(obj, OWNER, provider_mark("other"))
    del obj["metadata"]["labels"][names.PROVIDER]
    assert not is_ours(obj, OWNER, provider_mark("toy"))


def test_an_object_that_lost_its_owner_is_known_by_our_note_unless_somebody_else_controls_it() -> None:
    obj = planned()
    obj["metadata"]["ownerReferences"] = []
    assert is_ours(obj, OWNER, provider_mark("toy"))
    obj["metadata"]["ownerReferences"] = [{"kind": "Other", "name": "x", "uid": "9", "controller": True}]
    assert not is_ours(obj, OWNER, provider_mark("toy"))


BARE: Resource = {"containers": [{"name": "model"}]}


def test_pods_outside_of_a_template_are_labelled_where_the_upstream_has_a_place() -> None:
    spec = {"template": BARE, "labels": {"a": "b"}, "prefill": {"template": BARE}, "groups": [{"pod": BARE}, {}]}
    thing = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "llama"}, "spec": spec}
    before = orjson.dumps(thing)
    (found,) = complete(
        [thing],
        OWNER,
        labels=our_labels(OWNER, provider_mark("toy")),
        transformer="only",
        wanted_for="x",
        identity={},
        topology={},
        immutable=[()],
        pod_labels=[("spec.labels", "spec.prefill.labels", "spec.decode.labels", "spec.groups[*].labels", "")],
    )
    whose = names.whose("llama", provider="toy")
    assert found["spec"]["labels"] == {"a": "b", **whose}
    assert found["spec"]["prefill"]["labels"] == whose
    assert [group["labels"] for group in found["spec"]["groups"]] == [whose, whose]
    assert "decode" not in found["spec"], "nothing is made up for a role that is not there"
    assert orjson.dumps(thing) == before


POD: Resource = {"spec": {"containers": [{"name": "model"}]}}


@pytest.mark.parametrize(
    ("fields", "templates"),
    [
        ({"spec": {"template": POD}}, lambda obj: [obj["spec"]["template"]]),
        ({"inference": {"template": POD}}, lambda obj: [obj["inference"]["template"]]),
        (
            {"spec": {"leader": {"metadata": {"labels": {"a": "b"}}, **POD}, "workers": [POD, POD]}},
            lambda obj: [obj["spec"]["leader"], *obj["spec"]["workers"]],
        ),
    ],
    ids=["a Deployment's", "a Workspace's", "a leader and two workers"],
)
def test_ruling_26_every_pod_template_says_whose_its_pods_are(
    fields: dict[str, Any], templates: Callable[[Resource], list[Resource]]
) -> None:
    before = orjson.dumps(fields)
    found = templates(planned(**fields))
    whose = {
        "airunway.ai/managed-by": "airunway",
        "airunway.ai/model-deployment": "llama",
        "airunway.ai/provider": "toy",
    }
    for template in found:
        assert whose.items() <= template["metadata"]["labels"].items()
    assert orjson.dumps(fields) == before, "what the plugin gave is not changed"


def test_the_hash_follows_the_content_and_not_the_owner() -> None:
    again = {**OWNER, "metadata": {**OWNER["metadata"], "uid": "5678"}}
    first, same, changed = planned(size=1), planned(size=1, owner=again), planned(size=2)
    assert annotations_of(first)[names.SPEC_HASH] == annotations_of(same)[names.SPEC_HASH]
    assert annotations_of(first)[names.SPEC_HASH] != annotations_of(changed)[names.SPEC_HASH]


def test_only_the_primary_notes_who_wrote_it_and_for_what() -> None:
    primary, other = both()
    assert annotations_of(primary)[names.TRANSFORMER] == "only"
    assert annotations_of(primary)[names.WRITTEN_FOR] == asked_for(OWNER)
    assert (is_primary(primary), is_primary(other)) == (True, False)
    assert annotations_of(primary)[names.REVISION] == "of the core"
    assert not {names.WRITTEN_FOR, names.REVISION} & annotations_of(other).keys()


def test_what_an_operator_makes_of_the_primary_with_its_annotations_is_no_primary() -> None:
    child = planned()
    child["metadata"]["ownerReferences"] = [{"kind": "Thing", "name": "llama", "uid": "2", "controller": True}]
    assert not is_primary(child)


# ------------------------------------------------------------------------------------------------ written for


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {**OWNER["spec"], "gateway": {"enabled": True}}},
        {"spec": {**OWNER["spec"], "runtimeConfigName": "other"}},
        {"metadata": {**OWNER["metadata"], "labels": {}, "annotations": {"note": "x"}}},
        {"status": {"phase": "Running"}},
        {"spec": {"model": {"id": "org/model", "source": "huggingface"}, "serving": {"mode": "aggregated"}, "env": []}},
        {"spec": {**OWNER["spec"], "scaling": {"replicas": 1}, "suspend": False, "resources": {}}},
    ],
    ids=["gateway", "runtime config", "metadata", "status", "defaults of the CRD", "defaults that a user wrote"],
)
def test_what_never_reaches_an_upstream_object_is_nothing_that_it_was_written_for(change: dict[str, Any]) -> None:
    assert asked_for({**OWNER, **change}) == asked_for(OWNER)


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {**OWNER["spec"], "env": [{"name": "A", "value": "1"}]}},
        {"spec": {**OWNER["spec"], "scaling": {"replicas": 3}}},
        {"status": {"engine": {"type": "sglang"}}},
        {"status": {"revision": {"takenFor": "after an adoption"}}},
    ],
    ids=["spec", "scaling", "engine", "what the core took"],
)
def test_spec_engine_and_what_the_core_took_are_what_an_object_is_written_for(change: dict[str, Any]) -> None:
    assert asked_for({**OWNER, **change}) != asked_for(OWNER)


# -------------------------------------------------------------------------------------------- what needs a new object


def test_a_mutable_change_is_applied_in_place() -> None:
    assert recreate_causes(planned(size=1), planned(size=2)) == []


def test_an_immutable_path_and_an_identity_field_need_a_new_object() -> None:
    assert recreate_causes(planned(resource={"count": 1}), planned(resource={"count": 2})) == ["resource.count"]
    assert recreate_causes(planned("a/b"), planned("a/c")) == ["spec.model.id"]


def test_a_topology_that_the_plugin_names_needs_a_new_object() -> None:
    one, two = planned(topology={"roles": ["prefill"]}), planned(topology={"roles": ["prefill", "decode"]})
    assert recreate_causes(one, two) == ["roles"]
    assert recreate_causes(one, planned(topology={"roles": ["prefill"]})) == []


def test_the_three_groups_stand_apart_in_the_note() -> None:
    recorded = orjson.loads(annotations_of(planned(topology={"roles": 1}))[names.REPLACE_ON_CHANGE])
    assert {group: sorted(values) for group, values in recorded.items()} == {
        "deployment": ["spec.model.id"],
        "topology": ["roles"],
        "object": sorted(IMMUTABLE),
    }


def test_g4_another_version_compares_identity_and_topology_only() -> None:
    """Paths mean something in one API version only: all of them would have changed with it."""
    old = planned(topology={"roles": 1}, resource={"count": 1})
    new = planned(topology={"roles": 1}, resource={"count": 2}, version="v2")
    assert recreate_causes(old, new) == []
    assert recreate_causes(old, planned("a/c", topology={"roles": 2}, version="v2")) == ["roles", "spec.model.id"]


def test_an_immutable_path_of_a_dependent_counts_in_every_version() -> None:
    def binding(role: str, version: str = "v1") -> Resource:
        obj = {"kind": "RoleBinding", "metadata": {"name": "llama"}, "roleRef": {"name": role}}
        return both(extra={"apiVersion": f"rbac.authorization.k8s.io/{version}", **obj})[1]

    assert recreate_causes(binding("a"), binding("b")) == ["roleRef.*"]
    assert recreate_causes(binding("a"), binding("b", "v2")) == ["roleRef.*"]
    assert recreate_causes(binding("a"), binding("a")) == []


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


@pytest.mark.parametrize("text", [None, "no json", "[]", '{"deployment": 1}', '{"deployment": {}}'])
def test_a_removed_or_broken_annotation_recreates_nothing(text: str | None) -> None:
    live = planned("a/b")
    live["metadata"]["annotations"] = {names.REPLACE_ON_CHANGE: text} if text else {}
    assert recreate_causes(live, planned("a/c")) == []


def test_a_path_that_a_newer_provider_begins_to_track_recreates_nothing() -> None:
    live, desired = planned(resource={"count": 1}), planned(resource={"count": 1})
    recorded = annotations_of(live)[names.REPLACE_ON_CHANGE].replace('"resource.count"', '"resource.former"')
    live["metadata"]["annotations"][names.REPLACE_ON_CHANGE] = recorded
    assert recreate_causes(live, desired) == []


# --------------------------------------------------------------------------------------------------- interruptions


def interrupted(value: object, message: str = "no model is served") -> Resource:
    outages = {"engine": Interruption(value=value, message=message)}
    (made,) = complete(
        [{"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "llama"}, "spec": {}}],
        OWNER,
        labels=our_labels(OWNER, provider_mark("toy")),
        transformer="only",
        wanted_for="",
        identity={},
        topology={},
        immutable=[()],
        interrupts=outages,
    )
    return made


def test_an_outage_in_place_is_known_by_what_was_written_before() -> None:
    live = interrupted({"flag": 1})
    assert interruptions(live, interrupted({"flag": 2})) == ["no model is served"]
    assert interruptions(live, interrupted({"flag": 1})) == []
    assert interruptions(live, interrupted({"flag": 1}, message="other words")) == []
    assert interruptions(live, interrupted({"flag": 2}, message="")) == [], "other replicas go on"
    assert interruptions(planned(), interrupted({"flag": 2})) == [], "what an older provider wrote says nothing"


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"engine": 1}', '{"engine": ["a"]}', '{"engine": [1, 2]}'])
def test_whatever_is_written_into_its_annotation_breaks_nothing(text: str) -> None:
    live = interrupted({"flag": 1})
    live["metadata"]["annotations"][names.INTERRUPTS_ON_CHANGE] = text
    assert interruptions(live, interrupted({"flag": 2})) == []
