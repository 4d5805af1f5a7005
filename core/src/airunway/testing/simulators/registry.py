"""Which simulated upstreams there are, found by the kind of object that they act on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Literal, Protocol, TypeAlias

import yaml

from airunway.kube import Client
from airunway.resource import Resource
from airunway.testing.simulators.kaito import ScenarioError, ScriptedKaito, SimulatedKaito

__all__ = ["SIMULATORS", "Level", "Simulator", "simulator_for"]

Level: TypeAlias = Literal["api", "cluster"]
"""What the control plane can do: ``api`` has no pods, ``cluster`` has a scheduler, workload controllers and nodes."""


class _Program(Protocol):
    async def run(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """One simulated upstream operator.

    `kinds` are the (group, kind) pairs of the custom resources that it acts on, `crd_files` the names of its minimal
    CRDs within this package. `program(client, level, scenario)` makes what `run` runs.
    """

    name: str
    kinds: tuple[tuple[str, str], ...]
    crd_files: tuple[str, ...]
    program: Callable[[Client, Level, str], _Program]

    def custom_resource_definitions(self) -> list[Resource]:
        """The minimal CRDs, written for AI Runway; the upstream's own serve as well."""
        folder = resources.files("airunway.testing.simulators") / "crds"
        return [yaml.safe_load((folder / name).read_text()) for name in self.crd_files]

    async def run(self, client: Client, *, level: Level, scenario: str = "", stop: asyncio.Event) -> None:
        """Play the operator until `stop` is set. `scenario` (level ``api`` only) is its default answer.

        Raises ScenarioError for a scenario that it does not know or that the level has no use for.
        """
        program = self.program(client, level, scenario)
        await _until(stop, program.run())


def simulator_for(group: str, kind: str) -> Simulator | None:
    """The simulator that acts on objects of that kind, or None if there is none."""
    return next((s for s in SIMULATORS.values() if (group, kind) in s.kinds), None)


def _kaito(client: Client, level: Level, scenario: str) -> _Program:
    if level == "api":
        return ScriptedKaito(client, scenario=scenario) if scenario else ScriptedKaito(client)
    if scenario:
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    return SimulatedKaito(client)


SIMULATORS: dict[str, Simulator] = {
    "kaito": Simulator(
        name="kaito",
        kinds=(("kaito.sh", "Workspace"),),
        crd_files=("kaito-workspaces.yaml",),
        program=_kaito,
    ),
}


async def _until(stop: asyncio.Event, work: Awaitable[None]) -> None:
    """Runs `work` until `stop` is set; ends earlier, with its error, if the work does."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, stopping):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
