"""The answer of a simulated KAITO that has no pods to look at: a Workspace's status by scenario.

A scenario is a word: ``instant`` (ready at once), ``never-ready`` (pending for ever), ``silent`` (no status at all),
``no-nodes`` (no node matches), ``lingers`` (ready at once, and its deletion never ends), ``fails:REASON`` (pending,
with that reason in ``InferenceReady``), ``degrades:REASON`` (was ready, now is not, with that reason) or
``error:TEXT`` (a reconcile error on every condition).
"""

from __future__ import annotations

from dataclasses import dataclass

from airunway.resource import Resource, copy_of
from airunway_kaito_simulator.pods import Failure
from airunway_kaito_simulator.status import Snapshot, status_after, with_target
from airunway_kaito_simulator.workload import target_count
from airunway_testing.simulators import ScenarioError

__all__ = ["INSTANT", "Scenario", "parse_scenario", "scripted_status"]

INSTANT = "instant"
_PLAIN = (INSTANT, "never-ready", "silent", "no-nodes", "lingers")
_WITH_ARGUMENT = ("fails", "degrades", "error")


@dataclass(frozen=True)
class Scenario:
    kind: str
    argument: str = ""

    @property
    def lingers(self) -> bool:
        """Whether a finalizer is to hold the Workspace for ever."""
        return self.kind == "lingers"

    @property
    def silent(self) -> bool:
        return self.kind == "silent"


def parse_scenario(text: str) -> Scenario:
    """The scenario that `text` names. Raises ScenarioError, naming the text and what would be understood."""
    kind, _, argument = text.partition(":")
    if (kind in _PLAIN and not argument) or (kind in _WITH_ARGUMENT and argument):
        return Scenario(kind, argument)
    known = [*_PLAIN, *(f"{name}:…" for name in _WITH_ARGUMENT)]
    raise ScenarioError(f"{text!r} is not a scenario of the simulated KAITO; use one of {', '.join(known)}")


def scripted_status(workspace: Resource, scenario: Scenario, *, now: str) -> Resource:
    """The whole status that the scenario leads to, as one write; equal to the present one where nothing is left to do.

    Invented node names stand for the nodes that a cluster would have: ``simulated-0``, one per node wanted.
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
