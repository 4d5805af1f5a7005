"""What the run end to end finds wrong with what it sees."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.resource import Resource
from airunway_testing.e2e.life import headless_fault, replaced_by_scaling


def pod(uid: str, *, ready: bool = True) -> Resource:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {"metadata": {"name": uid, "uid": uid}, "status": {"conditions": [condition]}}


def test_scaling_up_that_replaces_what_serves_is_a_fault() -> None:
    """Real Ray restarts every deployment if a count in `args` changes: 2 -> 1 was an outage."""
    before = [pod("a"), pod("b"), pod("starting", ready=False)]
    assert replaced_by_scaling(before, [pod("a"), pod("b"), pod("c")]) == ""
    assert "1 of 2 running pods were replaced by scaling up" in replaced_by_scaling(before, [pod("a"), pod("c")])
    assert "2 of 2" in replaced_by_scaling(before, [pod("c"), pod("d"), pod("e")])


@pytest.mark.parametrize(
    ("cluster_ip", "port", "ports", "wrong"),
    [
        ("10.0.0.1", 80, [{"port": 80, "targetPort": 8000}], False),
        ("None", 8000, [{"port": 80, "targetPort": 8000}], False),
        ("None", 80, [{"port": 80, "targetPort": 8000}], True),
        ("None", 80, [{"port": 80}], False),
        ("None", 80, [{"port": 80, "targetPort": "http"}], False),
        ("None", 80, [], True),
    ],
)
def test_the_port_of_a_headless_service_is_the_pods(cluster_ip: str, port: int, ports: Any, wrong: bool) -> None:
    service = {"metadata": {"name": "llama"}, "spec": {"clusterIP": cluster_ip, "ports": ports}}
    found = headless_fault({"service": "llama", "port": port}, service)
    assert bool(found) is wrong
    assert ("the Service llama is headless" in found) is wrong
