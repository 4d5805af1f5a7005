"""Maps scenarios (`airunway_testing.simulators.scenarios`) to a graph's status.

``never-ready``, ``fails`` and ``degrades`` all become "some resources are not ready", because the operator knows no
more. A reason of the operator's own (``fails:rolling_update_failed``) is copied, and ``error`` becomes a reconcile
error.
"""

from __future__ import annotations

from airunway.resource import Resource, copy_of, key_of
from airunway_dynamo_simulator.graph import components_of, refusals
from airunway_dynamo_simulator.status import Counts, failed_status, status_after
from airunway_testing.simulators.scenarios import Scenario

_OWN = frozenset(
    {
        "rolling_update_failed",
        "no_multinode_orchestrator_available",
        "unsupported_workload_provider",
        "selected_workload_provider_unavailable",
        "failed_to_reconcile_the_resources",
        "failed_to_initialize_worker_hash",
    }
)


def scripted_status(graph: Resource, scenario: Scenario, now: str) -> Resource:
    """The whole status for a scenario, as one write."""
    if scenario.silent:
        return copy_of(graph.get("status") or {})
    if said := list(refusals(graph, grove=False)):
        return failed_status(graph, "failed_to_reconcile_the_resources", "; ".join(said), now=now)
    if scenario.kind == "error":
        return failed_status(graph, "failed_to_reconcile_the_resources", scenario.argument, now=now)
    if scenario.argument in _OWN:
        return failed_status(graph, scenario.argument, f"the simulator was told to show {scenario.argument}", now=now)
    well = scenario.kind in ("instant", "lingers")
    counts = [
        Counts(
            component=component.name,
            kind="Deployment",
            made=(f"{key_of(graph).name}-{component.lower}",),
            wanted=component.replicas,
            replicas=component.replicas,
            updated=component.replicas,
            ready=component.replicas if well or not component.works else 0,
            waits=scenario.kind == "no-nodes" and component.works,
        )
        for component in components_of(graph)
    ]
    return status_after(graph, counts, grove=scenario.kind == "no-nodes", now=now)
