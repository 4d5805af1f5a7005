"""The kinds that the simulated operator reads and writes beside the common ones."""

from __future__ import annotations

from airunway.kube import Kind
from airunway_kuberay_simulator import names

__all__ = ["RAY_CLUSTER", "RAY_SERVICE"]

RAY_SERVICE = Kind(names.GROUP, "v1", "RayService", "rayservices")
RAY_CLUSTER = Kind(names.GROUP, "v1", "RayCluster", "rayclusters")
