"""Maps scenarios (`airunway_testing.simulators.scenarios`) to a Workspace's status.

With ``no-nodes``, KAITO plans nodes and finds none. ``fails`` and ``degrades`` put the reason into ``InferenceReady``;
``error`` appends a reconcile error to every condition.
"""

from __future__ import annotations

from airunway.resource import Resource, copy_of
from airunway_kaito_simulator.pods import Failure
from airunway_kaito_simulator.status import Snapshot, status_after, with_target
from airunway_kaito_simulator.workload import target_count
from airunway_testing.simulators.scenarios import Scenario


def scripted_status(workspace: Resource, scenario: Scenario, now: str) -> Resource:
    """The whole status for a scenario, as one write; equal to the present one if nothing changes.

    Invented names such as ``simulated-0`` stand for the nodes, one per wanted node.
    """
    count = target_count(workspace)
    workers = tuple(f"simulated-{index}" for index in range(count))
    base = {**copy_of(workspace), "status": with_target(workspace, count)}
    ready = Snapshot(worker_nodes=workers, nodes_ready=True, workload_ready=True)
    match scenario.kind:
        case "silent":
            return copy_of(workspace.get("status") or {})
        case "no-nodes":
            return status_after(base, Snapshot(), now=now)
        case "never-ready":
            return status_after(base, Snapshot(worker_nodes=workers, nodes_ready=True), now=now)
        case "error":
            return status_after(
                base, Snapshot(worker_nodes=workers, nodes_ready=True, error=scenario.argument), now=now
            )
        case "fails" | "degrades":
            if scenario.kind == "degrades":
                base["status"]["state"] = "NotReady"
            message = f"the simulator was told to show {scenario.argument}"
            failure = Failure(reason=scenario.argument, message=message)
            return status_after(base, Snapshot(worker_nodes=workers, nodes_ready=True, failure=failure), now=now)
        case _:
            return status_after(base, ready, now=now)
