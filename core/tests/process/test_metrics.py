"""Counting, reading at scrape, bounds, and what changes of a deployment count as."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.process.metric_catalogue import METRICS, MetricsRole, MetricType
from airunway.process.metrics import OTHER, Metrics, Point, Transitions, deployment_points, provider_points
from airunway.resource import ObjectKey, Resource, format_time

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LABELS = {metric.name: metric.labels for metric in METRICS}


def deployment(
    name: str = "a",
    *,
    phase: str | None = None,
    provider: str = "",
    conditions: dict[str, str] | None = None,
    created: datetime = NOW,
    generation: int = 1,
    uid: str = "1",
    namespace: str = "ml",
    **spec: Any,
) -> Resource:
    status: Resource = {"conditions": [{"type": t, "status": s} for t, s in (conditions or {}).items()]}
    if phase:
        status["phase"] = phase
    if provider:
        status["provider"] = {"name": provider}
    metadata = {"name": name, "namespace": namespace, "uid": uid, "generation": generation}
    return {
        "metadata": {**metadata, "creationTimestamp": format_time(created)},
        "spec": {"model": {"id": "org/model"}, **spec},
        "status": status,
    }


def keyed(*deployments: Resource) -> list[tuple[ObjectKey, Resource]]:
    return [(ObjectKey(d["metadata"]["namespace"], d["metadata"]["name"]), d) for d in deployments]


def by_name(points: Iterable[Point], name: str) -> dict[tuple[str, ...], float]:
    return {labels: value for metric, labels, value in points if metric == name}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


# ------------------------------------------------------------------------------------------------------- reading


def test_deployments_are_counted_and_shown() -> None:
    points = list(
        deployment_points(
            keyed(
                deployment("a", phase="Running", provider="kaito", conditions={"Ready": "True"}),
                deployment("b", phase="Running", provider="kaito", suspend=True),
                deployment("c"),
            )
        )
    )
    assert by_name(points, "airunway_modeldeployments") == {("ml", "Running"): 2, ("ml", "None"): 1}
    assert by_name(points, "airunway_deployment_status") == {("kaito", "Running"): 2, ("", "None"): 1}
    assert by_name(points, "airunway_modeldeployment_condition") == {("ml", "a", "Ready", "True"): 1}
    assert by_name(points, "airunway_deployment_suspended") == {("ml", "b"): 1}
    assert by_name(points, "airunway_modeldeployment_info")["ml", "a", "kaito", "", "org/model"] == 1
    assert by_name(points, "airunway_objects_left_out") == {(): 0}


def test_a_member_of_a_group_has_a_share_and_a_weight() -> None:
    live = deployment("a", gateway={"group": "chat", "weight": 9})
    live["status"]["gateway"] = {"group": {"name": "chat", "holder": "a", "share": 90}}
    points = list(deployment_points(keyed(live, deployment("b"))))
    assert by_name(points, "airunway_gateway_share") == {("ml", "a", "chat"): 90}
    assert by_name(points, "airunway_gateway_weight") == {("ml", "a", "chat"): 9}


def test_a_limit_bounds_what_is_shown_and_says_so() -> None:
    many = [deployment(f"d{i}", phase="Running", namespace=f"n{i}", provider=f"p{i}") for i in range(10)]
    points = list(deployment_points(keyed(*many), limit=3))
    assert set(by_name(points, "airunway_deployment_phase")) == {(f"n{i}", f"d{i}", "Running") for i in range(3)}
    assert by_name(points, "airunway_objects_left_out") == {(): 7}
    totals = by_name(points, "airunway_modeldeployments")
    assert sum(totals.values()) == 10
    assert totals[OTHER, "Running"] == 7
    assert by_name(points, "airunway_deployment_status")[OTHER, "Running"] == 7


WORDS = st.sampled_from(["status", "phase", "provider", "name", "conditions", "replicas", "ready", "model", "id"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner)
)


@given(JSON)
def test_no_status_that_somebody_wrote_breaks_a_scrape(junk: Any) -> None:
    obj = {"metadata": {"name": "a", "namespace": "ml"}, "status": junk, "spec": junk}
    for name, labels, number in deployment_points([(ObjectKey("ml", "a"), obj)]):
        assert len(labels) == len(LABELS[name])
        assert all(isinstance(label, str) for label in labels)
        assert isinstance(float(number), float)


def test_providers_show_readiness_and_age() -> None:
    conditions = [{"type": "R", "status": "True"}]
    config = {"status": {"ready": True, "lastHeartbeat": format_time(NOW), "conditions": conditions}}
    points = list(provider_points([(ObjectKey("", "kaito"), config)], silence_of={"kaito": timedelta(seconds=90)}.get))
    assert points == [
        ("airunway_provider_ready", ("kaito",), 1.0),
        ("airunway_provider_heartbeat_age_seconds", ("kaito",), 90.0),
        ("airunway_provider_condition", ("kaito", "R", "True"), 1.0),
    ]
    assert list(provider_points([(ObjectKey("", "x"), {})], silence_of=lambda _: None)) == [
        ("airunway_provider_ready", ("x",), 0.0)
    ]


async def test_a_page_holds_what_was_counted_and_what_is_read() -> None:
    metrics = Metrics("airunway-controller", role=MetricsRole.CORE)
    metrics.on_request("get", "pods", 404, 0.2)
    metrics.on_pass("core")("success", 0.1)
    metrics.on_leading("airunway-controller")(True)
    metrics.add_source("providers", lambda: [("airunway_provider_ready", ('ka"ito',), 1.0)])
    body, content_type = await metrics.page()
    page = body.decode()
    assert content_type.startswith("text/plain")
    assert 'airunway_api_requests_total{code="404",resource="pods",verb="get"} 1.0' in page
    assert 'airunway_reconcile_total{controller="core",result="success"} 1.0' in page
    assert 'airunway_reconcile_total{controller="core",result="error"} 0.0' in page
    assert 'airunway_leader{component="airunway-controller"} 1.0' in page
    assert 'airunway_provider_ready{provider="ka\\"ito"} 1.0' in page
    assert page.count("# TYPE airunway_leader gauge") == 1


async def test_two_applications_in_one_process_do_not_count_for_each_other() -> None:
    one, other = Metrics("one"), Metrics("other")
    one.on_request("get", "pods", 200, 0.1)
    assert b'resource="pods"' in (await one.page())[0]
    assert b'resource="pods"' not in (await other.page())[0]


def test_a_provider_has_no_metrics_of_the_core() -> None:
    with pytest.raises(KeyError):
        Metrics("airunway-provider-kaito").count("airunway_provider_selection_total", "kaito", "auto")


def test_what_was_counted_for_a_provider_goes_with_it() -> None:
    metrics = Metrics("airunway-controller", role=MetricsRole.CORE)
    for provider in ("kaito", "dynamo"):
        metrics.count("airunway_provider_selection_total", provider, "auto")
        metrics.observe("airunway_reconciliation_duration_seconds", 0.1, "core", provider)
    metrics.forget(provider="kaito")
    for provider, kept in (("kaito", None), ("dynamo", 1.0)):
        assert value(metrics, "airunway_provider_selection_total", provider=provider, reason="auto") == kept
        name = "airunway_reconciliation_duration_seconds_count"
        assert value(metrics, name, controller="core", provider=provider) == kept


# ----------------------------------------------------------------------------------------------------- transitions


class World:
    """One deployment's history, told to a `Transitions`."""

    def __init__(self, *, counting: bool = True) -> None:
        self.metrics = Metrics("airunway-controller", role=MetricsRole.CORE)
        self.now = NOW
        self.transitions = Transitions(self.metrics, providers={"kaito"}, clock=lambda: self.now)
        self.transitions.counting = counting
        self.old: Resource | None = None

    def show(self, new: Resource | None, *, after: float = 0.0) -> None:
        self.now += timedelta(seconds=after)
        self.transitions(ObjectKey("ml", "a"), self.old, new)
        self.old = new

    def total(self, name: str, **labels: str) -> float:
        return value(self.metrics, name, **labels) or 0.0


