"""A simulated KubeRay 1.7, verified against recordings of the real operator.

`SimulatedKubeRay` runs it; its logic is in pure functions: `passes` and `clusters` (order of writes), `status` (status
from facts), `workload` (created objects), `ray` (answers of Ray).
"""

from __future__ import annotations

from airunway.kube import Client
from airunway_kuberay_simulator import names
from airunway_kuberay_simulator.controller import SimulatedKubeRay
from airunway_kuberay_simulator.scenarios import Pretended
from airunway_testing.simulators import Level, ScenarioError, Simulator

__all__ = ["SimulatedKubeRay", "simulator"]


def _program(client: Client, level: Level, scenario: str) -> SimulatedKubeRay:
    if level == "api":
        return SimulatedKubeRay(client, pretended=Pretended(scenario))
    if scenario:
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    return SimulatedKubeRay(client)


simulator = Simulator(
    name="kuberay",
    kinds=((names.GROUP, "RayService"), (names.GROUP, "RayCluster")),
    package="airunway_kuberay_simulator",
    program=_program,
)
"""The entry point ``kuberay`` of the group ``airunway.simulators``."""
