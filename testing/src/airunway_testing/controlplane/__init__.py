"""A real Kubernetes control plane for tests and the sandbox: no root, no Docker.

>>> with ControlPlane("api") as plane:  # doctest: +SKIP
...     subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig, "get", "namespaces"], check=True)
"""

from airunway_testing.controlplane.access import Cluster, RunningCluster, running
from airunway_testing.controlplane.components import AuditLevel
from airunway_testing.controlplane.errors import (
    BinariesUnavailableError,
    BuildFailedError,
    ChecksumMismatchError,
    ControlPlaneError,
    DownloadFailedError,
    StartFailedError,
)
from airunway_testing.controlplane.plane import ControlPlane, learn_kinds
from airunway_testing.controlplane.versions import (
    ETCD_VERSION,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    Component,
    Level,
)

__all__ = [
    "ETCD_VERSION",
    "KUBERNETES_VERSION",
    "KWOK_VERSION",
    "AuditLevel",
    "BinariesUnavailableError",
    "BuildFailedError",
    "ChecksumMismatchError",
    "Cluster",
    "Component",
    "ControlPlane",
    "ControlPlaneError",
    "DownloadFailedError",
    "Level",
    "RunningCluster",
    "StartFailedError",
    "learn_kinds",
    "running",
]
