"""A simulated KAITO 0.12 (bring-your-own nodes), held against recordings of the real controller.

`SimulatedKaito` for a cluster with pods, `ScriptedKaito` for an API server alone; what both know is in pure functions:
`status` (facts in, status out), `passes` (order of writes), `workload` (objects), `admission` (refusals).
"""

from __future__ import annotations

from airunway.kube import Client
from airunway_kaito_simulator.controller import SimulatedKaito
from airunway_kaito_simulator.scripted import ScriptedKaito
from airunway_testing.simulators import Level, ScenarioError, Simulator

__all__ = ["ScriptedKaito", "SimulatedKaito", "simulator"]


def _program(client: Client, level: Level, scenario: str) -> ScriptedKaito | SimulatedKaito:
    if level == "api":
        return ScriptedKaito(client, scenario=scenario) if scenario else ScriptedKaito(client)
    if scenario:
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    return SimulatedKaito(client)


simulator = Simulator(
    name="kaito", kinds=(("kaito.sh", "Workspace"),), package="airunway_kaito_simulator", program=_program
)
"""The entry point ``kaito`` of the group ``airunway.simulators``."""
