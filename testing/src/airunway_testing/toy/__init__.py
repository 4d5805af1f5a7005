"""A toy upstream: the smallest provider, simulator and CRDs that have what real ones have. Tests of the core use it.

`provider` (entry point ``toy``, selected only by name) writes a Toy, a Service, a ConfigMap and, where that kind is
served, a ToyBox; it reads ToyParts, which the simulated operator makes. A Toy has two versions that differ by a field.
"""

from airunway_testing.toy.provider import provider
from airunway_testing.toy.simulator import simulator

__all__ = ["provider", "simulator"]
