"""Plans of an edit: what is a difference, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.view.plan import OUTAGE, plan_step


def test_another_order_of_keys_is_no_difference() -> None:
    before = {"kind": "Deployment", "metadata": {"name": "a", "namespace": "ml", "labels": {"x": "1"}}}
    env = [{"value": "1", "name": "A"}, {"name": "B", "value": "2"}]
    before["spec"] = {"env": env, "replicas": 1}
    after = {"kind": "Deployment", "metadata": {"name": "a", "labels": {"x": "1"}, "namespace": "ml"}}
    after["spec"] = {"replicas": 2, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]}
    diff = plan_step("update", before, after).diff
    changed = [each for each in diff if each.startswith(("+", "-")) and not each.startswith(("+++", "---"))]
    assert changed == ["-  replicas: 1", "+  replicas: 2", "-    value: '2'", "+    value: '3'"]


def server(image: str, *, kind: str = "Deployment", replicas: int = 1, surge: object = 0) -> dict[str, object]:
    pod = {"spec": {"containers": [{"name": "model", "image": image}]}}
    strategy = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}}
    spec = {"replicas": replicas, "strategy": strategy, "template": pod}
    return {"spec": spec, "metadata": {"name": "llama"}, "kind": kind, "apiVersion": "apps/v1"}


@pytest.mark.parametrize(
    ("changes", "action", "outage"),
    [
        ({}, "update", True),
        ({"replicas": 2}, "update", False),
        ({"surge": 1}, "update", False),
        ({"kind": "StatefulSet"}, "update", True),
        ({"replicas": 2}, "recreate", True),
        ({"replicas": 0}, "recreate", False),
    ],
)
def test_b8_a_restart_of_the_only_replica_is_an_outage(changes: dict[str, Any], action: str, outage: bool) -> None:
    step = plan_step(action, server("a", **changes), server("b", **changes), primary=True)
    assert (step.restarts, step.interrupts) == (True, (OUTAGE,) if outage else ())


def test_a9_a_deleted_object_is_shown_from_its_kind_on() -> None:
    shown = [line[1:].split(":")[0] for line in plan_step("delete", server("a"), None).diff if line.startswith("-")]
    tops = [line for line in shown if line in ("apiVersion", "kind", "metadata", "spec")]
    assert tops == ["apiVersion", "kind", "metadata", "spec"]
