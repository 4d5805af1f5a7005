"""The views of a selection and of the cluster's GPUs, of plain, hostile and unreadable objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import Any

from core.tests.any_json import anything, changed
from core.tests.view.test_views import HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.resource import Resource
from airunway.selection.explanation import explain
from airunway.selection.facts import provider_facts
from airunway.view import Unseen
from airunway.view.explanation import ExplanationView, explanation_view
from airunway.view.nodes import NodesView, nodes_view

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def deployment(**spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "ml"},
        "spec": {"model": {"id": "org/model"}, "resources": {"gpu": {"count": 1}}, **spec},
    }


def config(name: str, *, rules: tuple[tuple[str, int], ...] = (), engine: str = "vllm") -> Resource:
    return {
        "metadata": {"name": name},
        "spec": {
            "capabilities": {"engines": [{"name": engine, "servingModes": ["aggregated"], "gpuSupport": True}]},
            "selectionRules": [{"condition": text, "priority": priority} for text, priority in rules],
        },
        "status": {"ready": True},
    }


def explained(obj: Resource, *configs: Resource) -> ExplanationView:
    return explanation_view(explain(obj, [provider_facts(each) for each in configs], now=NOW))


def node(name: str, gpus: int, *, cordoned: bool = False, product: str = "NVIDIA-L4") -> Resource:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "23034"}},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {}},
    }


def pod(name: str, on: str, gpus: int) -> Resource:
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"metadata": {"name": name}, "spec": {"nodeName": on, "containers": [limits]}, "status": {}}


def test_every_provider_has_a_verdict_and_what_would_change_it() -> None:
    rules = (("spec.engine.type == 'vllm'", 50),)
    view = explained(deployment(), config("alpha", rules=rules), config("beta"), config("gamma", engine="llamacpp"))
    assert (view.provider, view.engine, view.parsed, view.violations) == ("alpha", "vllm", True, ())
    alpha, beta, gamma = view.candidates
    assert [(each.name, each.verdict) for each in view.candidates] == [
        ("alpha", "selected"),
        ("beta", "eligible"),
        ("gamma", "rejected"),
    ]
    assert (alpha.checks[0].name, alpha.checks[0].detail) == ("rule", f"true (priority 50) {rules[0][0]}")
    assert "alpha has the higher score (50 against 0)" in beta.why_not
    assert beta.changes == ("set spec.provider.name to beta",)
    assert any(change.startswith("set spec.engine.type to llamacpp") for change in gamma.changes)


def test_a_spec_that_cannot_be_read_has_only_violations() -> None:
    view = explained(deployment(engine="vllm"), config("alpha"))
    assert (view.parsed, view.candidates, view.provider) == (False, (), "")
    assert view.violations


def test_hostile_texts_become_bounded_lines() -> None:
    view = explained(
        deployment(model={"id": HOSTILE}), config(HOSTILE[:300], rules=((f"spec.x == '{HOSTILE}'", 5),)), config("b")
    )
    document = json.dumps(view.as_resource(), ensure_ascii=False)
    assert document.isprintable()
    assert "hf_0123456789abcdef" not in document
    assert len(document) < 20_000


def shown(view: NodesView) -> list[tuple[str, object, tuple[str, ...]]]:
    assert not isinstance(view.rows, Unseen)
    return [(row.node, row.free, row.obstacles) for row in view.rows]


def test_free_gpus_are_summed_over_nodes_that_take_pods() -> None:
    nodes = [node("a", 8), node("b", 4), node("c", 8, cordoned=True), node("plain", 0)]
    view = nodes_view(nodes, [pod("one", "a", 6), pod("two", "b", 1)])
    assert shown(view) == [("a", 2, ()), ("b", 3, ()), ("c", 8, ("cordoned",))]
    (group,) = view.groups
    assert (group.nodes, group.allocatable, group.free, group.largest) == (3, 20, 5, 3)
    assert view.without_gpus == 1


def test_without_the_right_to_pods_or_nodes_nothing_counts_as_free_or_absent() -> None:
    unseen = Unseen(what="pods", why="you have no right to it", right="list pods in all namespaces")
    view = nodes_view([node("a", 8)], unseen)
    (row,) = view.as_resource()["rows"]
    assert row["free"] == unseen.as_resource()
    assert view.as_resource()["groups"][0]["free"] == row["free"]
    nodes = Unseen(what="nodes", why="you have no right to it", right="list nodes")
    nothing = nodes_view(nodes, unseen).as_resource()
    assert nothing["rows"]["right"] == nothing["withoutGpus"]["right"] == "list nodes"


@settings(max_examples=100, deadline=None)
@given(st.randoms())
def test_any_json_gives_the_view_of_nodes(chance: Random) -> None:
    objects = [changed(chance, base, anything) for base in (node("a", 8), pod("one", "a", 6))]
    view = nodes_view([objects[0], node("b", 2, product=HOSTILE)], [objects[1]])
    assert json.dumps(view.as_resource(), ensure_ascii=False).isprintable()
