"""Upstream operators, simulated: they answer AI Runway's objects as the real ones do, on any control plane.

`SIMULATORS` maps a name to a `Simulator`; `simulator_for` finds one by the group and kind that an installed provider
translates to.
"""

from airunway.testing.simulators.registry import SIMULATORS, Level, Simulator, simulator_for

__all__ = ["SIMULATORS", "Level", "Simulator", "simulator_for"]