def test_a_life_is_measured() -> None:
    world = World()
    world.show(deployment())
    world.show(deployment(phase="Pending", provider="kaito"), after=5)
    world.show(deployment(phase="Deploying", provider="kaito"), after=5)
    world.show(deployment(phase="Running", provider="kaito"), after=50)
    world.show(deployment(phase="Degraded", provider="kaito"), after=50)
    world.show(deployment(phase="Running", provider="kaito"), after=50)
    for before, after in (("None", "Pending"), ("Pending", "Deploying"), ("Deploying", "Running")):
        labels = {"provider": "kaito", "from_phase": before, "to_phase": after}
        assert world.total("airunway_deployment_phase_transitions_total", **labels) == 1
    assert world.total("airunway_deployment_ready_duration_seconds_count", provider="kaito") == 1
    assert world.total("airunway_deployment_ready_duration_seconds_sum", provider="kaito") == 60
    assert world.total("airunway_deployment_provision_duration_seconds_count", provider="kaito") == 1
    assert world.total("airunway_deployment_provision_duration_seconds_sum", provider="kaito") == 50
    assert world.total("airunway_provider_selection_total", provider="kaito", reason="auto") == 1


def test_what_was_there_before_us_is_no_change() -> None:
    world = World()
    world.show(deployment(phase="Running", provider="kaito"))
    world.show(deployment(phase="Deploying", provider="kaito"), after=10)
    world.show(deployment(phase="Running", provider="kaito"), after=10)
    assert world.total("airunway_provider_selection_total", provider="kaito", reason="auto") == 0
    assert world.total("airunway_deployment_ready_duration_seconds_count", provider="kaito") == 0
    assert world.total("airunway_deployment_provision_duration_seconds_sum", provider="kaito") == 10


