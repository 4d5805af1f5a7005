"""A graph's status as an observation: as operators of different releases write it, in both versions."""

from datetime import timedelta
from typing import Any

import pytest

from airunway.plugins.contract import Endpoint, Observation, Observed, Pool, Replicas
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, format_time
from airunway.status.reasons import REASONS

NAME = "llama-8b"


def ready(status: str = "True", reason: str = "all_resources_are_ready", message: str = "words") -> Resource:
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-08-31T00:00:00Z",
    }


def counts(wanted: int, got: int, *, kind: str = "Deployment") -> Resource:
    told = "availableReplicas" if kind == "PodCliqueScalingGroup" else "readyReplicas"
    return {"componentKind": kind, "componentNames": ["x"], "replicas": wanted, "updatedReplicas": wanted, told: got}


def alpha(*, worker: int = 1, **status: Any) -> Resource:
    services = {
        "Frontend": {"componentType": "frontend", "replicas": 1},
        "worker": {"componentType": "worker", "replicas": worker},
    }
    return {"metadata": {"name": NAME, "generation": 2}, "spec": {"services": services}, "status": status}


def beta(*, prefill: int = 1, decode: int = 1, entry: str = "Frontend", more: Any = (), **status: Any) -> Resource:
    components = [
        {"name": entry, "type": entry.lower(), "replicas": 1},
        {"name": "prefill", "type": "prefill", "replicas": prefill},
        {"name": "decode", "type": "decode", "replicas": decode},
        *more,
    ]
    return {"metadata": {"name": NAME, "generation": 2}, "spec": {"components": components}, "status": status}


@pytest.fixture
def observe(host: ProviderHost, deployment: Any, context: Any) -> Any:
    """What the provider makes of a graph and of what was made for it."""

    def of(graph: Any, *made: Resource, applied: Any = None, asked: Any = None, **of_context: Any) -> Observation:
        seen = (graph, *made) if isinstance(graph, dict) else made
        observed = Observed(primary=graph, objects=seen, applied=applied)
        return host.translate_status(deployment(**(asked or {})), observed, context(**of_context))

    return of


def test_a_graph_on_grove_that_serves(observe: Any) -> None:
    """As a graph of Dynamo 0.9 on Grove looks: no observedGeneration yet."""
    services = {"Frontend": counts(1, 1, kind="PodClique"), "worker": counts(2, 2, kind="PodClique")}
    found = observe(alpha(worker=2, state="successful", conditions=[ready()], services=services))
    assert (found.components[0].ready, found.components[0].message) == (True, "words")
    assert found.replicas == Replicas(desired=2, ready=2, available=2), "a Frontend is no replica of the model"
    assert found.endpoint == Endpoint(service="llama-8b-frontend", port=8000)
    assert found.up_to_date


def test_both_roles_count_and_nobody_else(observe: Any) -> None:
    planner = {"name": "Planner", "type": "planner", "replicas": 1}
    told = {"Frontend": counts(1, 1), "prefill": counts(2, 1), "decode": counts(4, 4), "Planner": counts(1, 0)}
    graph = beta(prefill=2, decode=4, more=[planner], state="pending", observedGeneration=2, components=told)
    graph["status"]["conditions"] = [ready("False", "some_resources_are_not_ready", "Resources not ready: x")]
    found = observe(graph)
    assert found.replicas == Replicas(desired=6, ready=5, available=5)
    assert (found.components[0].ready, found.components[0].reason) == (False, "Progressing")
    assert found.endpoint is not None, "what is ready serves"


def test_a_group_of_nodes_is_one_replica(observe: Any) -> None:
    services = {"Frontend": counts(1, 1), "worker": counts(2, 2, kind="PodCliqueScalingGroup")}
    found = observe(alpha(worker=2, state="successful", conditions=[ready()], services=services))
    assert found.replicas == Replicas(desired=2, ready=2, available=2)


NOT_READY = ready("False", "some_resources_are_not_ready", "Resources not ready: x")


