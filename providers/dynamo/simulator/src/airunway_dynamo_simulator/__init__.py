"""A simulated NVIDIA Dynamo operator for graphs of both API versions, with and without Grove.

`SimulatedOperator` needs a cluster with pods, `Scripted` only an API server. Their logic is in pure functions: `graph`
(components of a graph), `status` (status from counts), `workloads` (created objects). The real operator was not
recorded; README.md lists the assumptions about it with their sources.
"""

from __future__ import annotations

import asyncio

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, Kind, NotFound
from airunway.resource import ObjectKey, Resource, dig, is_true
from airunway_dynamo_simulator import names
from airunway_dynamo_simulator.kinds import graphs
from airunway_dynamo_simulator.operator import SimulatedOperator
from airunway_dynamo_simulator.scenarios import scripted_status
from airunway_testing.simulators import Level, ScenarioError, Simulator
from airunway_testing.simulators.scenarios import parse_scenario
from airunway_testing.simulators.scripted import Scripted

__all__ = ["SimulatedOperator", "simulator"]

_CRD = ObjectKey("", f"dynamographdeployments.{names.API_GROUP}")


class _Program:
    """Waits for the CRD and then handles graphs in the stored version, as the real operator does."""

    def __init__(self, client: Client, level: Level, scenario: str) -> None:
        self._client, self._level, self._scenario = client, level, scenario

    async def run(self) -> None:
        kind = graphs(await self._stored())
        await (self._scripted(kind) if self._level == "api" else SimulatedOperator(self._client, kind)).run()

    def _scripted(self, kind: Kind) -> Scripted:
        return Scripted(
            self._client,
            kind,
            scripted_status,
            name="dynamo",
            manager=names.MANAGER,
            finalizer=names.LINGERS,
            keep=lambda graph: {"spec": graph.get("spec")},
            scenario=self._scenario,
        )

    async def _stored(self) -> str:
        while True:
            try:
                crd = await self._client.get(CUSTOM_RESOURCE_DEFINITION, _CRD)
            except NotFound:
                crd = {}
            if is_true(crd, "Established"):
                return next(str(v["name"]) for v in _versions(crd) if v.get("storage"))
            await asyncio.sleep(0.1)


def _versions(crd: Resource) -> list[Resource]:
    return list(dig(crd, "spec", "versions", default=[]))


def _program(client: Client, level: Level, scenario: str) -> _Program:
    if scenario and level != "api":
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    parse_scenario(scenario or "instant")
    return _Program(client, level, scenario)


simulator = Simulator(
    name="dynamo",
    kinds=((names.API_GROUP, "DynamoGraphDeployment"),),
    package="airunway_dynamo_simulator",
    program=_program,
)
"""The entry point ``dynamo`` of the group ``airunway.simulators``."""
