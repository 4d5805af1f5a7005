"""Deployments that may scale to zero: their picker holds requests, their route lets them wait, their status says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from core.tests.routing.builders import (
    ENGINE,
    FLAGS,
    PLAIN,
    asked,
    at,
    config,
    deployment,
    facts,
    objects_of,
    route_of,
    serving,
    with_pool,
)

from airunway.resource import Resource
from airunway.routing.decision import decide
from airunway.routing.holding import Holding, holds_at_zero, holds_requests
from airunway.routing.intent import Facts, Flags
from airunway.sdk import picker

ROUTER = "ghcr.io/llm-d/llm-d-router-endpoint-picker"
STUCK = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]


def autoscaled(least: int | None = 0, **parts: Any) -> Resource:
    """A deployment with so many replicas at least."""
    bounds = {} if least is None else {"minReplicas": least}
    parts = {"gateway": asked(), **parts}
    return deployment(scaling={"autoscaling": {**bounds, "maxReplicas": 4, "target": 16}}, **parts)


def config_in(found: Facts) -> Resource:
    (text,) = next(obj["data"].values() for obj in objects_of(decide(found)) if obj["kind"] == "ConfigMap")
    parsed: Resource = yaml.safe_load(text)
    return parsed


def timeouts_in(found: Facts) -> list[str]:
    return [rule.get("timeouts", {}).get("request", "") for rule in route_of(decide(found))["spec"]["rules"]]


def gateway_of(found: Facts) -> Resource:
    status = decide(found).gateway
    assert status is not None
    return status


def judged(found: Facts) -> Holding:
    """What the autoscaler reads once the status is written."""
    obj = found.deployment
    return holds_requests({**obj, "status": {**obj["status"], "gateway": gateway_of(found)}})


@pytest.mark.parametrize("least", [1, 2, None, False])
def test_a_deployment_that_keeps_a_replica_has_the_objects_of_one_without_autoscaling(least: int | None) -> None:
    assert not holds_at_zero(autoscaled(least))
    plain, bounded = decide(serving(with_pool())), decide(serving(with_pool(autoscaled(least))))
    assert bounded.objects == plain.objects, "nothing restarts its picker"
    assert bounded.gateway == plain.gateway


def test_the_picker_of_a_deployment_that_may_scale_to_zero_holds_requests_while_no_pod_is_ready() -> None:
    found = config_in(with_pool(autoscaled()))
    assert found["featureGates"] == ["flowControl"]
    detector = found["flowControl"]["saturationDetector"]["pluginRef"]
    plugins = {entry["type"]: entry.get("parameters") for entry in found["plugins"]}
    assert detector == "concurrency-detector", "the default one takes a pod with unknown metrics for full"
    assert plugins[detector] == {"maxConcurrency": 1_000_000}
    before = config_in(with_pool())
    assert found["schedulingProfiles"] == before["schedulingProfiles"]
    assert [entry for entry in found["plugins"] if entry["type"] != detector] == before["plugins"]


@pytest.mark.parametrize(
    ("spec", "routing", "held"),
    [
        ({}, {}, "10m"),
        ({"requestTimeout": "2m"}, {}, "2m"),
        ({}, {"requestTimeout": "1h30m"}, "1h30m"),
        ({"requestTimeout": "soon"}, {}, "10m"),
    ],
)
def test_a_request_waits_as_long_as_the_route_lets_it(spec: Resource, routing: Resource, held: str) -> None:
    found = with_pool(autoscaled(gateway=asked(**spec)), config=config(routing=routing))
    assert timeouts_in(found) == [held, held]
    assert config_in(found)["flowControl"]["defaultRequestTTL"] == held
    at_one = at(found, autoscaled(1, gateway=asked(**spec)))
    assert timeouts_in(at_one) == (["", ""] if held == "10m" else [held, held]), "else it has none of its own"


def test_the_status_says_that_requests_are_held_once_the_picker_for_it_is_there() -> None:
    before = serving(with_pool(deployment(gateway=asked())))
    edited = at(before, autoscaled())
    assert gateway_of(edited)["holdsRequests"] is False, "the picker that runs has the configuration before"
    assert "GatewayReady" in judged(edited).problem
    ready = serving(edited)
    assert judged(ready) == Holding(pool="llama")
    assert ready.picker is not None
    stuck = replace(ready, picker={**ready.picker, "status": {"observedGeneration": 1, "conditions": STUCK}})
    assert not judged(stuck).pool
    assert "holdsRequests" not in gateway_of(at(ready, deployment(gateway=asked())))


def test_a_picker_that_restarts_or_takes_another_timeout_wakes_no_model() -> None:
    ready = serving(with_pool(autoscaled()))
    assert ready.picker is not None
    gone = replace(ready, picker={**ready.picker, "status": {"observedGeneration": 1, "replicas": 1}})
    assert judged(gone).pool == "llama"
    assert judged(at(ready, autoscaled(gateway=asked(requestTimeout="2m")))).pool == "llama"
    written = autoscaled(status={"gateway": gateway_of(ready), "endpoint": {}, "selector": ""})
    assert gateway_of(replace(at(ready, written), gateways=[]))["holdsRequests"] is True, "its Gateway is away"


OWN: Resource = {"name": "vllm", "gateway": {"endpointPicker": {"image": f"{ROUTER}:v0.10.0", "configData": "a: b"}}}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        pytest.param({"engine": PLAIN}, "Service llama", id="no pool"),
        pytest.param({"pools_served": False}, "Service llama", id="no InferencePool in the cluster"),
        pytest.param({"flags": Flags(epp_image=f"{ROUTER}:v0.9.0")}, "llm-d router 0.9", id="an older picker"),
        pytest.param({"flags": Flags(epp_image="x/epp:v1.5.0")}, "Inference Extension 1.5", id="a picker of GAIE"),
        pytest.param({"engine": OWN}, "its own configuration", id="a configuration of the provider"),
    ],
)
def test_one_replica_stays_where_nothing_holds_requests(parts: dict[str, Any], words: str) -> None:
    found = serving(facts(autoscaled(), **{"engine": ENGINE, "flags": FLAGS, **parts}))
    assert gateway_of(found)["holdsRequests"] is False
    (warning,) = gateway_of(found)["warnings"]
    assert words in warning
    assert "minReplicas" in warning
    assert judged(found) == Holding(problem=warning)


@pytest.mark.parametrize(
    ("pool", "holds"),
    [
        ({"name": "pool", "port": 8000, "holdsRequests": True}, Holding(pool="pool")),
        ({"name": "pool", "port": 8000}, None),
    ],
)
def test_of_a_pool_of_the_provider_the_provider_says_whether_it_holds(pool: Resource, holds: Holding | None) -> None:
    endpoint = {"service": "llama", "port": 80, "targetPort": 8000, "pool": pool}
    found = serving(facts(autoscaled(status={"endpoint": endpoint})))
    if holds is not None:
        assert judged(found) == holds
        assert "warnings" not in gateway_of(found)
    else:
        assert "InferencePool pool" in judged(found).problem


def test_a_users_own_route_holds_requests_if_it_leads_to_the_pool() -> None:
    obj = autoscaled(gateway=asked(httpRouteRef="mine"))
    mine: Resource = {"metadata": {"name": "mine", "namespace": "ml"}, "spec": route_of(decide(with_pool()))["spec"]}
    ready = serving(replace(with_pool(obj), user_route=mine))
    assert judged(ready).pool == "llama"
    backends = [{"name": "llama", "port": 80}]
    around = {**mine, "spec": {**mine["spec"], "rules": [{"backendRefs": backends}]}}
    assert "HTTPRoute mine does not lead to InferencePool llama" in judged(replace(ready, user_route=around)).problem


def test_without_a_gateway_the_last_replica_stays() -> None:
    assert "no gateway" in holds_requests(autoscaled()).problem


def test_only_releases_that_can_hold_requests_are_told_to() -> None:
    for image in (f"{ROUTER}:v0.9.0", "x/epp:v1.5.0"):
        release = picker.release_of(image)
        assert release is not None
        assert picker.config_of(release, hold_for="10m") == picker.config_of(release)