def test_a_worker_that_an_adapter_adds_takes_nothing_from_those_that_serve(observe: Any) -> None:
    asked = {"overrides": {"scalingAdapter": True}}

    def scaled(wanted: int, got: int) -> Observation:
        services = {"Frontend": counts(1, 1), "worker": counts(wanted, got)}
        found: Observation = observe(
            alpha(worker=wanted, state="pending", conditions=[NOT_READY], services=services), asked=asked
        )
        return found

    found = scaled(3, 2)
    assert (found.components[0].ready, found.replicas) == (True, Replicas(desired=2, ready=2, available=2))
    none = scaled(3, 0)
    assert (none.components[0].ready, none.replicas) == (False, Replicas(desired=1, ready=0, available=0))
    gone = scaled(0, 0)
    assert gone.replicas == Replicas(desired=0, ready=0, available=0)


def test_what_somebody_else_put_into_the_graph_makes_it_no_worse(observe: Any) -> None:
    told = {"Frontend": counts(1, 1), "worker": counts(2, 2), "Planner": counts(1, 0)}
    graph = alpha(worker=2, state="pending", conditions=[NOT_READY], services=told)
    assert observe(graph).components[0].ready is False, "with what is ours alone the operator's word counts"
    graph["spec"]["services"]["Planner"] = {"componentType": "planner", "replicas": 1}
    found = observe(graph)
    assert (found.components[0].ready, found.components[0].message) == (True, "Resources not ready: x")
    assert found.replicas == Replicas(desired=2, ready=2, available=2)
    for name in ("Frontend", "worker"):
        graph["status"]["services"] = {**told, name: counts(2, 0)}
        assert observe(graph).components[0].ready is False
    graph["status"] = {"state": "failed", "conditions": [NOT_READY], "services": told}
    assert observe(graph).components[0].ready is False


@pytest.mark.parametrize(
    ("graph", "waits"),
    [(None, True), ({}, True), (alpha(), False), (alpha(state="initializing"), False), (beta(state=""), False)],
)
def test_nothing_reported_yet(observe: Any, graph: Any, waits: bool) -> None:
    found = observe(graph)
    component = found.components[0]
    assert (component.ready, component.reason, component.pending) == (False, "Starting", waits)
    assert found.endpoint is None


REASON_OF = {
    "some_resources_are_not_ready": "Progressing",
    "pods_not_ready": "Progressing",
    "updating": "Progressing",
    "mixed_not_ready_reasons": "Progressing",
    "rolling_update_in_progress": "Progressing",
    "waiting_for_checkpoint": "Progressing",
    "never_heard_of": "Progressing",
    "insufficient_capacity": "InsufficientCapacity",
}


@pytest.mark.parametrize("reason", REASON_OF)
def test_pending_is_judged_by_reason(observe: Any, reason: str) -> None:
    found = observe(alpha(state="pending", conditions=[ready("False", reason, "why")]))
    assert (found.components[0].reason, found.components[0].message) == (REASON_OF[reason], "why")


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("failed_to_reconcile_the_resources", "the object has been modified; please apply", "Progressing"),
        ("failed_to_reconcile_the_resources", "dial tcp: connection refused", "ConnectionRefused"),
        ("failed_to_reconcile_the_resources", "context deadline exceeded", "Timeout"),
        ("failed_to_reconcile_the_resources", "lookup x: no such host", "DNSFailure"),
        ("failed_to_reconcile_the_resources", 'pods "x" is forbidden: exceeded quota: none', "QuotaExceeded"),
        (
            "failed_to_reconcile_the_resources",
            'pods "x" is forbidden: unable to create new content in namespace n because it is being terminated',
            "Terminating",
        ),
        ("failed_to_reconcile_the_resources", "admission webhook x denied the request", "InvalidSpec"),
        ("failed_to_reconcile_the_resources", "who knows", "UpstreamError"),
        ("failed_to_initialize_worker_hash", "who knows", "UpstreamError"),
        ("failed_to_handle_the_finalizer", "", "UpstreamError"),
        ("", "combined resource name length 50 exceeds the 45-character limit", "NameTooLong"),
        ("", "spec.services must have at least one service", "InvalidSpec"),
        ("rolling_update_failed", "x", "UpstreamFailed"),
        ("no_multinode_orchestrator_available", "x", "IncompatibleConfiguration"),
        ("unsupported_workload_provider", "x", "IncompatibleConfiguration"),
        ("selected_workload_provider_unavailable", "x", "IncompatibleConfiguration"),
    ],
)
def test_failed_is_an_error_of_the_operator_and_mostly_passes(
    observe: Any, reason: str, message: str, expected: str
) -> None:
    found = observe(alpha(state="failed", conditions=[ready("False", reason, message)]))
    assert (found.components[0].ready, found.components[0].reason) == (False, expected)
    assert expected in REASONS


