"""What a process keeps of one deployment is bounded, and nobody takes what is missing for what the user wrote."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.support.memory import memory_of

from airunway.api.base import ParseError
from airunway.api.bounds import EXCESS, MAX_FINALIZERS, excess
from airunway.api.names import provider_finalizer, provider_manager
from airunway.kube import MutationCache
from airunway.kube.packing import unpacked
from airunway.process.deployment_cache import DeploymentProjection
from airunway.resource import ObjectKey, Resource, copy_of
from airunway.runtime.translate import parsed
from airunway.selection.provider import DENIED, is_denied
from airunway.validation import validate

MANAGER = "airunway-controller"
MOST = 64 * 2**10
"""Bytes of memory that a process may spend on one deployment."""


def deployment(*, metadata: Resource | None = None, status: Resource | None = None, **spec: Any) -> Resource:
    obj: Resource = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7", "generation": 2},
        "spec": {"model": {"id": "org/model"}, "provider": {"name": "p"}, **spec},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    obj["metadata"] |= metadata or {}
    obj["status"] |= status or {}
    return obj


def kept(obj: Resource) -> Resource:
    decoded: Resource = orjson.loads(orjson.dumps(obj))
    return DeploymentProjection([MANAGER])(decoded)


FIELDS: Resource = {f"f:{i}": {"f:x": {}} for i in range(40_000)}
HUGE: dict[str, Resource] = {
    "overrides": deployment(provider={"name": "p", "overrides": {"x": [[]] * 430_000}}),
    "affinity": deployment(affinity={"a" * 700_000: [0] * 300_000}),
    "env": deployment(env=[{"name": "A"}] * 90_000),
    "labels": deployment(metadata={"labels": {f"a{i}": "b" * 60 for i in range(20_000)}}),
    "our labels": deployment(metadata={"labels": {f"airunway.ai/a{i}": "b" * 60 for i in range(20_000)}}),
    "annotations": deployment(metadata={"annotations": {"example.com/x": "y" * 250_000}}),
    "last applied": deployment(
        metadata={"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "y" * 250_000}}
    ),
    "finalizers": deployment(metadata={"finalizers": [f"a.b/{i}" for i in range(100_000)]}),
    "owners": deployment(metadata={"ownerReferences": [{"name": f"x{i}"} for i in range(50_000)]}),
    "fields of others": deployment(metadata={"managedFields": [{"manager": "x", "fieldsV1": FIELDS}]}),
    "fields under our name": deployment(metadata={"managedFields": [{"manager": MANAGER, "fieldsV1": FIELDS}]}),
    "status": deployment(status={"message": "m" * 1_300_000, "zzz": [[]] * 400_000}),
    "conditions": deployment(
        status={"conditions": [{"type": f"C{i}", "status": "True", "message": "m" * 2000} for i in range(600)]}
    ),
}


@pytest.mark.parametrize("title", HUGE)
def test_whatever_is_huge_takes_64_kib_at_most(title: str) -> None:
    assert len(orjson.dumps(HUGE[title])) > 200_000
    found = kept(HUGE[title])
    assert memory_of(found) <= MOST
    assert (found["metadata"]["uid"], found["metadata"]["generation"], found["status"]["phase"]) == ("u", 2, "Running")
    assert found["spec"]["provider"]["name"] == "p"
    assert found["spec"]["model"]["id"] == "org/model"


@pytest.mark.parametrize("title", ["overrides", "affinity", "env", "our labels", "labels"])
def test_what_is_too_large_is_marked_and_judged_as_nothing_else(title: str) -> None:
    found = kept(HUGE[title])
    assert EXCESS in found
    told = [(entry.path, entry.message) for entry in excess(HUGE[title])]
    assert [(violation.path, violation.message) for violation in validate(found)] == told
    assert excess(unpacked(found)) == excess(found)
    with pytest.raises(ParseError, match=r"larger than|longer than"):
        parsed(unpacked(found))


@pytest.mark.parametrize(
    "spec",
    [
        {"env": [{"name": f"A{i}", "value": "x" * 20} for i in range(256)]},
        {"provider": {"name": "p", "overrides": {"x": [[]] * 10_000}}},
        {"engine": {"type": "vllm", "extraArgs": ["x" * 8000] * 3}},
    ],
)
def test_a_large_spec_that_is_allowed_is_kept_small_and_comes_back_whole(spec: Resource) -> None:
    obj = deployment(**spec)
    found = kept(obj)
    assert EXCESS not in found
    assert memory_of(found) <= MOST
    assert found["spec"]["provider"]["name"] == "p"  # what is read without a pass
    assert unpacked(found) == obj
    assert validate(unpacked(found)) == validate(obj)


@pytest.mark.parametrize("theirs", ["example.com/x{}", "airunway.ai/x{}-provider"])
def test_h1_what_a_provider_holds_is_not_forgotten_behind_the_finalizers_of_others(theirs: str) -> None:
    others = [theirs.format(i) for i in range(100)]
    obj = deployment(metadata={"finalizers": [*others, provider_finalizer("p")]})
    found = DeploymentProjection([MANAGER, provider_manager("p")])(copy_of(obj))
    assert found["metadata"]["finalizers"] == [provider_finalizer("p"), *others[: MAX_FINALIZERS - 1]]
    assert [(each.path, each.message) for each in excess(found)] == [
        ("metadata.finalizers", "more than 64: remove those that no controller needs")
    ]
    few = deployment(metadata={"finalizers": [*others[: MAX_FINALIZERS - 1], provider_finalizer("p")]})
    assert kept(few) == few


def test_a_usual_deployment_is_kept_as_it_is() -> None:
    obj = deployment(env=[{"name": "A", "value": "b"}], metadata={"labels": {"team": "a"}, "finalizers": ["x/y"]})
    assert kept(obj) == obj
    assert unpacked(obj) is obj


def test_a_large_status_loses_what_others_wrote_first() -> None:
    obj = deployment(status={"aaa": "x" * 100_000, "provider": {"name": "p"}, "reason": "Ready"})
    assert kept(obj)["status"] == {key: obj["status"][key] for key in obj["status"] if key != "aaa"}


def test_fields_that_are_nested_too_deeply_do_not_keep_an_object_whole() -> None:
    deep: Resource = {}
    for _ in range(900):
        deep = {"f:x": deep}
    obj = deployment(metadata={"managedFields": [{"manager": MANAGER, "fieldsV1": {"f:spec": deep}}]})
    obj["spec"]["affinity"] = {"x": [[]] * 430_000}
    assert memory_of(DeploymentProjection([MANAGER])(obj)) <= MOST


def test_a_pass_sees_the_whole_spec() -> None:
    """The overlay gives passes what the cache keeps packed, also from the answers to our own writes."""
    obj = deployment(env=[{"name": f"A{i}", "value": "x" * 20} for i in range(256)])

    class Cache:
        def get(self, key: ObjectKey) -> Resource | None:
            return kept(obj)

        def add_handler(self, handler: Any) -> None: ...

    overlay = MutationCache(Cache(), project=DeploymentProjection([MANAGER]), restore=unpacked)
    assert overlay.get(ObjectKey("b", "a")) == obj
    newer: Resource = orjson.loads(orjson.dumps(obj))
    newer["metadata"]["resourceVersion"] = "8"
    overlay.note(orjson.loads(orjson.dumps(newer)))
    assert overlay.get(ObjectKey("b", "a")) == newer


def test_several_readers_keep_what_each_of_them_needs() -> None:
    fields: Resource = {"f:status": {"f:phase": {}}}
    entries = [{"manager": f"m{i}", "operation": "Apply", "fieldsV1": fields} for i in range(4)]
    found = DeploymentProjection(["m1", "m3"])(deployment(metadata={"managedFields": entries}))
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == ["m1", "m3"]


@pytest.mark.parametrize("denied", [(), ("a",), ("b",), ("a", "b"), ("b", "c")])
def test_of_the_selection_providers_keep_whether_they_are_denied(denied: tuple[str, ...]) -> None:
    verdicts = {name: f"x: {DENIED}" if name in denied else "r" * 500 for name in "abcd"}
    candidates = [{"name": name, "eligible": name not in denied, "reasons": [verdicts[name]]} for name in "abcd"]
    obj = deployment(status={"selection": {"candidates": candidates, "reason": "r" * 500}})
    before = {name: is_denied(obj, name) for name in "abc"}
    assert before == {name: name in denied for name in "abc"}
    found = DeploymentProjection([MANAGER], providers=["a", "b", "c"])(copy_of(obj))
    assert {name: is_denied(found, name) for name in "abc"} == before
    assert "r" * 500 not in str(found)
    assert ("selection" in found["status"]) == bool(denied)
    assert DeploymentProjection([MANAGER])(copy_of(obj))["status"]["selection"] == obj["status"]["selection"]


def test_equal_verdicts_on_all_candidates_are_kept_once() -> None:
    project = DeploymentProjection([MANAGER])

    def candidates_of(score: int) -> list[Resource]:
        candidates = [{"name": name, "eligible": True, "score": score} for name in "abcde"]
        decoded = orjson.loads(orjson.dumps(deployment(status={"selection": {"candidates": candidates}})))
        result: list[Resource] = project(decoded)["status"]["selection"]["candidates"]
        return result

    first = candidates_of(1)
    assert candidates_of(1) is first
    assert candidates_of(2) == [{"name": name, "eligible": True, "score": 2} for name in "abcde"]
    for score in range(3, 500):  # whoever varies them keeps nothing from being forgotten
        candidates_of(score)
    assert candidates_of(1) == first
