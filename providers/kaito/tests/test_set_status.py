"""An InferenceSet's status as an observation: what its Workspaces are, by hand, as recorded, and whatever comes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recorded import recorded_by

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Component, Endpoint, Observation, Observed, Replicas
from airunway.resource import Resource
from airunway_kaito.status import observation

READY = [{"type": "WorkspaceSucceeded", "status": "True", "reason": "workspaceSucceeded", "message": "succeeds"}]
SERVICE = {"kind": "Service", "metadata": {"name": "llama-8b"}}


def inference_set(replicas: int, *conditions: Resource, **metadata: Any) -> Resource:
    return {
        "kind": "InferenceSet",
        "metadata": {"name": "llama-8b", "uid": "set", "generation": 1, **metadata},
        "spec": {"replicas": replicas},
        "status": {"conditions": list(conditions)},
    }


def workspace(suffix: str, *conditions: Resource, owner: str = "set", state: str = "", **metadata: Any) -> Resource:
    owners = [{"kind": "InferenceSet", "name": "llama-8b", "uid": owner, "controller": True}]
    return {
        "kind": "Workspace",
        "metadata": {"name": f"llama-8b-{suffix}", "ownerReferences": owners, **metadata},
        "status": {"conditions": list(conditions), **({"state": state} if state else {})},
    }


def pending(reason: str = "WorkspaceInferenceStatusPending", message: str = "not ready") -> list[Resource]:
    waits = {"type": "WorkspaceSucceeded", "status": "False", "reason": "workspacePending", "message": "waiting"}
    return [waits, {"type": "InferenceReady", "status": "False", "reason": reason, "message": message}]


def observe(primary: Resource, *objects: Resource) -> Observation:
    replicas = primary["spec"].get("replicas", 1)
    spec = {"model": {"id": "o/m"}, "scaling": {"replicas": replicas}}
    deployment = parse_deployment({"metadata": {"name": "llama-8b"}, "spec": spec})
    return observation(deployment, Observed(primary=primary, objects=(primary, *objects)))


def component(found: Observation) -> Component:
    (only,) = found.components
    return only


def test_ready_are_as_many_as_are_wanted_all_of_them_ready() -> None:
    found = observe(inference_set(2), workspace("a", *READY), workspace("b", *READY), SERVICE)
    assert (component(found).ready, component(found).reason) == (True, "Ready")
    assert found.replicas == Replicas(desired=2, ready=2, available=2)
    assert found.endpoint == Endpoint(service="llama-8b", port=80, target_port=5000)
    assert found.up_to_date
    assert found.selector == "inferenceset.kaito.sh/created-by=llama-8b,apps.kubernetes.io/pod-index=0"


def test_a_workspace_that_fails_beside_others_degrades_and_is_named() -> None:
    failing = workspace("b", *pending("ImagePullError", "401 Unauthorized"), state="Pending")
    slow = workspace("a", *pending())
    found = observe(inference_set(3), slow, failing, workspace("c", *READY))
    assert component(found).reason == "ImagePullAuthFailure"
    assert component(found).only_degrades
    assert component(found).message == "1 of 3 replicas are ready; llama-8b-b: 401 Unauthorized"
    assert found.replicas == Replicas(desired=3, ready=1, available=1)


def test_with_none_ready_nothing_is_partial() -> None:
    found = observe(inference_set(2), workspace("a", *pending()), workspace("b"))
    assert (component(found).reason, component(found).only_degrades) == ("Progressing", False)


def test_fewer_workspaces_than_wanted_are_progress_and_not_yet_current() -> None:
    found = observe(inference_set(2), workspace("a", *READY))
    assert (component(found).ready, component(found).reason, found.up_to_date) == (False, "Progressing", False)


@pytest.mark.parametrize(
    "other",
    [workspace("old", *READY, owner="earlier"), workspace("gone", *READY, deletionTimestamp="2026-09-01T00:00Z")],
)
def test_neither_an_earlier_set_s_workspaces_count_nor_those_that_go(other: Resource) -> None:
    found = observe(inference_set(1), other)
    assert (component(found).ready, found.replicas) == (False, Replicas(desired=1))


def test_zero_replicas_are_ready_once_the_last_workspace_goes() -> None:
    assert component(observe(inference_set(0))).ready
    assert not component(observe(inference_set(0), workspace("a", *READY))).ready


def test_a_set_that_goes_is_not_ready() -> None:
    found = observe(inference_set(1, deletionTimestamp="2026-09-01T00:00:00Z"), workspace("a", *READY))
    assert not component(found).ready
    assert not found.up_to_date


def test_what_kaito_fails_at_beside_the_model_is_a_warning() -> None:
    failed = {"type": "InferenceSetReady", "status": "False", "reason": "inferencesetFailed", "message": "no Flux"}
    found = observe(inference_set(1, failed), workspace("a", *READY))
    assert component(found).ready
    assert [finding.message for finding in found.warnings] == ["KAITO: no Flux"]


def test_recorded_lives_are_read_as_they_were() -> None:
    """Scaled 2, 3, 1, 0, 2, with a pod out of memory in between (g1): never ready with fewer than were wanted."""
    path = recorded_by("kaito-v0.12.0") / "g1-inferenceset.jsonl"
    wanted = {1: 2, 2: 3, 3: 3, 4: 3, 5: 1, 6: 0, 7: 2, 8: 2}
    live: dict[str, Resource] = {}
    seen: list[tuple[int, int, bool]] = []
    primary: Resource = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if (row["kind"], row["name"]) == ("Step", "end"):
            break
        metadata = {key: row.get(key) for key in ("name", "generation", "deletionTimestamp")}
        if row["kind"] == "InferenceSet":
            primary = {**inference_set(wanted[row["generation"]]), "status": row["status"] or {}}
            primary["metadata"] |= metadata
        elif row["kind"] == "Workspace":
            live[row["name"]] = {**workspace(""), "status": row["status"] or {}}
            live[row["name"]]["metadata"] |= metadata
            if row["type"] == "DELETED":
                del live[row["name"]]
        else:
            continue
        found = observe(primary, *live.values())
        assert found.replicas is not None
        state = (found.replicas.desired, found.replicas.ready, bool(component(found).ready))
        if not seen or seen[-1] != state:
            seen.append(state)
    assert seen == [
        (2, 0, False),
        (2, 1, False),
        (2, 2, True),
        (3, 2, False),
        (3, 3, True),
        (3, 2, False),
        (3, 3, True),
        (1, 1, False),
        (1, 1, True),
        (0, 0, False),
        (0, 0, True),
        (2, 0, False),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["kind", "metadata", "spec", "status", "conditions", "ownerReferences", "uid", "replicas"])
OBJECT = st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=3), max_size=4)


@given(primary=OBJECT, others=st.lists(OBJECT, max_size=3))
def test_any_json_gives_an_answer(primary: Resource, others: list[Resource]) -> None:
    deployment = parse_deployment({"metadata": {"name": "m"}, "spec": {"model": {"id": "o/m"}}})
    named = {**primary, "kind": "InferenceSet"}
    found = observation(deployment, Observed(primary=named, objects=(named, *others)))
    assert len(found.components) == 1
    assert found.replicas is not None
    assert found.replicas.ready >= 0
