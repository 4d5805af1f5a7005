"""A simulated LeaderWorkerSet 0.10 controller, verified against recordings of the real one.

`SimulatedController` needs a cluster with pods, `Scripted` only an API server. Their logic is in pure functions:
`groups` (groups from pods), `rollout`, `status` (status from groups), `passes` (order of writes), `workload` (created
objects).
"""

from __future__ import annotations

from airunway.kube import Client
from airunway.resource import Resource, dig
from airunway_testing.simulators import Level, ScenarioError, Simulator
from airunway_testing.simulators.scripted import Scripted
from airunway_vllm_simulator import names
from airunway_vllm_simulator.controller import SimulatedController
from airunway_vllm_simulator.kinds import LEADER_WORKER_SET
from airunway_vllm_simulator.scenarios import scripted_status

__all__ = ["SimulatedController", "simulator"]


def _program(client: Client, level: Level, scenario: str) -> Scripted | SimulatedController:
    if level == "api":
        return Scripted(
            client,
            LEADER_WORKER_SET,
            scripted_status,
            name="leaderworkerset",
            manager=names.MANAGER,
            finalizer=names.FINALIZER,
            keep=_kept,
            scenario=scenario,
        )
    if scenario:
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    return SimulatedController(client)


def _kept(lws: Resource) -> Resource:
    return {"spec": {"replicas": dig(lws, "spec", "replicas", default=1)}}


simulator = Simulator(
    name="vllm", kinds=((names.GROUP, "LeaderWorkerSet"),), package="airunway_vllm_simulator", program=_program
)
"""The entry point ``vllm`` of the group ``airunway.simulators``."""
