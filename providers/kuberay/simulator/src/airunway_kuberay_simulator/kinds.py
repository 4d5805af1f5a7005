"""The kinds that only this simulated operator reads and writes."""

from __future__ import annotations

from airunway.kube import Kind
from airunway_kuberay_simulator import names

RAY_SERVICE = Kind(names.GROUP, "v1", "RayService", "rayservices")
RAY_CLUSTER = Kind(names.GROUP, "v1", "RayCluster", "rayclusters")
