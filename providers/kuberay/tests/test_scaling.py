"""How many replicas a RayService says were serving when only their number changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airunway.resource import Resource, annotations_of, copy_of, format_time
from airunway_kuberay.scaling import SCALED_FROM

Write = Callable[..., Resource]
GROUP = "gpu-workers"


@pytest.fixture
def write(deployment: Any, context: Any, service: Any) -> Write:
    """The RayService that replaces `live` when the deployment has these fields."""

    def make(live: Resource | None = None, **fields: Any) -> Resource:
        found: Resource = service(deployment(**fields), replace(context(), live=live))
        return found

    return make


def serving(written: Resource, now: Any, *, status: str = "RUNNING", age: float = 60, seen: int = 1) -> Resource:
    """The object as it lies in the cluster, that many seconds after it was written."""
    live, part = copy_of(written), "HEALTHY" if status == "RUNNING" else "UPDATING"
    app = {"status": status, "serveDeploymentStatuses": {"LLMServer:Llama-3_1-8B-Instruct": {"status": part}}}
    live["metadata"] |= {
        "generation": 1,
        "managedFields": [{"manager": "airunway-provider-kuberay", "time": format_time(now - timedelta(seconds=age))}],
    }
    live["status"] = {"observedGeneration": seen, "activeServiceStatus": {"applicationStatuses": {"llm": app}}}
    return live


def marked(written: Resource) -> Any:
    return json.loads(annotations_of(written).get(SCALED_FROM, "null"))


def test_a_changed_number_counts_from_what_served(write: Write, context: Any) -> None:
    now, first = context().now, write(scaling={"replicas": 3})
    assert marked(first) is None
    one = write(serving(first, now), scaling={"replicas": 1})
    assert marked(one) == {GROUP: 3}
    assert write(serving(one, now), scaling={"replicas": 1}) == one, "a later pass writes nothing"


def test_a_second_change_of_the_number_counts_from_the_smallest_since(write: Write, context: Any) -> None:
    now = context().now
    one = write(serving(write(scaling={"replicas": 3}), now), scaling={"replicas": 1})
    four = write(serving(one, now, status="DEPLOYING"), scaling={"replicas": 4})
    assert marked(four) == {GROUP: 1}
    assert marked(write(serving(four, now, status="DEPLOYING"), scaling={"replicas": 5})) == {GROUP: 1}
    assert marked(write(serving(four, now), scaling={"replicas": 5})) == {GROUP: 4}, "the change before was done"


@pytest.mark.parametrize("state", [{"status": "DEPLOYING"}, {"status": "UNHEALTHY"}, {"age": 2}, {"seen": 0}], ids=str)
def test_nothing_is_known_of_replicas_that_may_be_replaced(write: Write, context: Any, state: Any) -> None:
    """A change of the engine is under way, or may not be visible yet."""
    now = context().now
    assert marked(write(serving(write(), now, **state), scaling={"replicas": 2})) is None


def test_a_changed_engine_ends_it(write: Write, context: Any) -> None:
    now, engine = context().now, {"type": "vllm", "contextLength": 4096}
    two = write(serving(write(), now), scaling={"replicas": 2})
    other = write(serving(two, now), scaling={"replicas": 2}, engine=engine)
    assert marked(two) == {GROUP: 1}
    assert marked(other) is None
    assert marked(write(serving(other, now, status="DEPLOYING"), scaling={"replicas": 3}, engine=engine)) is None


@pytest.mark.parametrize("config", ["applications: []", "[]", "{", '{"applications": [1]}', "1"])
def test_a_configuration_of_another_writer_says_nothing(write: Write, context: Any, config: str) -> None:
    live = serving(write(), context().now)
    live["spec"]["serveConfigV2"] = config
    assert marked(write(live, scaling={"replicas": 2})) is None


@pytest.mark.parametrize("annotation", ["", "{", "[]", '{"gpu-workers":true}', '{"gpu-workers":-1}'])
def test_a_tampered_annotation_counts_for_nothing(write: Write, context: Any, annotation: str) -> None:
    live = serving(write(), context().now, status="DEPLOYING")
    live["metadata"].setdefault("annotations", {})[SCALED_FROM] = annotation
    assert marked(write(live, scaling={"replicas": 2})) is None


AUTOSCALING = {"minReplicas": 0, "maxReplicas": 4, "target": 16, "scaleDownStabilization": "2m"}


def test_ray_follows_the_load_by_itself(write: Write, deployment: Any, context: Any) -> None:
    written = write(scaling={"autoscaling": AUTOSCALING})
    (application,) = json.loads(written["spec"]["serveConfigV2"])["applications"]
    assert {json.dumps(part["autoscaling_config"], sort_keys=True) for part in application["deployments"]} == {
        '{"downscale_delay_s": 120, "max_replicas": 4, "min_replicas": 0, "target_ongoing_requests": 16}'
    }


def test_no_replica_for_the_moment_is_no_stop(write: Write) -> None:
    assert not write(scaling={"replicas": 0, "autoscaling": AUTOSCALING})["spec"].get("suspend")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"provider": {"overrides": {"autoscaling": {"maxReplicas": 3}}}},
            "both scaling.autoscaling and overrides.autoscaling are set: keep one",
        ),
        ({"scaling": {"autoscaling": {**AUTOSCALING, "metric": "KVCache"}}}, "Ray scales by requests under way"),
    ],
)
def test_what_ray_cannot_scale_by_is_refused(
    host: Any, deployment: Any, context: Any, fields: Resource, message: str
) -> None:
    found = host.can_handle(deployment(**{"scaling": {"autoscaling": AUTOSCALING}, **fields}), context())
    assert any(message in blocker.message for blocker in found.blockers)
