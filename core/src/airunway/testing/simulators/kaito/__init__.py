"""A simulated KAITO 0.12 (bring-your-own nodes), held against recordings of the real controller.

`SimulatedKaito` for a cluster with pods, `ScriptedKaito` for an API server alone; what both know is in pure functions:
`status` (facts in, status out), `passes` (order of writes), `workload` (objects), `admission` (refusals).
"""

from airunway.testing.simulators.kaito.controller import SimulatedKaito
from airunway.testing.simulators.kaito.scenarios import ScenarioError
from airunway.testing.simulators.kaito.scripted import ScriptedKaito

__all__ = ["ScenarioError", "ScriptedKaito", "SimulatedKaito"]
