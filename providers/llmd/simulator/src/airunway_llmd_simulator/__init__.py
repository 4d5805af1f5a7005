"""Simulated parts of llm-d, held against recordings of the real ones: endpoint pickers and routing sidecars."""

from __future__ import annotations

import asyncio

from airunway.kube import Client
from airunway_testing.simulators import Level, Simulator

__all__ = ["simulator"]

GROUP = "inference.networking.k8s.io"


class _Idle:
    """Nothing answers a pool but a gateway, and there is none."""

    async def run(self) -> None:
        await asyncio.Event().wait()


def _program(client: Client, level: Level, scenario: str) -> _Idle:
    return _Idle()


simulator = Simulator(
    name="llmd", kinds=((GROUP, "InferencePool"),), package="airunway_llmd_simulator", program=_program
)
"""The entry point ``llmd`` of the group ``airunway.simulators``."""
