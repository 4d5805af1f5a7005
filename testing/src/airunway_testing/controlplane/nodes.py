"""Simulated nodes of the level "cluster"."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from airunway.resource import Resource
from airunway_testing.controlplane.versions import KUBERNETES_VERSION


@dataclass(frozen=True, kw_only=True)
class SimulatedNode:
    """A node that KWOK plays: what the scheduler sees of it. `capacity` is Kubernetes quantities by resource name."""

    name: str
    capacity: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Resource, ...] = ()

    def manifest(self) -> Resource:
        """The Node object. All of the capacity may be allocated: nothing else runs there."""
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "type": "kwok",
            **self.labels,
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": list(self.taints)} if self.taints else {},
            "status": {
                "capacity": dict(self.capacity),
                "allocatable": dict(self.capacity),
                "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": KUBERNETES_VERSION},
            },
        }


def gpu_node(
    name: str,
    *,
    gpus: int = 8,
    product: str = "NVIDIA-H100-80GB-HBM3",
    gpu_memory_mib: int = 81559,
    labels: Mapping[str, str] | None = None,
) -> SimulatedNode:
    """A GPU server, labelled as NVIDIA's GPU feature discovery labels one."""
    discovered = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.memory": str(gpu_memory_mib),
    }
    capacity = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "4Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return SimulatedNode(name=name, capacity=capacity, labels={**discovered, **(labels or {})})


def cpu_node(name: str, *, labels: Mapping[str, str] | None = None) -> SimulatedNode:
    """A server without GPUs."""
    capacity = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
    return SimulatedNode(name=name, capacity=capacity, labels=labels or {})


DEFAULT_NODES = (gpu_node("gpu-0"), gpu_node("gpu-1"), cpu_node("cpu-0"))
"""Two servers with eight GPUs each, and one without."""
