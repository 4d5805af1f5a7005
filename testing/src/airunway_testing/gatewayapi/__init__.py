"""The Gateway API for tests: minimal CRDs, a simulated gateway controller, and traffic through a real Envoy.

* `kinds`: kinds, our CRDs, objects as users write them;
* `binding`: what a controller makes of the objects, as pure functions;
* `controller`: the simulated controller on a real API server, with faults by annotation (`binding.Fault`).
"""

from airunway_testing.gatewayapi.controller import simulator

__all__ = ["simulator"]
