"""A simulated KAITO 0.12 (bring-your-own nodes), held against recordings of the real controller.

`SimulatedKaito` for a cluster with pods, `Scripted` for an API server alone; what both know is in pure functions:
`status` (facts in, status out), `passes` (order of writes), `workload` (objects), `admission` (refusals).
"""

from __future__ import annotations

from airunway.kube import Client
from airunway.resource import Resource, dig
from airunway_kaito_simulator import names
from airunway_kaito_simulator.controller import SimulatedKaito
from airunway_kaito_simulator.kinds import WORKSPACE
from airunway_kaito_simulator.scenarios import scripted_status
from airunway_testing.simulators import Level, ScenarioError, Simulator
from airunway_testing.simulators.scripted import Scripted

__all__ = ["SimulatedKaito", "simulator"]


def _program(client: Client, level: Level, scenario: str) -> Scripted | SimulatedKaito:
    if level == "api":
        return Scripted(
            client,
            WORKSPACE,
            scripted_status,
            name="kaito",
            manager=names.MANAGER,
            finalizer=names.FINALIZER,
            keep=_kept,
            scenario=scenario,
        )
    if scenario:
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    return SimulatedKaito(client)


def _kept(workspace: Resource) -> Resource:
    return {"resource": {"count": dig(workspace, "resource", "count", default=1)}}


simulator = Simulator(
    name="kaito", kinds=(("kaito.sh", "Workspace"),), package="airunway_kaito_simulator", program=_program
)
"""The entry point ``kaito`` of the group ``airunway.simulators``."""
