"""A graph is the same to the operator in whatever version it is written."""

from typing import Any

import pytest

from airunway.resource import Resource
from airunway_dynamo_simulator.graph import components_of, on_grove, refusals
from airunway_dynamo_simulator.scenarios import scripted_status
from airunway_dynamo_simulator.workloads import cliques_of, deployment, frontend_service, made_name
from airunway_testing.simulators.scenarios import Scenario, parse_scenario

NOW = "2026-01-01T00:00:00Z"
IMAGE = "registry.example/runtime:1.3.1"


def alpha(*, nodes: int = 1, name: str = "llama", **of_status: Any) -> Resource:
    worker = {
        "componentType": "worker",
        "subComponentType": "prefill",
        "replicas": 2,
        "envs": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"gpu": "1", "memory": "1Gi"}},
        "extraPodMetadata": {"labels": {"team": "x"}},
        "extraPodSpec": {"nodeSelector": {"a": "b"}, "mainContainer": {"image": IMAGE, "args": ["--x"]}},
        **({"multinode": {"nodeCount": nodes}} if nodes > 1 else {}),
    }
    frontend = {"componentType": "frontend", "extraPodSpec": {"mainContainer": {"image": IMAGE}}}
    return graph(name, {"services": {"prefill": worker, "Frontend": frontend}}, of_status)


def beta(*, nodes: int = 1, name: str = "llama", **of_status: Any) -> Resource:
    main = {
        "name": "main",
        "image": IMAGE,
        "args": ["--x"],
        "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "1Gi"}},
    }
    template = {"metadata": {"labels": {"team": "x"}}, "spec": {"nodeSelector": {"a": "b"}, "containers": [main]}}
    worker = {"name": "prefill", "type": "prefill", "replicas": 2, "podTemplate": template}
    if nodes > 1:
        worker["multinode"] = {"nodeCount": nodes}
    plain = {"spec": {"containers": [{"name": "main", "image": IMAGE}]}}
    frontend = {"name": "Frontend", "type": "frontend", "podTemplate": plain}
    return graph(name, {"components": [frontend, worker]}, of_status)


def graph(name: str, spec: Resource, status: Resource) -> Resource:
    metadata = {"name": name, "namespace": "default", "uid": "u", "generation": 3}
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "DynamoGraphDeployment",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def test_both_versions_run_the_same_pods() -> None:
    for old, new in zip(components_of(alpha()), components_of(beta()), strict=True):
        assert (old.name, old.type, old.replicas, old.nodes) == (new.name, new.type, new.replicas, new.nodes)
        (was,), (is_) = old.template["spec"]["containers"], new.template["spec"]["containers"][0]
        assert {key: value for key, value in was.items() if value} == {
            key: value for key, value in is_.items() if value
        }
    assert [component.label for component in components_of(alpha())] == ["frontend", "worker"]
    assert [component.label for component in components_of(beta())] == ["frontend", "prefill"]


def test_only_a_worker_is_another_object_when_it_changes() -> None:
    before, after = beta(), beta()
    for component in after["spec"]["components"]:
        component["podTemplate"]["spec"]["containers"][0]["image"] = "registry.example/runtime:2.0.0"
    names = [[made_name(g, component) for component in components_of(g)] for g in (before, after)]
    assert names[0][0] == names[1][0] == "llama-frontend"
    assert names[0][1] != names[1][1]
    assert names[0][1].startswith("llama-prefill-")


def test_what_the_operator_adds_to_a_pod() -> None:
    frontend, worker = components_of(beta())
    made = deployment(beta(), worker, {"apiVersion": "v1", "kind": "X", "metadata": {"name": "o", "uid": "u"}})
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert (labels["team"], labels["nvidia.com/dynamo-graph-deployment-name"]) == ("x", "llama")
    assert (labels["nvidia.com/dynamo-component"], labels["nvidia.com/dynamo-component-type"]) == ("prefill", "prefill")
    service = frontend_service(beta(), frontend)
    assert (service["metadata"]["name"], service["spec"]["ports"][0]["port"]) == ("llama-frontend", 8000)


def test_over_several_nodes_each_replica_has_a_leader_and_others() -> None:
    _, worker = components_of(beta(nodes=3))
    names = [(clique.name, clique.pods) for clique in cliques_of(beta(nodes=3), worker)]
    assert names == [
        ("llama-0-prefill-0-prefill-ldr", 1),
        ("llama-0-prefill-0-prefill-wkr", 2),
        ("llama-0-prefill-1-prefill-ldr", 1),
        ("llama-0-prefill-1-prefill-wkr", 2),
    ]


@pytest.mark.parametrize(("nodes", "longest"), [(1, 37), (2, 27)])
def test_names_are_limited_on_grove(nodes: int, longest: int) -> None:
    for make in (alpha, beta):
        assert list(refusals(make(name="m" * longest, nodes=nodes), grove=True)) == []
        (said,) = refusals(make(name="m" * (longest + 1), nodes=nodes), grove=True)
        assert "exceeds the 45-character limit" in said
        assert list(refusals(make(name="m" * (longest + 1), nodes=nodes), grove=False)) == []


def test_a_graph_of_nothing_is_refused() -> None:
    assert list(refusals(graph("m", {"services": {}}, {}), grove=False)) == [
        "spec.services must have at least one service"
    ]
    assert "must have at least one component" in next(refusals(graph("m", {"components": []}, {}), grove=False))


def test_grove_can_be_declined() -> None:
    declined = beta()
    declined["metadata"]["annotations"] = {"nvidia.com/enable-grove": "False"}
    assert [on_grove(found, installed=True) for found in (beta(), declined)] == [True, False]
    assert on_grove(beta(), installed=False) is False


@pytest.mark.parametrize("make", [alpha, beta])
@pytest.mark.parametrize(
    ("word", "state", "status", "reason"),
    [
        ("instant", "successful", "True", "all_resources_are_ready"),
        ("never-ready", "pending", "False", "some_resources_are_not_ready"),
        ("fails:ImagePullBackOff", "pending", "False", "some_resources_are_not_ready"),
        ("fails:rolling_update_failed", "failed", "False", "rolling_update_failed"),
        ("degrades:CrashLoopBackOff", "pending", "False", "some_resources_are_not_ready"),
        ("no-nodes", "pending", "False", "insufficient_capacity"),
        ("error:the words", "failed", "False", "failed_to_reconcile_the_resources"),
    ],
)
def test_what_a_scenario_looks_like(make: Any, word: str, state: str, status: str, reason: str) -> None:
    found = scripted_status(make(), parse_scenario(word), NOW)
    (condition,) = found["conditions"]
    assert (found["state"], condition["type"], condition["status"], condition["reason"]) == (
        state,
        "Ready",
        status,
        reason,
    )
    again = scripted_status({**make(), "status": found}, parse_scenario(word), "2027-01-01T00:00:00Z")
    assert again == found, "nothing is left to do"
    assert scripted_status(make(), Scenario("silent"), NOW) == {}
    if state != "failed":
        assert found["observedGeneration"] == 3
        told = found["services" if make is alpha else "components"]
        assert set(told) == {"Frontend", "prefill"}
        assert told["Frontend"]["readyReplicas"] == 1
