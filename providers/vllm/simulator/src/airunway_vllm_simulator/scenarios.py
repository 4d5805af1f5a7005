"""Maps scenarios (`airunway_testing.simulators.scenarios`) to a LeaderWorkerSet's status.

The real status has no reason for a failure: ``fails``, ``no-nodes`` and ``error`` are groups that never become ready,
and ``degrades`` is a set that is no longer ready (fact 8). Only pods show the cause, and this level has none.
"""

from __future__ import annotations

from dataclasses import replace

from airunway.resource import Resource, copy_of, dig
from airunway_testing.simulators.scenarios import Scenario
from airunway_vllm_simulator.groups import Group
from airunway_vllm_simulator.status import status_after


def scripted_status(lws: Resource, scenario: Scenario, now: str) -> Resource:
    """The whole status for a scenario, as one write."""
    if scenario.silent:
        return copy_of(lws.get("status") or {})
    count = int(dig(lws, "spec", "replicas", default=1))
    groups = [Group(index=index, leader={}, workers=None, ready=True, updated=True) for index in range(count)]
    leaders: Resource = {"status": {"replicas": count}}
    broken = [replace(group, ready=False) for group in groups]
    if scenario.kind in ("instant", "lingers"):
        return status_after(lws, leaders, groups, now=now)
    before = {**lws, "status": status_after(lws, leaders, groups, now=now)} if scenario.kind == "degrades" else lws
    return status_after(before, leaders, broken, now=now)
