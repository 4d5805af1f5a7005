"""A simulated KAITO 0.12 (bring-your-own nodes), verified against recordings of the real controller.

`SimulatedKaito` needs a cluster with pods, `Scripted` only an API server; `SimulatedSets` runs beside either. Their
logic is in pure functions: `status` (status from facts), `passes` and `sets` (order of writes), `workload` (created
objects), `admission` (webhook errors).
"""

from __future__ import annotations

import asyncio

from airunway.kube import Client
from airunway.resource import Resource, dig
from airunway_kaito_simulator import names
from airunway_kaito_simulator.controller import SimulatedKaito
from airunway_kaito_simulator.kinds import WORKSPACE
from airunway_kaito_simulator.scenarios import scripted_status
from airunway_kaito_simulator.set_controller import SimulatedSets
from airunway_testing.simulators import Level, ScenarioError, Simulator
from airunway_testing.simulators.scripted import Scripted

__all__ = ["SimulatedKaito", "SimulatedSets", "simulator"]


class _Kaito:
    """Both controllers; the one for InferenceSets starts when their CRD is installed."""

    def __init__(self, workspaces: Scripted | SimulatedKaito, sets: SimulatedSets) -> None:
        self._workspaces, self._sets = workspaces, sets

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._workspaces.run())
            group.create_task(self._sets.run())


def _program(client: Client, level: Level, scenario: str) -> _Kaito:
    if level == "api":
        scripted = Scripted(
            client,
            WORKSPACE,
            scripted_status,
            name="kaito",
            manager=names.MANAGER,
            finalizer=names.FINALIZER,
            keep=_kept,
            scenario=scenario,
        )
        return _Kaito(scripted, SimulatedSets(client))
    if scenario:
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    return _Kaito(SimulatedKaito(client), SimulatedSets(client, with_nodes=True))


def _kept(workspace: Resource) -> Resource:
    return {"resource": {"count": dig(workspace, "resource", "count", default=1)}}


simulator = Simulator(
    name="kaito",
    kinds=(("kaito.sh", "Workspace"), ("kaito.sh", "InferenceSet")),
    package="airunway_kaito_simulator",
    program=_program,
)
"""The entry point ``kaito`` of the group ``airunway.simulators``."""
