"""The names that KubeRay puts on objects, and those by which a test or a user steers the simulated one."""

from __future__ import annotations

__all__ = [
    "API_VERSION",
    "APPLICATION",
    "CLUSTER",
    "CREATED_BY",
    "FINALIZER",
    "GROUP",
    "GROUP_NAME",
    "HASH",
    "IDENTIFIER",
    "INDEX",
    "IS_NODE",
    "MANAGER",
    "NODE_TYPE",
    "ORIGIN_KIND",
    "ORIGIN_NAME",
    "SERVE",
    "TIMEOUT",
    "WORKER_GROUPS",
]

GROUP = "ray.io"
API_VERSION = f"{GROUP}/v1"
MANAGER = "kuberay-operator"
"""Field manager of the simulator's writes, as of the real one's; different from every manager of AI Runway."""

FINALIZER = f"{GROUP}/rayservice-finalizer"
CLUSTER = f"{GROUP}/cluster"
"""Label with the RayCluster's name on its pods and Services."""
NODE_TYPE = f"{GROUP}/node-type"
GROUP_NAME = f"{GROUP}/group"
IDENTIFIER = f"{GROUP}/identifier"
IS_NODE = f"{GROUP}/is-ray-node"
SERVE = f"{GROUP}/serve"
"""Label of pods that are behind the serve Service once they are Ready."""
INDEX = f"{GROUP}/worker-group-replica-index"
ORIGIN_NAME = f"{GROUP}/originated-from-cr-name"
ORIGIN_KIND = f"{GROUP}/originated-from-crd"
HASH = f"{GROUP}/hash-without-replicas-and-workers-to-delete"
"""Annotation of a RayCluster: which configuration it was made for."""
WORKER_GROUPS = f"{GROUP}/num-worker-groups"
TIMEOUT = f"{GROUP}/initializing-timeout"
CREATED_BY = {"app.kubernetes.io/created-by": "kuberay-operator", "app.kubernetes.io/name": "kuberay"}

APPLICATION = "simulator.airunway.ai/application"
"""Annotation on a RayService: ``DEPLOY_FAILED:words`` or ``UNHEALTHY:words`` is the state of its application,
``refused:words`` that it is not taken, ``silent`` that the dashboard does not answer."""
