"""Upstream operators, simulated: they answer AI Runway's objects as the real ones do, on any control plane.

A simulator is a distribution of its own with an entry point in the group ``airunway.simulators`` that names a
`Simulator`. `discover_simulators` gives those that are installed, `simulator_for` the one that plays a provider's
upstream.
"""

from airunway_testing.simulators.registry import (
    Level,
    ScenarioError,
    Simulator,
    UnknownSimulatorError,
    discover_simulators,
    load_simulator,
    simulator_for,
)

__all__ = [
    "Level",
    "ScenarioError",
    "Simulator",
    "UnknownSimulatorError",
    "discover_simulators",
    "load_simulator",
    "simulator_for",
]
