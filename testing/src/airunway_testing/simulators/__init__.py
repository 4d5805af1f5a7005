"""Upstream operators, simulated: they answer AI Runway's objects as the real ones do, on any control plane.

A simulator is a distribution of its own with an entry point in the group ``airunway.simulators`` that names a
`Simulator`. `discover_simulators` gives those that are installed, `simulators_for` those that play a
provider's upstream. What simulators share (docs/providers/simulators.md):

* `scenarios`: the words by which a test says what an object shall come to, and the annotation that holds one;
* `scripted`: the answer without pods, one status write per object;
* `passes`: changes of objects in, passes over their owner out;
* `worlds`: what a pass has around it in a cluster;
* `attempts`: what becomes of a write;
* `replay`: the same passes in virtual time on recorded inputs;
* `writes`: merge patches;
* `played`: a simulator beside a test of its own.
"""

from airunway_testing.simulators.registry import (
    Level,
    ScenarioError,
    Simulator,
    UnknownSimulatorError,
    discover_simulators,
    load_simulator,
    simulators_for,
)

__all__ = [
    "Level",
    "ScenarioError",
    "Simulator",
    "UnknownSimulatorError",
    "discover_simulators",
    "load_simulator",
    "simulators_for",
]