def test_a_failed_reconcile_counts_although_the_condition_is_of_before(observe: Any) -> None:
    assert observe(alpha(state="failed", conditions=[ready()])).components[0].ready is False


def test_a_graph_that_goes(observe: Any) -> None:
    graph = alpha(state="successful", conditions=[ready()])
    graph["metadata"]["deletionTimestamp"] = "2026-09-01T00:00:00Z"
    found = observe(graph)
    assert (found.components[0].reason, found.up_to_date) == ("Terminating", False)


@pytest.mark.parametrize(("seen", "up_to_date"), [(1, False), (2, True), (3, True)])
def test_a_status_is_of_the_generation_that_it_names(observe: Any, seen: int, up_to_date: bool) -> None:
    graph = alpha(state="successful", conditions=[ready()], observedGeneration=seen)
    assert observe(graph).up_to_date is up_to_date


def test_a_generation_of_somebody_elses_takes_nothing_from_what_serves(observe: Any, context: Any) -> None:
    graph, now = alpha(state="successful", conditions=[ready()], observedGeneration=1), context().now
    asked = {"overrides": {"scalingAdapter": True}}
    found = observe(graph, applied=now - timedelta(seconds=20), asked=asked)
    assert (found.up_to_date, found.requeue_after) == (False, 40.0), "it may still be ours"
    assert observe(graph, applied=now - timedelta(minutes=2), asked=asked).up_to_date
    assert not observe(graph, applied=now - timedelta(minutes=2)).up_to_date, "nobody else writes into this one"


def test_where_no_generation_is_named_time_tells(observe: Any, context: Any) -> None:
    graph, now = alpha(state="successful", conditions=[ready()]), context().now
    just, before = now - timedelta(seconds=1), now - timedelta(seconds=6)
    found = observe(graph, applied=just)
    assert (found.up_to_date, found.requeue_after) == (False, 4.0)
    assert observe(graph, applied=before).up_to_date
    graph["status"]["conditions"][0]["lastTransitionTime"] = format_time(now)
    assert observe(graph, applied=just).up_to_date, "it has moved since"


@pytest.mark.parametrize("kind", ["DynamoComponentDeployment", "PodClique"])
def test_a_graph_that_counts_nothing_is_counted_by_what_was_made_of_it(observe: Any, kind: str) -> None:
    """Before 0.8."""
    graph = alpha(worker=3, state="successful", conditions=[ready()])
    labels = {"nvidia.com/dynamo-graph-deployment-name": NAME, "nvidia.com/dynamo-component": "worker"}
    if kind == "PodClique":
        made: Resource = {"kind": kind, "metadata": {"labels": labels}, "status": {"readyReplicas": 3}}
    else:
        conditions = [{"type": "Available", "status": "True"}]
        made = {"kind": kind, "metadata": {}, "spec": {"serviceName": "worker"}, "status": {"conditions": conditions}}
    assert observe(graph, made).replicas == Replicas(desired=3, ready=3, available=3)
    assert observe(graph).replicas == Replicas(desired=3, ready=0, available=0)


def test_behind_a_pool_there_is_a_pool_and_no_endpoint(observe: Any) -> None:
    graph = beta(entry="Epp", state="successful", conditions=[ready()])
    found = observe(graph, pool=True)
    assert (found.endpoint, found.pool) == (None, Pool(name="llama-8b-pool", port=8000))


@pytest.mark.parametrize(("entry", "pool"), [("Epp", False), ("Frontend", True)])
def test_r14_what_answers_is_what_the_live_graph_has(observe: Any, entry: str, pool: bool) -> None:
    """A gateway that goes or comes later changes nothing of it."""
    found = observe(beta(entry=entry, state="successful", conditions=[ready()]), pool=pool)
    pooled = Pool(name="llama-8b-pool", port=8000)
    assert (found.endpoint is None, found.pool) == ((True, pooled) if entry == "Epp" else (False, None))
