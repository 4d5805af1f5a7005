"""Simulated endpoint pickers and routing sidecars of llm-d, verified against recordings of the real programs.

`programs` (flags and configuration by release) and `picker` (readiness) are pure; `SimulatedPrograms` runs them in a
cluster with pods. With only an API server there is nothing to simulate, because only a gateway updates an
InferencePool.
"""

from __future__ import annotations

import asyncio

from airunway.kube import Client
from airunway_llmd_simulator.controller import INFERENCE_POOL, SimulatedPrograms
from airunway_testing.simulators import Level, ScenarioError, Simulator

__all__ = ["SimulatedPrograms", "simulator"]


class _Nobody:
    async def run(self) -> None:
        await asyncio.Event().wait()


def _program(client: Client, level: Level, scenario: str) -> _Nobody | SimulatedPrograms:
    if scenario and level == "cluster":
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    return SimulatedPrograms(client) if level == "cluster" else _Nobody()


simulator = Simulator(
    name="llmd",
    kinds=((INFERENCE_POOL.group, INFERENCE_POOL.kind),),
    package="airunway_llmd_simulator",
    program=_program,
)
"""The entry point ``llmd`` of the group ``airunway.simulators``."""
