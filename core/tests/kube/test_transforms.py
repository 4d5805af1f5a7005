"""What caches share between objects, and that sharing changes nothing."""

from __future__ import annotations

import copy
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from airunway.kube import intern_status, transform_once
from airunway.resource import Resource

SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
CONDITIONS = st.lists(st.dictionaries(st.sampled_from(["type", "status", "n"]), JSON, max_size=3) | JSON, max_size=4)


def fresh(obj: Any) -> Any:
    """An equal value that shares nothing, as if it had been read once more."""
    return orjson.loads(orjson.dumps(obj))


@given(st.lists(st.fixed_dictionaries({"conditions": CONDITIONS | JSON, "other": JSON}) | JSON, max_size=6))
def test_sharing_changes_no_value_and_no_type(statuses: list[Any]) -> None:
    project = intern_status()
    objects: list[Resource] = [{"status": status} for status in statuses]
    before = copy.deepcopy(objects)
    after = [project(obj) for obj in objects]
    assert [orjson.dumps(obj) for obj in after] == [orjson.dumps(obj) for obj in before]


def test_equal_conditions_are_one_and_different_ones_are_not() -> None:
    ready = {"type": "Ready", "status": "True", "observedGeneration": 1}
    other = {**ready, "observedGeneration": 2}
    project = intern_status()
    first, second = (
        project({"status": {"conditions": fresh([ready, other])}})["status"]["conditions"] for _ in range(2)
    )
    assert first[0] is second[0]
    assert first[1] is second[1]
    assert first == [ready, other]


def test_an_object_without_status_or_with_an_odd_one_is_left_as_it_is() -> None:
    project = intern_status()
    for obj in ({}, {"status": None}, {"status": "odd"}, {"status": {"conditions": {"type": "Ready"}}}):
        assert project(fresh(obj)) == obj


def test_a_write_and_its_echo_are_projected_once() -> None:
    made: list[Resource] = []

    def project(obj: Resource) -> Resource:
        made.append(obj)
        return {"of": obj}

    remembered = transform_once(project)

    def state(uid: str, version: str) -> Resource:
        return {"metadata": {"uid": uid, "resourceVersion": version}}

    answer = remembered(state("a", "1"))
    assert remembered(state("b", "1")) is not answer
    assert remembered(state("a", "1")) is answer
    assert remembered(state("a", "2")) == {"of": state("a", "2")}
    assert len(made) == 3


def test_one_state_of_an_object_in_two_versions_is_two_objects() -> None:
    remembered = transform_once(lambda obj: obj)
    metadata = {"uid": "a", "resourceVersion": "1"}
    old = remembered({"apiVersion": "example.com/v1alpha1", "metadata": metadata, "spec": {"drive": "vllm"}})
    new = remembered({"apiVersion": "example.com/v1beta1", "metadata": metadata, "spec": {"motor": "vllm"}})
    assert (old["spec"], new["spec"]) == ({"drive": "vllm"}, {"motor": "vllm"})


def test_what_has_no_identity_is_never_taken_for_another() -> None:
    remembered = transform_once(lambda obj: {"of": obj})
    for metadata in ({}, {"uid": "a"}, {"resourceVersion": "1"}, None):
        first = remembered({"metadata": metadata, "spec": 1})
        assert remembered({"metadata": metadata, "spec": 2}) != first


def test_few_states_are_remembered() -> None:
    made: list[Resource] = []

    def project(obj: Resource) -> Resource:
        made.append(obj)
        return obj

    remembered = transform_once(project)
    for _ in range(2):
        for number in range(1000):
            remembered({"metadata": {"uid": str(number), "resourceVersion": "1"}})
    assert len(made) == 2000