def test_of_an_edited_one_nobody_knows_whether_it_ever_ran() -> None:
    world = World()
    world.show(deployment(phase="Deploying", provider="kaito", generation=2))
    world.show(deployment(phase="Running", provider="kaito", generation=2), after=10)
    assert world.total("airunway_deployment_ready_duration_seconds_count", provider="kaito") == 0


def test_a_new_object_of_the_same_name_begins_anew() -> None:
    world = World()
    world.show(deployment(phase="Running", provider="kaito", uid="1"))
    world.show(deployment(created=NOW + timedelta(seconds=5), uid="2"), after=5)
    world.show(deployment(phase="Running", provider="kaito", created=NOW + timedelta(seconds=5), uid="2"), after=20)
    assert world.total("airunway_deployment_ready_duration_seconds_sum", provider="kaito") == 20


def test_a_standby_counts_nothing_but_remembers() -> None:
    world = World(counting=False)
    world.show(deployment())
    world.show(deployment(phase="Deploying", provider="kaito"), after=5)
    assert world.total("airunway_provider_selection_total", provider="kaito", reason="auto") == 0
    world.transitions.counting = True
    world.show(deployment(phase="Running", provider="kaito"), after=5)
    assert world.total("airunway_deployment_ready_duration_seconds_sum", provider="kaito") == 10


def test_errors_are_counted_once_for_each_judgement() -> None:
    world = World()
    labels = {"controller": "core", "provider": "", "error_type": "engine_selection"}
    world.show(deployment())
    world.show(deployment(phase="Pending", conditions={"EngineSelected": "False"}))
    world.show(deployment(phase="Pending", conditions={"EngineSelected": "False", "Ready": "False"}))
    assert world.total("airunway_reconciliation_errors_total", **labels) == 1
    world.show(deployment(phase="Pending", conditions={"EngineSelected": "True"}))
    world.show(deployment(phase="Pending", conditions={"EngineSelected": "False"}))
    assert world.total("airunway_reconciliation_errors_total", **labels) == 2


def test_a_provider_that_nobody_registered_is_no_label_of_a_counter() -> None:
    world = World()
    world.show(deployment())
    world.show(deployment(phase="Pending", provider="made-up-by-a-custom-selector"))
    assert world.total("airunway_provider_selection_total", provider=OTHER, reason="auto") == 1
    world.show(None)
    assert world.total("airunway_provider_selection_total", provider=OTHER, reason="auto") == 1


def test_a_named_provider_counts_as_manual() -> None:
    world = World()
    world.show(deployment())
    named = {"spec": {"model": {"id": "org/model"}, "provider": {"name": "kaito"}}}
    world.show(deployment(phase="Pending", provider="kaito") | named)
    assert world.total("airunway_provider_selection_total", provider="kaito", reason="manual") == 1


async def test_b1_a_process_of_several_parts_has_one_series_of_its_version() -> None:
    """Three of the core's parts had one each: "many-to-many" ended every query that joins with it, also for others."""
    metrics = Metrics("airunway-controller", role=MetricsRole.CORE)
    for part in ("airunway-controller", "airunway-gateway", "airunway-model-cache"):
        metrics.on_leading(part)(True)
    lines = (await metrics.page())[0].decode().splitlines()
    (info,) = [line for line in lines if line.startswith("airunway_build_info{")]
    assert 'component="airunway-controller"' in info
    assert len([line for line in lines if line.startswith("airunway_leader{")]) == 3


def test_b7_names_of_gauges_do_not_end_as_those_of_counters() -> None:
    """promtool check metrics: total is the suffix of counters."""
    assert not [each.name for each in METRICS if each.type is not MetricType.COUNTER and each.name.endswith("_total")]
    assert all(each.name.endswith("_total") for each in METRICS if each.type is MetricType.COUNTER)
